"""Spans of tags, against the shared tasks' rule asked of every stretch of words."""

import numpy as np
import pytest

from tercet.training.metrics.labels import LabelRow
from tercet.training.metrics.spans import check_iob2, span_scores, span_table, spans_of

TAGS = ["O", "B-A", "I-A", "B-B", "I-B"]


def slow_spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """Ask of every stretch of words and every type whether it is a span."""
    around = ["O", *tags, "O"]
    found = set()
    for kind in ("A", "B"):
        for begin in range(1, len(tags) + 1):
            for end in range(begin + 1, len(tags) + 2):
                first, rest = around[begin], around[begin + 1 : end]
                begins = first == f"B-{kind}" or (
                    first == f"I-{kind}" and around[begin - 1] not in (f"B-{kind}", f"I-{kind}")
                )
                goes_on = all(tag == f"I-{kind}" for tag in rest)
                stops = around[end] != f"I-{kind}"
                if begins and goes_on and stops:
                    found.add((kind, begin - 1, end - 1))
    return found


def draw_tags(rng: np.random.Generator, num_rows: int = 40) -> list[list[str]]:
    """Draw rows of tags that obey no rule."""
    return [list(rng.choice(TAGS, size=rng.integers(1, 12))) for _ in range(num_rows)]


def obedient(tags: list[str]) -> list[str]:
    """Let every span begin with B-X."""
    begins = {begin: kind for kind, begin, _ in spans_of(tags)}
    return [f"B-{begins[i]}" if i in begins else tag for i, tag in enumerate(tags)]


@pytest.mark.parametrize("seed", range(5))
def test_spans_are_the_stretches_that_the_rule_allows(seed):
    for tags in draw_tags(np.random.default_rng(seed)):
        assert spans_of(tags) == slow_spans(tags)


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ([], set()),
        (["B-A", "strange", "I-A"], {("A", 0, 1), ("A", 2, 3)}),
        (["B-A-B", "I-A-B"], {("A-B", 0, 2)}),
    ],
)
def test_spans_of_other_tags_and_of_names_with_signs(tags, spans):
    assert spans_of(tags) == spans


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_ratios_of_counted_spans(seed):
    rng = np.random.default_rng(seed)
    references = draw_tags(rng)
    found = [[tag if rng.random() < 0.7 else str(rng.choice(TAGS)) for tag in row] for row in references]
    there = {(row, *span) for row, tags in enumerate(references) for span in slow_spans(tags)}
    said = {(row, *span) for row, tags in enumerate(found) for span in slow_spans(tags)}
    scores = span_scores(found, references)
    precision, recall = len(there & said) / len(said), len(there & said) / len(there)
    assert 0 < precision < 1
    assert scores["span_precision"] == precision
    assert scores["span_recall"] == recall
    assert scores["span_f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    pairs = [pair for rows in zip(found, references, strict=True) for pair in zip(*rows, strict=True)]
    assert scores["accuracy"] == np.mean([a == b for a, b in pairs])
    table = span_table(found, references)
    assert [row.label for row in table] == ["A", "B"]
    assert sum(row.support for row in table) == len(there)
    assert sum(row.recall * row.support for row in table) == pytest.approx(len(there & said))


def test_extremes():
    right, nothing = [["B-A", "I-A", "O"]], [["O", "O", "O"]]
    assert set(span_scores(right, right).values()) == {1.0}
    none_found = {"span_f1": 0.0, "span_precision": 0.0, "span_recall": 0.0}
    assert span_scores(nothing, right) == {**none_found, "accuracy": 1 / 3}
    assert span_scores(right, nothing) == {**none_found, "accuracy": 1 / 3}
    assert span_scores(nothing, nothing) == {**none_found, "accuracy": 1.0}
    assert span_table(right, nothing) == [LabelRow("A", 0.0, 0.0, 0.0, 0)]
    assert span_table(nothing, nothing) == []


def test_rows_have_as_many_tags_as_words():
    with pytest.raises(ValueError, match="row 2 has 1 predicted tags for 2 words: give one for each"):
        span_scores([["O"], ["O"]], [["O"], ["O", "O"]])


def test_tags_that_keep_the_rules_pass():
    for tags in draw_tags(np.random.default_rng(0)):
        check_iob2(obedient(tags))
    check_iob2([])


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["I-A"], "has the tag 'I-A' at word 1, which continues no span, because .*'O': write B-A"),
        (["O", "B-A", "I-B"], "has the tag 'I-B' at word 3, .*because .*'B-A': write B-B"),
        (["O", "A"], "has the tag 'A' at word 2, which is none of O, B-X and I-X"),
        (["B-"], "'B-' at word 1, which is none of O, B-X and I-X"),
        (["O", "S-A"], "'S-A' at word 2"),
    ],
)
def test_tags_that_break_the_rules_are_named(tags, message):
    with pytest.raises(ValueError, match=message):
        check_iob2(tags)
