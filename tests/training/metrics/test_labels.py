"""Scores of labels are scikit-learn's."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from tercet.training.metrics.labels import (
    LabelRow,
    count_confusions,
    label_scores,
    label_table,
    set_scores,
)


def draw(seed: int, num_labels: int, num_examples: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities and references that agree more often than by chance."""
    rng = np.random.default_rng(seed)
    references = rng.integers(num_labels, size=num_examples)
    logits = rng.normal(size=(num_examples, num_labels)) + np.eye(num_labels)[references]
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), references


@pytest.mark.parametrize("num_labels", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_label_scores_are_those_of_scikit_learn(num_labels, seed):
    probabilities, references = draw(seed, num_labels)
    found = probabilities.argmax(axis=1)
    scores = label_scores(found, probabilities, references)
    assert scores["accuracy"] == sklearn_metrics.accuracy_score(references, found)
    assert scores["f1_macro"] == sklearn_metrics.f1_score(references, found, average="macro")
    assert scores["matthews_correlation"] == sklearn_metrics.matthews_corrcoef(references, found)
    assert ("f1" in scores) == (num_labels == 2)
    if num_labels == 2:
        assert scores["f1"] == sklearn_metrics.f1_score(references, found)
    assert all(type(score) is float for score in scores.values())


@pytest.mark.parametrize(("found", "right"), [(0, 0), (1, 1), (0, 1), (1, 0)])
@pytest.mark.filterwarnings("error")
def test_one_label_only_has_scores(found, right):
    scores = label_scores(np.full(5, found), np.eye(2)[[found] * 5], np.full(5, right))
    assert scores["accuracy"] == float(found == right)
    assert scores["f1"] == float(found == right == 1)
    assert scores["f1_macro"] == float(found == right)
    assert scores["matthews_correlation"] == 0
    assert scores["calibration_error"] == float(found != right)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.filterwarnings("error")
def test_set_scores_are_those_of_scikit_learn(share):
    rng = np.random.default_rng(0)
    found, references = (rng.random((2, 60, 5)) < [[[share]], [[0.3]]]).astype(int)
    scores = set_scores(found, references)
    for average in ("micro", "macro"):
        expected = sklearn_metrics.f1_score(references, found, average=average, zero_division=0)
        assert scores[f"f1_{average}"] == expected
    assert scores["accuracy"] == np.mean([(a == b).all() for a, b in zip(found, references, strict=True)])


def test_macro_f1_counts_the_same_labels_of_one_label_and_of_sets_of_one():
    """Of six labels two occur nowhere, and one is found that is nowhere right."""
    references, found = np.array([0, 1, 2, 2, 0, 1]), np.array([0, 1, 2, 3, 0, 2])
    alone = label_scores(found, np.eye(6)[found], references)["f1_macro"]
    sets = set_scores(np.eye(6, dtype=int)[found], np.eye(6, dtype=int)[references])["f1_macro"]
    assert alone == sets == pytest.approx((1 + 2 / 3 + 0.5 + 0) / 4)


@pytest.mark.parametrize("is_multi_label", [False, True])
def test_table_says_of_each_label_what_scikit_learn_says(is_multi_label):
    probabilities, references = draw(0, 4)
    found = probabilities.argmax(axis=1)
    if is_multi_label:
        found, references = np.eye(4, dtype=int)[found], np.eye(4, dtype=int)[references]
    report = sklearn_metrics.classification_report(references, found, output_dict=True)
    for name, row in zip("abcd", label_table(found, references, list("abcd")), strict=True):
        expected = report[str("abcd".index(name))]
        assert row.label == name
        assert row.support == expected["support"]
        assert (row.precision, row.recall, row.f1) == pytest.approx(
            (expected["precision"], expected["recall"], expected["f1-score"])
        )


@pytest.mark.filterwarnings("error")
def test_table_and_confusions_have_labels_that_never_occur():
    found, references = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert label_table(found, references, ["a", "b", "c"])[2] == LabelRow("c", 0.0, 0.0, 0.0, 0)
    assert count_confusions(found, references, 3).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]


def test_one_label_is_scored_as_the_label_that_it_is_of_two():
    draw = np.random.default_rng(0)
    found, references = draw.integers(0, 2, (2, 50, 1))
    two = label_scores(found[:, 0], np.eye(2)[found[:, 0]], references[:, 0])
    scores = set_scores(found, references)
    assert scores["f1_micro"] == scores["f1_macro"] == two["f1"]
    assert scores["accuracy"] == two["accuracy"]
    assert label_table(found, references, ["a"])[0].f1 == two["f1"]


def test_a_tie_of_rounded_probabilities_was_decided_before():
    scores = label_scores(np.array([1]), np.array([[0.5, 0.5]]), np.array([1]))
    assert (scores["accuracy"], scores["f1"]) == (1, 1)
