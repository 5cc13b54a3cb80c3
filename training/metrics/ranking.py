"""Scores of a search: how high the documents that belong to a query stand among all.

Documents of equal similarity are ranked against the model, those that do not belong to the query first: a
model that gives one vector to all texts ranks as badly as can be, and not by the order of the documents.

Legend: Q queries, D documents.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

Relevant = AbstractSet[int] | Mapping[int, float]
"""The documents that belong to a query, perhaps each with a grade above 0; without grades all have 1."""


def ranking_scores(similarities: np.ndarray, relevant: Sequence[Relevant]) -> dict[str, float]:
    """Score a search: `mrr`, `ndcg@10`, `recall@1`, `recall@10` and `map`, means over the queries.

    Args:
        similarities: Similarities of every query with every document, (Q, D).
        relevant: What belongs to each query.
    """
    return {name: float(values.mean()) for name, values in query_scores(similarities, relevant).items()}


def query_scores(similarities: np.ndarray, relevant: Sequence[Relevant]) -> dict[str, np.ndarray]:
    """Score each query of a search, (Q,)."""
    grades = ranked_grades(similarities, relevant)
    return {
        "mrr": reciprocal_rank(grades),
        "ndcg@10": normalized_gain(grades, 10),
        "recall@1": recall(grades, 1),
        "recall@10": recall(grades, 10),
        "map": average_precision(grades),
    }


def ranked_grades(similarities: np.ndarray, relevant: Sequence[Relevant]) -> np.ndarray:
    """Return the grades of each query's documents, the most similar first, (Q, D); other documents have 0."""
    grades = np.zeros(similarities.shape)
    for query, (row, documents) in enumerate(zip(grades, relevant, strict=True), start=1):
        graded = documents if isinstance(documents, Mapping) else dict.fromkeys(documents, 1.0)
        if not any(grade > 0 for grade in graded.values()):
            raise ValueError(f"no document belongs to query {query}: name one, or leave the query out")
        row[list(graded)] = list(graded.values())
    order = np.lexsort((grades, -similarities))
    return np.take_along_axis(grades, order, axis=1)


def reciprocal_rank(grades: np.ndarray) -> np.ndarray:
    """Return one over the rank of the first relevant document (Voorhees, 1999), from ranked grades (Q, D)."""
    return 1 / (1 + (grades > 0).argmax(axis=1))


def normalized_gain(grades: np.ndarray, depth: int) -> np.ndarray:
    """Return the gain of the first documents over the best possible one, from ranked grades (Q, D).

    The gain is the sum of the grades, each over the binary logarithm of its rank plus one (Järvelin and
    Kekäläinen, 2002).
    """
    discounts = 1 / np.log2(np.arange(2, 2 + min(depth, grades.shape[1])))
    best = -np.sort(-grades, axis=1)
    return (grades[:, :depth] @ discounts) / (best[:, :depth] @ discounts)


def recall(grades: np.ndarray, depth: int) -> np.ndarray:
    """Return the share of the relevant documents that stand among the first, from ranked grades (Q, D)."""
    is_relevant = grades > 0
    return is_relevant[:, :depth].sum(axis=1) / is_relevant.sum(axis=1)


def average_precision(grades: np.ndarray) -> np.ndarray:
    """Return the precision down to each relevant document, its mean over these, from ranked grades (Q, D)."""
    is_relevant = grades > 0
    precision = is_relevant.cumsum(axis=1) / np.arange(1, 1 + grades.shape[1])
    return (precision * is_relevant).sum(axis=1) / is_relevant.sum(axis=1)
