"""Vectors of words from the states of characters (Akbik et al., 2018, section 2).

    <end> the _ green _ house <end>          words joined by spaces, between two ends of a text

The vector of a word is the forward state behind its last character, beside the backward state before its
first one. A model has learned where texts begin and end from the token that ends them; both directions meet
it first. Words are encoded one by one: so each has its own characters, whatever the tokenizer makes of them.

Shapes: N characters of a packed stream, S sentences, W words, C states of one direction.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..attention.packing import cumulative
from .reading_orders import Characters, find_characters

CHARACTERS_AT_ONCE = 2**12
"""Characters of a batch at most, pads included, unless one sentence has more."""


class CharacterStates(Protocol):
    """What has states of both directions (`TercetCharacterModel`)."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    def read(self, text: Characters, places: Sequence[Tensor | None]) -> Tensor:
        """Return the forward states at the first places, beside the backward ones at the second."""
        ...


class SentenceCharacters:
    """A sentence as characters, and where its words lie in it.

    Args:
        words: The ids of each word's characters.
        space: The ids between two words.
        end: The id at both ends.
    """

    def __init__(self, words: Sequence[Sequence[int]], space: Sequence[int], end: int):
        ids, self.first, self.last = [end], [], []
        for word in words:
            self.first.append(len(ids))
            self.last.append(len(ids) + len(word) - 1)
            ids += [*word, *space]
        self.ids = [*ids[: self.last[-1] + 1], end] if words else [end, end]


def embed_words(
    model: CharacterStates, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]]
) -> list[Tensor]:
    """Embed the words of sentences, many sentences at a time: for each its vectors (W, 2 C).

    Gradients flow where torch records them: use `torch.no_grad()` for vectors that are only read.

    Args:
        model: Gives states of both directions (`TercetCharacterModel`), in evaluation mode, or what it drops
            changes the vectors.
        tokenizer: That of the model.
        sentences: As lists of words.

    Raises:
        ValueError: A sentence is a text, or has no words, or a word no characters that the tokenizer keeps;
            or the tokenizer lacks what ends a text.
    """
    return embed_encoded(model, encode_sentences(tokenizer, sentences))


def embed_encoded(model: CharacterStates, texts: Sequence[SentenceCharacters]) -> list[Tensor]:
    """Embed the words of sentences that are encoded: see `embed_words`."""
    vectors: dict[int, Tensor] = {}
    for numbers in batches([len(text.ids) for text in texts]):
        batch = [texts[number] for number in numbers]
        vectors.update(zip(numbers, vectors_of(model, batch), strict=True))
    return [vectors[number] for number in range(len(texts))]


def vectors_of(model: CharacterStates, batch: Sequence[SentenceCharacters]) -> Sequence[Tensor]:
    """Embed the words of the sentences of one batch."""
    lengths = torch.tensor([len(text.ids) for text in batch])
    bounds, num_words = cumulative(lengths), [len(text.first) for text in batch]
    stream, first, last = (
        torch.tensor([*chain.from_iterable(numbers)])
        for numbers in zip(*((text.ids, text.first, text.last) for text in batch), strict=True)
    )
    begins = bounds[:-1].repeat_interleave(torch.tensor(num_words))
    stream, bounds, first, last = (
        x.to(model.device) for x in (stream, bounds, begins + first, begins + last)
    )
    text = find_characters(stream[None], cu_seq_lens=bounds, max_length=int(lengths.max()))
    return model.read(text, (last, first)).split(num_words)


def encode_sentences(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]]
) -> list[SentenceCharacters]:
    """Encode sentences word by word.

    Raises:
        ValueError: As in `embed_words`.
    """
    if (end := tokenizer.eos_token_id) is None:
        raise ValueError("the tokenizer has no eos_token, which ends a text: use the model's own tokenizer")
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueError(f"sentence {number} is {sentence!r}: give a list of its words")
        if not sentence:
            raise ValueError(f"sentence {number} has no words: leave it out")
    options: dict[str, Any] = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    distinct = [*dict.fromkeys(chain([" "], *sentences))]
    ids = cast(list[list[int]], tokenizer(distinct, **options)["input_ids"])
    known = dict(zip(distinct, ids, strict=True))
    encoded = [[known[word] for word in sentence] for sentence in sentences]
    for number, sentence in enumerate(encoded):
        if [] in sentence:
            raise ValueError(
                f"word {sentence.index([])} of sentence {number} has no characters: leave it out"
            )
    return [SentenceCharacters(sentence, known[" "], cast(int, end)) for sentence in encoded]


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group sentences of like lengths (S,), longest first, so that no batch has too many characters."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        size = max(CHARACTERS_AT_ONCE // lengths[order[0]], 1)
        yield order[:size]
        order = order[size:]
