"""Masked language modeling with sentence-order prediction (ALBERT; Lan et al., 2020, section 3.1).

    [CLS] the man went to the store [SEP] he bought a gallon of milk [SEP]      0: in order
    [CLS] he bought a gallon of milk [SEP] the man went to the store [SEP]      1: swapped

Both parts are of one document, one behind the other, so their topic tells nothing: only coherence does. A
stretch of a document is split at a random sentence, and half of the time the parts change places.

No length tells the label, although second parts are longer on average (a stretch ends with the sentence that
fills it). Stretches are coupled, one whose first part is the longer with one whose second part is:

    stretch P   A A A A A A | B B B             cut to    6 | 2        one of the two is swapped, by a coin:
    stretch Q       A A | B B B B B B B                   2 | 6        both pairs are 6 | 2, or both 2 | 6

Each part is cut to the length of its counterpart (A of P and B of Q). So of the two pairs, whose lengths are
the same, one is in order and one is not. Nor does it tell anything that a part begins or ends in the middle
of a sentence: if one of two counterparts is cut, both are, by a token or more, and at the same end. A stretch
that finds no partner is its own: it is cut to two parts of equal length. The labels are 50/50 exactly.

Deviation: ALBERT's code swaps the parts as they are.

Legend: P pairs of an epoch.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .masked_pairs import MaskedPairsRecipe
from .sentence_pairs import SentencePairSource, coins, couple_strangers, overlength

IN_ORDER, SWAPPED = 0, 1
"""The labels, as in `AlbertForPreTraining`."""

GRAIN = 8
"""Tokens by which the lengths of coupled stretches may differ."""


class SentenceOrderPairs(SentencePairSource):
    """Pairs of which half are swapped; see `SentencePairSource`."""

    name = "sentence-order prediction"
    fewest_documents = 1

    def pair(
        self, first: np.ndarray, second: np.ndarray, document: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut what is too long, and each part to its counterpart; then swap half of the pairs."""
        a, b = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
        is_too_long = a + b > self.budget
        cut_a, cut_b = overlength(a, b, self.budget + 2)  # each part loses one token more
        fitting_a, fitting_b = a - cut_a, b - cut_b
        couples, alone = couple_counterparts(fitting_a, fitting_b, rng)
        other = np.arange(len(a))
        other[couples] = couples[:, ::-1]
        sizes = np.minimum(fitting_a, fitting_b[other])
        is_cut = is_too_long | is_too_long[other] | (fitting_a != fitting_b[other])
        sizes = np.maximum(sizes - is_cut, np.minimum(sizes, 1))
        excess = np.maximum(sizes + sizes[other] - self.budget, 0)  # a part of one token could not lose it
        sizes = sizes - np.where(sizes > sizes[other], excess, 0)
        is_front = rng.random(len(a)) < 0.5
        cut_one_end(first, a - sizes, is_front)
        cut_one_end(second, b - sizes[other], is_front[other])
        labels = np.empty_like(a)
        swapped = coins(len(couples), rng)
        labels[couples] = np.stack([swapped, 1 - swapped], axis=1)
        labels[alone] = coins(len(alone), rng)
        is_swapped = (labels == SWAPPED)[:, None]
        return np.where(is_swapped, second, first), np.where(is_swapped, first, second), labels


def cut_one_end(part: np.ndarray, excess: np.ndarray, is_front: np.ndarray) -> None:
    """Cut `excess` (P,) tokens off parts (P, 2) in place, at the front or at the back."""
    part[:, 0] += np.where(is_front, excess, 0)
    part[:, 1] -= np.where(is_front, 0, excess)


def couple_counterparts(
    a: np.ndarray, b: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Couple stretches, each of which is split like the other one read backwards.

    Args:
        a: Tokens of their first parts (P,).
        b: Tokens of their second parts (P,).
        rng: Orders those of equal lengths.

    Returns:
        Stretches of about the same length, of which the first part of one is as long as the second part of
        the other (C, 2); and those for which none was left (Q,).
    """
    longest = int((a + b).max())
    likeness = (a + b) // GRAIN * (longest + 1) + np.abs(a - b)
    _, couples, alone = couple_strangers(likeness, a > b, rng)
    return couples, alone


@dataclass(frozen=True)
class SentenceOrderRecipe(MaskedPairsRecipe):
    """Predict masked tokens, and whether two consecutive parts of a text are swapped (ALBERT)."""

    pair_term = "sop"
    pairs = SentenceOrderPairs

    kind: Literal["masked_language_modeling_with_sentence_order"]
    """Which objective this is."""
