"""Uses of words that have several senses, taken from tagged sentences; and whether vectors tell them apart.

A static vector of "order" is the same in "an order of steel" and "they order steel". Where words are tagged
with parts of speech, such pairs are there in numbers: a labelled set of two senses for each word.

Shapes: U uses of a word, L layers, C channels.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

TIE = 1e-6
"""Cosines that differ by less are equal."""


class Use(NamedTuple):
    """A word in a sentence."""

    sense: str
    """What the word means there."""
    sentence: str
    first: int
    """Where the word begins, in characters."""
    last: int
    """Where it ends."""


def uses_by_tag(
    rows: Iterable[tuple[Sequence[str], Sequence[str]]],
    senses: Sequence[str],
    num_uses: int,
    shortest: int = 4,
) -> dict[str, list[Use]]:
    """Find the words that have so many uses in each sense, and the first of these.

    Args:
        rows: Words and tags of each sentence, as many of one as of the other.
        senses: Tags that count as senses.
        num_uses: Uses of a word in each of them.
        shortest: Characters of a word at least.

    Returns:
        Words in lower case, in the order of the alphabet: `num_uses` times as many uses as senses each, sense
        after sense.

    >>> rows = [(["they", "order", "it"], ["PRON", "VERB", "PRON"]), (["an", "Order"], ["DET", "NOUN"])]
    >>> uses_by_tag(rows, ["NOUN", "VERB"], 1)["order"][0]
    Use(sense='NOUN', sentence='an Order', first=3, last=8)
    """
    found: defaultdict[str, dict[str, list[Use]]] = defaultdict(lambda: {sense: [] for sense in senses})
    for words, tags in rows:
        sentence, first = " ".join(words), 0
        for word, tag in zip(words, tags, strict=True):
            if tag in senses and len(word) >= shortest:
                found[word.lower()][tag].append(Use(tag, sentence, first, first + len(word)))
            first += len(word) + 1
    return {
        word: [use for uses in by_sense.values() for use in uses[:num_uses]]
        for word, by_sense in sorted(found.items())
        if all(len(uses) >= num_uses for uses in by_sense.values())
    }


def nearest_is_alike(states: Tensor, senses: Sequence[str]) -> Tensor:
    """Return the share of uses whose nearest other use, by the cosine, has their sense: (L,).

    Vectors that ignore the sentence are all equally near. What is equally near counts in parts, so that their
    share is that of chance: (n - 1) / (2 n - 1) for two senses of n uses.

    Args:
        states: Of each use in each layer, (U, L, C).
        senses: Of each use.
    """
    unit = F.normalize(states, dim=-1).transpose(0, 1)  # (L, U, C)
    cosines = unit @ unit.mT
    itself = torch.eye(len(senses), dtype=torch.bool)
    cosines = cosines.masked_fill(itself, -torch.inf)
    is_nearest = (cosines >= cosines.amax(-1, keepdim=True) - TIE) & ~itself
    numbers = {sense: number for number, sense in enumerate(dict.fromkeys(senses))}
    label = torch.tensor([numbers[sense] for sense in senses])
    is_alike = label[:, None] == label
    return ((is_nearest & is_alike).sum(-1) / is_nearest.sum(-1)).mean(-1)


def shares_by_word(states: Mapping[str, Tensor], uses: Mapping[str, Sequence[Use]]) -> Tensor:
    """Return the share of `nearest_is_alike` for each word, (words, L)."""
    return torch.stack(
        [nearest_is_alike(own, [use.sense for use in uses[word]]) for word, own in states.items()]
    )
