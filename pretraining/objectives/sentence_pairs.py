"""Pairs of texts for encoders that judge pairs, `[CLS] A [SEP] B [SEP]`.

A and B are runs of whole sentences that fill the sequence. As in `create_pretraining_data.py` of BERT's code
a document is cut into stretches, of which a tenth is shorter, and a stretch is split into A and B at a random
sentence; what is too long is cut at the ends. A stretch has two sentences or more; documents of one sentence,
which nothing follows, are left out and counted. Pairs are drawn anew for every epoch.

    document 7   | s1 s2 s3 . s4 s5 | s6 . s7 s8 |        stretches, each with a split (.) into A and B
    document 9   | s1 . s2 s3 s4 s5 s6 |

The law of both kinds of pairs: no length tells the label. Who only counts tokens is right in half of the
cases. Stretches that are about alike are coupled for that. The labels are 50/50 exactly.

*Next sentences* (BERT; Devlin et al., 2019, section 3.1): half of the time B is another document's.

    [CLS] the man went to the store [SEP] he bought a gallon of milk [SEP]      0: B is what follows A
    [CLS] the man went to the store [SEP] penguins are flightless birds [SEP]   1: B is from another document

Stretches of different documents whose second parts are about equally long are a couple. Both parts are cut to
the shorter one's length, and only then a coin says whether they are traded. So a couple's pairs have the same
lengths (of A, of B, of both) whichever way it falls, and every text is as often a true B as a random one: a
document's first sentence is neither. Deviations: the paper draws a random B anywhere, and lets the rest that
it replaces begin the next pair; here stretches trade, so that every text is read once in an epoch, and
documents are drawn in proportion to their length. A document that has more stretches than all others together
borrows from them.

*Sentence order* (ALBERT; Lan et al., 2020, section 3.1): half of the time A and B change places. Both are of
one document, so their topic tells nothing: only coherence does.

    [CLS] the man went to the store [SEP] he bought a gallon of milk [SEP]      0: in order
    [CLS] he bought a gallon of milk [SEP] the man went to the store [SEP]      1: swapped

Second parts are longer on average (a stretch ends with the sentence that fills it). So a stretch whose first
part is the longer one is coupled with one whose second part is:

    stretch P   A A A A A A | B B B             cut to    6 | 2        one of the two is swapped, by a coin:
    stretch Q       A A | B B B B B B B                   2 | 6        both pairs are 6 | 2, or both 2 | 6

Each part is cut to the length of its counterpart (A of P and B of Q). So of the two pairs, whose lengths are
the same, one is in order and one is not. Nor does it tell anything that a part begins or ends in the middle
of a sentence: if one of two counterparts is cut, both are, by a token or more, and at the same end. A stretch
that finds no partner is its own: it is cut to two parts of equal length. Deviation: ALBERT's code swaps the
parts as they are.

Legend: P stretches or pairs of an epoch, D documents, S their sentences, C couples, Q stretches that only
borrow, n coins.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...data.corpus import TokenizedCorpus
from ...data.steps.examples import LeftOut, PackableExamples, PackedExamples, count_left_out
from ...data.steps.objective import Example
from ...data.steps.packing import Ragged, stretches
from ...data.tokenizers.special_tokens import required_token_id

NEXT, RANDOM = 0, 1
"""The labels, as in `BertForPreTraining`."""

IN_ORDER, SWAPPED = 0, 1
"""The labels, as in `AlbertForPreTraining`."""

GRAIN = 8
"""Tokens by which the lengths of coupled stretches may differ."""

BLOCK = 2**17
"""Sentences, about, whose pairs are drawn at once: few enough to need little memory."""


@dataclass(frozen=True, eq=False)
class SentencePairs(PackableExamples):
    """The pairs of one epoch, as places in a corpus: `Examples` of the layout `[CLS] A [SEP] B [SEP]`."""

    corpus: TokenizedCorpus
    cls_id: int
    """Id of the token before A."""
    sep_id: int
    """Id of the token behind A and B."""
    first: np.ndarray
    """Where A begins and ends among the corpus's tokens (P, 2)."""
    second: np.ndarray
    """Where B begins and ends (P, 2)."""
    labels: np.ndarray
    """What is to be said of the pair, 0 or 1 (P,)."""
    left_out: Sequence[LeftOut]
    """Documents of one sentence."""

    @property
    def lengths(self) -> np.ndarray:
        return (self.first[:, 1] - self.first[:, 0]) + (self.second[:, 1] - self.second[:, 0]) + 3

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        a, b = slice(*self.first[index]), slice(*self.second[index])
        tokens, words = self.corpus.tokens, self.corpus.word_starts
        cls, sep = [self.cls_id], [self.sep_id]
        input_ids = np.concatenate([cls, tokens[a], sep, tokens[b], sep], dtype=np.int32)
        split = a.stop - a.start + 2
        return {
            "input_ids": input_ids,
            "token_type_ids": (np.arange(len(input_ids)) >= split).astype(np.int32),
            "word_starts": np.concatenate([[True], words[a], [True], words[b], [True]]),
            "next_sentence_label": int(self.labels[index]),
            "index": index,
        }

    def pack(self, indices: np.ndarray) -> PackedExamples:
        # as `__getitem__` defines each
        first, second = self.first[indices], self.second[indices]
        # [CLS] A [SEP] and B [SEP] are stretches of the corpus, longer than A and B by the special tokens.
        starts = np.stack([first[:, 0] - 1, second[:, 0]], axis=1).ravel()  # (2 P,)
        sizes = np.stack([first[:, 1] - first[:, 0] + 2, second[:, 1] - second[:, 0] + 1], axis=1).ravel()
        lengths, ends = sizes.reshape(-1, 2).sum(axis=1), sizes.cumsum()

        def take(values: np.ndarray, cls: int, sep: int) -> np.ndarray:
            taken = values.take(stretches(starts, sizes), mode="clip")
            taken[(ends - sizes)[::2]], taken[ends - 1] = cls, sep
            return taken

        makers = {
            "input_ids": lambda: Ragged(take(self.corpus.tokens, self.cls_id, self.sep_id), lengths),
            "word_starts": lambda: Ragged(take(self.corpus.word_starts, True, True), lengths),
            "token_type_ids": lambda: Ragged(np.repeat(np.arange(len(sizes)) % 2, sizes), lengths),
            "next_sentence_label": lambda: Ragged(self.labels[indices], np.ones_like(indices)),
        }
        return PackedExamples(self, indices, makers)


class SentencePairSource(ABC):
    """An `ExampleSource` of sentence pairs, drawn anew from (`seed`, epoch). Abstract: each kind pairs texts.

    Args:
        corpus: Documents of two sentences or more.
        tokenizer: Has [CLS] and [SEP].
        sequence_length: The most tokens of a pair, special ones included.
        seed: Seed of all draws.
        short_sequence_probability: Share of pairs that aim at a random, shorter length, so that the model
            meets such too.
    """

    name: ClassVar[str]
    """What is learned, as messages call it."""
    fewest_documents: ClassVar[int]
    """Documents of two sentences or more that it needs."""

    def __init__(
        self,
        corpus: TokenizedCorpus,
        tokenizer: PreTrainedTokenizerBase,
        sequence_length: int,
        seed: int,
        short_sequence_probability: float = 0.1,
    ):
        self.corpus = corpus
        self.cls_id = required_token_id(tokenizer, "cls", self.name)
        self.sep_id = required_token_id(tokenizer, "sep", self.name)
        self.budget = sequence_length - 3
        self.seed = seed
        self.short_sequence_probability = short_sequence_probability
        if self.budget < 2:
            raise ValueError(
                f"sequence_length is {sequence_length}, but [CLS] A [SEP] B [SEP] has 5 or more: raise it"
            )
        self.documents, self.left_out = documents_with_a_next_sentence(
            corpus, self.name, self.fewest_documents
        )

    def epoch(self, number: int) -> SentencePairs:
        """Draw the pairs of epoch `number`."""
        rng = np.random.default_rng([self.seed, number])
        offsets = self.corpus.sentence_offsets
        order = rng.permutation(len(self.documents))
        bounds = self.documents[order]
        blocks = np.flatnonzero(np.diff(np.diff(bounds).cumsum() // BLOCK)) + 1
        pieces = np.concatenate(
            [
                cut_documents(block, offsets, self.budget, self.short_sequence_probability, rng)
                for block in np.split(bounds, blocks)
            ]
        )  # (P, 2), into sentences
        start, stop = pieces.T
        split = start + 1 + (rng.random(len(start)) * (stop - start - 1)).astype(np.int64)
        first, second = offsets[np.stack([start, split], axis=1)], offsets[np.stack([split, stop], axis=1)]
        document = self.documents[:, 0].searchsorted(start, side="right")
        first, second, labels = self.pair(first, second, document, rng)
        ids = self.cls_id, self.sep_id
        return SentencePairs(self.corpus, *ids, first, second, labels, self.left_out)

    @abstractmethod
    def pair(
        self, first: np.ndarray, second: np.ndarray, document: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Make pairs of the two parts of some stretches, which fit into `budget` and have labels.

        Args:
            first: Where the first parts begin and end in the corpus (P, 2).
            second: The same of the second parts, which follow them.
            document: The documents that the stretches belong to (P,).
            rng: Draws what is random.

        Returns:
            A and B of each pair (P, 2), and its label (P,).
        """


class NextSentencePairs(SentencePairSource):
    """Pairs of which half have a second part of another document; see `SentencePairSource`."""

    name = "next-sentence prediction"
    fewest_documents = 2

    def pair(
        self, first: np.ndarray, second: np.ndarray, document: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


class SentenceOrderPairs(SentencePairSource):
    """Pairs of which half are swapped; see `SentencePairSource`."""

    name = "sentence-order prediction"
    fewest_documents = 1

    def pair(
        self, first: np.ndarray, second: np.ndarray, document: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # cut what is too long, and each part to its counterpart; then swap half of the pairs
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


def documents_with_a_next_sentence(
    corpus: TokenizedCorpus, name: str, fewest: int
) -> tuple[np.ndarray, tuple[LeftOut, ...]]:
    """Find documents of two sentences or more, as bounds among the sentences (D, 2); count those with one."""
    bounds = np.stack([corpus.document_offsets[:-1], corpus.document_offsets[1:]], axis=1)
    counts = bounds[:, 1] - bounds[:, 0]
    num_alone, num_longer = int((counts == 1).sum()), int((counts > 1).sum())
    share = float(np.diff(corpus.token_offsets)[counts == 1].sum() / max(corpus.num_tokens, 1))
    found = (
        f"{num_alone:,} of {num_alone + num_longer:,} documents ({share:.1%} of the tokens) have one sentence"
    )
    remedy = "put one sentence on a line and a blank line between documents"
    if num_longer < fewest or share > 0.5:
        raise ValueError(
            f"{name} needs at least {fewest} document(s) of two or more sentences, with most of the text, "
            f"but the corpus has {num_longer:,}, and {found}: {remedy}, or choose masked_language_modeling"
        )
    reason = f"have one sentence, so that no second segment follows, and are left out: {remedy}"
    tokens = np.diff(corpus.token_offsets)[counts > 0]
    return bounds[counts > 1], count_left_out("documents", tokens, counts[counts > 0] == 1, reason)


def coins(number: int, rng: np.random.Generator) -> np.ndarray:
    """Toss coins (n,), as many 0 as 1; a coin decides which is more frequent where `number` is odd."""
    return (rng.permutation(number) + rng.integers(2)) % 2


def shorten(first: np.ndarray, second: np.ndarray, budget: int, rng: np.random.Generator) -> None:
    """Cut both parts (P, 2) in place to `budget` tokens together, a token at a time from the longer one."""
    from_first, from_second = overlength(first[:, 1] - first[:, 0], second[:, 1] - second[:, 0], budget)
    cut(first, from_first, rng)
    cut(second, from_second, rng)


def overlength(a: np.ndarray, b: np.ndarray, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """Count what two parts of `a` and `b` tokens (P,) lose, until they have `budget` tokens together."""
    excess = np.maximum(a + b - budget, 0)
    from_longer = np.minimum(excess, np.abs(a - b))
    cut_a = np.where(a > b, from_longer, 0) + (excess - from_longer) // 2
    return cut_a, excess - cut_a


def cut(part: np.ndarray, excess: np.ndarray, rng: np.random.Generator) -> None:
    """Cut `excess` (P,) tokens off parts (P, 2) in place.

    Each comes off the front or the back by a coin, so that the model does not learn where texts are cut.
    """
    where = np.flatnonzero(excess)
    front = rng.binomial(excess[where], 0.5)
    part[where, 0] += front
    part[where, 1] -= excess[where] - front


def cut_documents(
    documents: np.ndarray,
    sentence_offsets: np.ndarray,
    budget: int,
    short_sequence_probability: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Cut documents, given as bounds among the sentences (D, 2), into stretches: their bounds (P, 2).

    A stretch reaches `budget` tokens or the end of its document; a share of `short_sequence_probability` aims
    at fewer, from 2 on, at random. It has two sentences or more, as a document must: a last one that would be
    left alone gets the one before it if that can be spared, and joins the stretch before it otherwise.
    """
    counts = documents[:, 1] - documents[:, 0]
    start, last = stretches(documents[:, 0], counts), documents[:, 1].repeat(counts)  # (S,)
    tokens = np.full(len(start), budget)
    is_short = rng.random(len(start)) < short_sequence_probability
    tokens[is_short] = rng.integers(2, budget + 1, size=is_short.sum())
    stop = sentence_offsets.searchsorted(sentence_offsets[start] + tokens)
    stop = np.minimum(np.maximum(stop, start + 2), last)
    leaves_one = np.flatnonzero(last - stop == 1)
    stop[leaves_one] += np.where(stop[leaves_one] - start[leaves_one] > 2, -1, 1)
    begins = follow(stop - start)
    return np.stack([start[begins], stop[begins]], axis=1)


def follow(sizes: np.ndarray) -> np.ndarray:
    """Go from 0 to the end by the step at each position (S,): the positions that are met (P,).

    >>> follow(np.array([2, 9, 1, 3, 9, 9])).tolist()
    [0, 2, 3]
    """
    met, position, end, steps = array("q"), 0, len(sizes), sizes.data
    while position < end:
        met.append(position)
        position += steps[position]
    return np.frombuffer(met, dtype=np.int64)


@dataclass(frozen=True)
class Partners:
    """With whom each stretch may trade its second part; every stretch is in a couple or a borrower."""

    couples: np.ndarray
    """Stretches that trade with each other (C, 2)."""
    borrowers: np.ndarray
    """Stretches for which no partner was left (Q,): all of one document."""
    lenders: np.ndarray
    """For each of these a stretch of another document, which keeps what it lends (Q,)."""


def find_partners(sizes: np.ndarray, documents: np.ndarray, rng: np.random.Generator) -> Partners:
    """Find partners of other documents, with second parts of about the same size.

    Args:
        sizes: Sizes of the second parts (P,), from 0 on.
        documents: To which the stretches belong (P,): two or more of them.
        rng: Orders those of equal size.
    """
    order, couples, alone = couple_strangers(sizes, documents, rng)
    others = order[documents[order] != documents[alone[0]]] if len(alone) else order
    low, high = (sizes[others].searchsorted(sizes[alone], side) for side in ("left", "right"))
    equal = (rng.random(len(alone)) * (high - low)).astype(np.int64)
    lenders = others[np.minimum(low + equal, len(others) - 1)]  # of equal size, or else the next larger one
    return Partners(couples, alone, lenders)


def couple_strangers(
    sizes: np.ndarray, groups: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Couple stretches of different groups that have about the same size.

    Args:
        sizes: Sizes of the stretches (P,), from 0 on.
        groups: To which they belong (P,).
        rng: Orders those of equal size.

    Returns:
        The stretches by size (P,); couples (C, 2); and those for which no partner was left, all of one group.
    """
    shuffled = rng.permutation(len(sizes))
    kind = np.min_scalar_type(int(sizes.max()))  # numpy sorts small types in linear time
    order = shuffled[sizes[shuffled].astype(kind).argsort(kind="stable")]
    neighbours = order[: len(order) // 2 * 2].reshape(-1, 2)
    are_strangers = groups[neighbours[:, 0]] != groups[neighbours[:, 1]]
    rest = np.concatenate([neighbours[~are_strangers].ravel(), order[len(order) // 2 * 2 :]])
    couples, alone = match_strangers(rest, groups)
    return order, np.concatenate([neighbours[are_strangers], couples]), alone


def match_strangers(stretches: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Match stretches of different documents, near ones first: couples (C, 2), and what is left (Q,).

    Those that wait for a stranger are always of one document, so what is left is, too.
    """
    matched, waiting, waiting_document = array("q"), array("q"), -1
    for stretch, document in zip(stretches.tolist(), documents[stretches].tolist(), strict=True):
        if waiting and document != waiting_document:
            matched.extend((waiting.pop(), stretch))
        else:
            waiting.append(stretch)
            waiting_document = document
    return np.array(matched, dtype=np.int64).reshape(-1, 2), np.array(waiting, dtype=np.int64)
