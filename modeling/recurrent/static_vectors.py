"""Static word vectors: skip-grams (Mikolov et al., 2013), also with sub-words (Bojanowski et al., 2017).

    known word          its own vector
    other word          the mean of the vectors of its n-grams, where there are n-grams
                        else the vector of the word in lower case, where that is known
                        else zeros

Nothing is learned here: another program makes the vectors (`tools/convert/static_vectors.py` brings them in),
and taggers read them as features.

The n-grams of characters of a word, and the rows of a table that they share (Bojanowski et al., 2017).

    where, n = 3   ->   <wh whe her ere re>

Each n-gram has one of B rows, found by a hash (section 3.2), so that a word that no text has shown has
vectors of its parts. The hash is that of fastText, so that vectors of that program, and of gensim, can be
used.

A list of texts that is saved with the weights: words that have a vector, or characters that have a number.

It is the vocabulary of vectors that are used as features. The bytes of all texts lie end to end in a buffer,
so that `save_pretrained` and `from_pretrained` need to know nothing of it.

Shapes: B batch, T positions, N words, or bytes of all texts, W words of a sentence, V texts, C width of a
vector.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from ..compatibility import known_arguments, version_of
from ..outputs import Keywords
from ..pretrained import NeuralPreTrainedModel
from .configurations import TercetWordVectorsConfig
from .words import read_words


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
        self.read: tuple[tuple[int, int | None], dict[str, int]] | None = None

    def draw(self) -> None:
        for buffer in self.buffers():
            init.zeros_(buffer)

    def learn(self, entries: Mapping[str, int]) -> None:
        """Take over texts and their numbers, as many as there is room for."""
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
        state = self.ends.data_ptr(), version_of(self.ends)
        if self.read is None or None in state or self.read[0] != state:
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


OFFSET, PRIME = 2166136261, 16777619
"""Of the hash of Fowler, Noll and Vo, FNV-1a, with 32 bits."""


def ngrams_of(word: str, shortest: int, longest: int) -> list[str]:
    """List the n-grams of a word between < and >, the word itself included if it is short enough.

    >>> ngrams_of("her", 3, 4)
    ['<he', '<her', 'her', 'her>', 'er>']
    """
    framed = f"<{word}>"
    return [
        framed[first : first + length]
        for first in range(len(framed))
        for length in range(shortest, min(longest, len(framed) - first) + 1)
    ]


def hash_of(ngram: str) -> int:
    """Hash an n-gram to 32 bits. Bytes from 128 on are taken for negative numbers, as fastText does."""
    value = OFFSET
    for byte in ngram.encode(errors="surrogatepass"):
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * PRIME) & 0xFFFFFFFF
    return value


def rows_of(word: str, shortest: int, longest: int, num_rows: int) -> list[int]:
    """Return the row of each n-gram of a word in a table of `num_rows`."""
    return [hash_of(ngram) % num_rows for ngram in ngrams_of(word, shortest, longest)]


class TercetWordVectorsModel(NeuralPreTrainedModel):
    """A table of vectors of words, and perhaps one of n-grams.

    Example:
        >>> from tercet import TercetWordVectorsConfig, TercetWordVectorsModel
        >>> config = TercetWordVectorsConfig(hidden_size=8, num_words=2, num_word_bytes=7)
        >>> model = TercetWordVectorsModel(config)
        >>> model.words.learn({"the": 0, "cats": 1})
        >>> [vectors.shape for vectors in model.embed_words([["the", "cats"], ["dogs"]])]
        [torch.Size([2, 8]), torch.Size([1, 8])]
    """

    config: TercetWordVectorsConfig

    def __init__(self, config: TercetWordVectorsConfig):
        super().__init__(config)
        self.words = Lexicon(config.num_words, config.num_word_bytes)
        self.word_vectors = nn.Embedding(config.num_words, config.hidden_size)
        self.ngram_vectors = (
            nn.Embedding(config.num_ngram_rows, config.hidden_size) if config.num_ngram_rows else None
        )
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.word_vectors

    @known_arguments()
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        **kwargs: Keywords,
    ) -> BaseModelOutput:
        """Vectors (B, T, C) of bytes (B, T): each byte has the vector of its word, pads have zeros.

        See `read_words` for the inputs. Of `kwargs`, `output_hidden_states` asks for the only layer again.
        """
        words, texts = read_words(input_ids, attention_mask, position_ids, cu_seq_lens_q)
        states = words.to_tokens(torch.cat(self.embed_words(texts)))
        is_recorded = self.records("output_hidden_states", kwargs)
        return BaseModelOutput(last_hidden_state=states, hidden_states=(states,) if is_recorded else None)

    def embed_words(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return the vectors (W, C) of each sentence's words."""
        numbers = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(sentences)))}
        vectors = self.vectors_of([*numbers])
        places = torch.tensor(
            [numbers[word] for word in chain.from_iterable(sentences)], device=self.device, dtype=torch.long
        )
        return [*vectors[places].split([len(sentence) for sentence in sentences])]

    def vectors_of(self, words: Sequence[str]) -> Tensor:
        """Return the vectors (N, C) of words, each by itself."""
        known = self.words.entries
        rows = [known.get(word, -1) for word in words]
        others = [number for number, row in enumerate(rows) if row < 0]
        table = self.word_vectors.weight
        found = self.word_vectors(torch.tensor(rows, device=self.device, dtype=torch.long).clamp(min=0))
        if others:
            places = torch.tensor(others, device=self.device)
            found = found.index_copy(
                0, places, self.unknown_vectors([words[each] for each in others]).to(table)
            )
        return found

    def unknown_vectors(self, words: Sequence[str]) -> Tensor:
        """Return the vectors (N, C) of words that have none of their own."""
        if self.ngram_vectors is None:
            known = self.words.entries
            rows = [[known[word.lower()]] if word.lower() in known else [] for word in words]
            return mean_of_rows(rows, self.word_vectors.weight)
        config = self.config
        sizes = config.shortest_ngram, config.longest_ngram, config.num_ngram_rows
        return mean_of_rows([rows_of(word, *sizes) for word in words], self.ngram_vectors.weight)


def mean_of_rows(rows: Sequence[Sequence[int]], table: Tensor) -> Tensor:
    """Average some rows of a table for each word, (N, C): zeros where there are none."""
    lengths = torch.tensor([len(each) for each in rows], device=table.device)
    numbers = torch.tensor([*chain.from_iterable(rows)], device=table.device, dtype=torch.long)
    return F.embedding_bag(numbers, table, lengths.cumsum(0) - lengths, mode="mean")
