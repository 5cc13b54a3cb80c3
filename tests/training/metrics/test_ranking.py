"""Scores of searches are scikit-learn's where nothing is tied, and those of the worst order where it is."""

from itertools import permutations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

from tercet.training.metrics.ranking import query_scores, ranking_scores


def draw(seed: int, num_documents: int) -> tuple[np.ndarray, list[dict[int, float]], np.ndarray]:
    """Draw similarities, and grades as dictionaries and as a table."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 4, size=(20, num_documents)) * (rng.random((20, num_documents)) < 0.3)
    table[:, 0] = 1
    graded = [{int(i): float(row[i]) for i in np.flatnonzero(row)} for row in table]
    return rng.normal(size=table.shape) + 0.3 * table, graded, table


def slow_recall(similarities: np.ndarray, relevant: set[int], depth: int) -> float:
    """Look the first documents up."""
    first = sorted(range(len(similarities)), key=lambda document: -similarities[document])[:depth]
    return len(relevant.intersection(first)) / len(relevant)


@pytest.mark.parametrize("num_documents", [1, 4, 10, 40])
@pytest.mark.parametrize("is_graded", [False, True])
def test_scores_are_those_of_scikit_learn(num_documents, is_graded):
    similarities, graded, table = draw(0, num_documents)
    relevant = graded if is_graded else [set(grades) for grades in graded]
    table = table if is_graded else (table > 0).astype(int)
    scores = query_scores(similarities, relevant)
    for query, grades in enumerate(graded):
        row = similarities[query]
        ranks = [1 + (row > row[document]).sum() for document in grades]
        assert scores["mrr"][query] == 1 / min(ranks)
        assert scores["recall@1"][query] == slow_recall(row, set(grades), 1)
        assert scores["recall@10"][query] == slow_recall(row, set(grades), 10)
        expected = average_precision_score(table[query] > 0, row)
        assert scores["map"][query] == pytest.approx(expected)
    if num_documents > 1:  # scikit-learn has no opinion on one document
        assert scores["ndcg@10"].mean() == pytest.approx(ndcg_score(table, similarities, k=10))
    means = ranking_scores(similarities, relevant)
    assert means == pytest.approx({name: values.mean() for name, values in scores.items()})


@pytest.mark.parametrize("seed", range(4))
def test_ties_are_ranked_as_the_worst_of_all_orders(seed):
    rng = np.random.default_rng(seed)
    similarities = rng.integers(0, 2, size=(1, 5)).astype(float)
    grades = {0: 1.0, 3: 2.0}
    scores = query_scores(similarities, [grades])
    # Breaking the ties in every possible way covers every order that the similarities allow.
    orders = [similarities + 1e-3 * np.array([order]) for order in permutations(range(5))]
    every = [query_scores(each, [grades]) for each in orders]
    for name, values in scores.items():
        assert values[0] == pytest.approx(min(other[name][0] for other in every))


@pytest.mark.parametrize("nothing", [set(), {}, {1: 0.0}])
def test_query_without_documents_is_refused(nothing):
    with pytest.raises(ValueError, match="no document belongs to query 2: name one, or leave the query out"):
        ranking_scores(np.eye(2), [{0}, nothing])
