"""Cut documents into stretches of sentences, and find for each a stretch of another document to trade with.

    document 7   | s1 s2 s3 . s4 s5 | s6 . s7 s8 |        stretches, each with a split (.) into A and B
    document 9   | s1 . s2 s3 s4 s5 s6 |

Two stretches of different documents whose second parts are about equally long are a couple: they may trade
these parts. `next_sentence.py` tosses the coin. (`sentence_order.py` couples stretches in another way.)

Legend: D documents, S their sentences, P stretches, C couples, Q stretches that only borrow.
"""

from array import array
from dataclasses import dataclass

import numpy as np

from ..training.packing import stretches as positions_of


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
    start, last = positions_of(documents[:, 0], counts), documents[:, 1].repeat(counts)  # (S,)
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
        sizes: Of the second parts (P,), from 0 on.
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
        sizes: Of the stretches (P,), from 0 on.
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
