"""Masked language modeling with next-sentence prediction (BERT; Devlin et al., 2019, section 3.1).

    [CLS] the man went to the store [SEP] he bought a gallon of milk [SEP]      0: B is what follows A
    [CLS] the man went to the store [SEP] penguins are flightless birds [SEP]   1: B is from another document

As in `create_pretraining_data.py` of the paper's code a stretch of a document is split at a random sentence,
and half of the time its second part is replaced by another document's.

No length tells the label: stretches of different documents whose second parts are about equally long are
coupled, both parts are cut to the shorter one's length, and only then a coin says whether they are traded. So
a couple's pairs have the same lengths (of A, of B, of both) whichever way it falls, and every text is as
often a true B as a random one: a document's first sentence is neither.

Deviations: the paper draws a random B anywhere, and lets the rest that it replaces begin the next pair; here
stretches trade, so that every text is read once in an epoch, and documents are drawn in proportion to their
length. A document that has more stretches than all others together borrows from them. The labels are 50/50
exactly.

Legend: P pairs of an epoch.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .masked_pairs import MaskedPairsRecipe
from .sentence_pairs import SentencePairSource, coins, cut, find_partners, shorten

NEXT, RANDOM = 0, 1
"""The labels, as in `BertForPreTraining`."""


class NextSentencePairs(SentencePairSource):
    """Pairs of which half have a second part of another document; see `SentencePairSource`."""

    name = "next-sentence prediction"
    fewest_documents = 2

    def pair(
        self, first: np.ndarray, second: np.ndarray, document: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Trade second parts, then cut what is too long."""
        second, labels = trade(second, document, rng)
        shorten(first, second, self.budget, rng)
        return first, second, labels


def trade(
    second: np.ndarray, document: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Trade half of the second parts (P, 2) for such of other documents: the new ones, and the labels (P,).

    Their lengths do not depend on the labels: a part, and the one that stands in for it, are cut to the
    shorter one's length first.
    """
    sizes = second[:, 1] - second[:, 0]
    partners = find_partners(sizes, document, rng)
    partner, labels = np.empty_like(sizes), np.empty_like(sizes)
    partner[partners.couples] = partners.couples[:, ::-1]
    partner[partners.borrowers] = partners.lenders
    labels[partners.couples] = coins(len(partners.couples), rng)[:, None]
    labels[partners.borrowers] = coins(len(partners.borrowers), rng)
    traded = second[np.where(labels == RANDOM, partner, np.arange(len(sizes)))]
    cut(traded, traded[:, 1] - traded[:, 0] - np.minimum(sizes, sizes[partner]), rng)
    return traded, labels


@dataclass(frozen=True)
class NextSentenceRecipe(MaskedPairsRecipe):
    """Predict masked tokens, and whether the second part of a pair follows the first (BERT)."""

    pair_term = "nsp"
    pairs = NextSentencePairs

    kind: Literal["masked_language_modeling_with_next_sentence"]
    """Which objective this is."""
