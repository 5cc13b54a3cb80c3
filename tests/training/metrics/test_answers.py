"""Scores of answers, against SQuAD's definition spelled out, but for answers of articles and signs only."""

from collections import Counter

import numpy as np
import pytest

from tercet.training.metrics.answers import answer_scores, normalize, words_of

WORDS = ["the", "a", "An", "cat", "cat,", "Cat", "sat", "it's", "U.S.", "—", "'", "theme", ""]


def slow_normalize(text: str) -> list[str]:
    """Take words as SQuAD does, one rule after the other."""
    kept = "".join(c for c in text.lower() if c not in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def slow_scores(found: str, right: list[str]) -> tuple[float, float]:
    """Score one answer: exact match and F1, the maximum over the right ones."""
    best = (0.0, 0.0)
    for answer in [text for text in right if text.strip()] or [""]:
        said, there = slow_normalize(found), slow_normalize(answer)
        if answer.strip() and not there:
            said, there = [found.strip()], [answer.strip()]
        common = sum((Counter(said) & Counter(there)).values())
        if not said or not there:
            f1 = float(said == there)
        elif not common:
            f1 = 0.0
        else:
            precision, recall = common / len(said), common / len(there)
            f1 = 2 * precision * recall / (precision + recall)
        best = max(best[0], float(said == there)), max(best[1], f1)
    return best


def draw(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, size=rng.integers(0, 5)))


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    found = [draw(rng) for _ in range(200)]
    references = [[draw(rng) for _ in range(rng.integers(0, 4))] for _ in found]
    expected = np.array([slow_scores(*pair) for pair in zip(found, references, strict=True)])
    has_answer = np.array([bool(right) for right in references])
    scores = answer_scores(found, references)
    assert [scores["exact_match"], scores["f1"]] == pytest.approx(expected.mean(axis=0))
    for part, rows in (("has_answer", has_answer), ("no_answer", ~has_answer)):
        parts = [scores[f"{part}_exact_match"], scores[f"{part}_f1"]]
        assert parts == pytest.approx(expected[rows].mean(axis=0))
    assert 0 < scores["exact_match"] < scores["f1"] < 1


@pytest.mark.parametrize(
    ("found", "right", "exact_match", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1, 1),
        ("in the Eiffel Tower", ["eiffel tower", "Paris"], 0, 0.8),
        ("Paris", ["eiffel tower"], 0, 0),
        ("", [], 1, 1),
        ("the", [], 1, 1),
        ("?", ["-"], 0, 0),
        (" A\n", ["A"], 1, 1),
        ("", [" "], 1, 1),
        ("北京市", ["北京"], 0, 0.8),
        ("\u300a北京\u300b\u3002", ["北京"], 1, 1),
        ("\uff08Tower\uff09\uff1f", ["tower"], 1, 1),
        ("\u3002", ["\uff01"], 0, 0),
    ],
)
def test_examples(found, right, exact_match, f1):
    assert answer_scores([found], [right]) == pytest.approx({"exact_match": exact_match, "f1": f1})


def test_split_scores_appear_where_there_are_both():
    assert set(answer_scores(["a", "b"], [["x"], ["y"]])) == {"exact_match", "f1"}
    assert set(answer_scores(["a", "b"], [[], []])) == {"exact_match", "f1"}
    assert answer_scores(["x", "", "y"], [["x"], [], []]) == pytest.approx({
        "exact_match": 2 / 3, "f1": 2 / 3, "has_answer_exact_match": 1, "has_answer_f1": 1,
        "no_answer_exact_match": 0.5, "no_answer_f1": 0.5,
    })  # fmt: skip


def test_what_does_not_count():
    assert normalize("\tA  theme, an ANT\n the-end ") == "theme ant theend"
    assert words_of("the 北京 2008") == ["北", "京", "2008"]
