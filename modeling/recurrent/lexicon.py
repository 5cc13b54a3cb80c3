"""A list of texts that is saved with the weights: words that have a vector, or characters that have a number.

It is the vocabulary of vectors that are used as features. The bytes of all texts lie end to end in a buffer,
so that `save_pretrained` and `from_pretrained` need to know nothing of it.

Shapes: N bytes of all texts, V texts.
"""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from transformers import initialization as init


class Lexicon(nn.Module):
    """Texts and their numbers.

    Args:
        num_texts: V.
        num_bytes: N.
    """

    def __init__(self, num_texts: int, num_bytes: int):
        super().__init__()
        self.bytes: Tensor
        self.ends: Tensor
        self.numbers: Tensor
        self.register_buffer("bytes", torch.zeros(num_bytes, dtype=torch.uint8))
        self.register_buffer("ends", torch.zeros(num_texts, dtype=torch.int32))
        self.register_buffer("numbers", torch.zeros(num_texts, dtype=torch.int32))
        self.read: tuple[tuple[int, int], dict[str, int]] | None = None

    def draw(self) -> None:
        """Know no text."""
        for buffer in self.buffers():
            init.zeros_(buffer)

    def learn(self, entries: Mapping[str, int]) -> None:
        """Take over texts and their numbers, as many as there is room for.

        Raises:
            ValueError: There are more or fewer.
        """
        encoded = [encode(text) for text in entries]
        if sizes(entries) != (len(self.ends), len(self.bytes)):
            raise ValueError(
                f"{len(encoded)} texts of {sum(map(len, encoded))} bytes do not fit into a lexicon of "
                f"{len(self.ends)} texts of {len(self.bytes)} bytes: build it with their sizes"
            )
        self.bytes.copy_(torch.tensor([*b"".join(encoded)], dtype=torch.uint8))
        self.ends.copy_(torch.tensor([len(each) for each in encoded]).cumsum(0))
        self.numbers.copy_(torch.tensor([*entries.values()]))

    @property
    def entries(self) -> dict[str, int]:
        """Number of each text, in their order."""
        state = self.ends.data_ptr(), self.ends._version
        if self.read is None or self.read[0] != state:
            written = bytes(self.bytes.tolist())
            spans = pairwise([0, *self.ends.tolist()])
            texts = (written[first:last].decode(errors="surrogatepass") for first, last in spans)
            self.read = state, dict(zip(texts, self.numbers.tolist(), strict=True))
        return self.read[1]


def encode(text: str) -> bytes:
    """Return the bytes of a text in UTF-8, lone surrogates included."""
    return text.encode(errors="surrogatepass")


def sizes(entries: Mapping[str, int]) -> tuple[int, int]:
    """Count texts and their bytes: the arguments of the lexicon that holds them."""
    return len(entries), sum(len(encode(text)) for text in entries)
