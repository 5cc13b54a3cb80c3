"""Scores of spans in tagged words: B-X begins a span of type X, I-X continues it, O is outside (IOB2).

A span counts as found if its type, beginning and end are right, and all spans of all rows count alike. This
is the measure of the CoNLL shared tasks (Tjong Kim Sang and De Meulder, 2003).
"""

from collections import Counter
from collections.abc import Sequence

from .labels import LabelRow

OUTSIDE = "O"
"""The tag of a word in no span."""

BEGINNING, INSIDE = "B-", "I-"
"""What stands before a span's type."""

Span = tuple[str, int, int]
"""Its type, the index of its first word, and that behind its last."""


def spans_of(tags: Sequence[str]) -> set[Span]:
    """Read the spans of a row.

    Predictions may break the rules, and are read as in the shared tasks: an I-X that continues nothing begins
    a span, and a tag of no known form is outside.

    >>> sorted(spans_of(["B-PER", "I-PER", "O", "I-LOC"]))
    [('LOC', 3, 4), ('PER', 0, 2)]
    """
    spans = set()
    begin = 0
    for position, (before, tag) in enumerate(zip([OUTSIDE, *tags], [*tags, OUTSIDE], strict=True)):
        if not continues(before, tag):
            if is_inside(before):
                spans.add((before[2:], begin, position))
            begin = position
    return spans


def is_inside(tag: str) -> bool:
    return tag.startswith((BEGINNING, INSIDE))


def continues(before: str, tag: str) -> bool:
    """Return whether a word with `tag` is in the span that the word before it, with tag `before`, is in."""
    return is_inside(before) and tag == INSIDE + before[2:]


def as_iob2(tags: Sequence[str]) -> list[str]:
    """Write B-X for each I-X that continues no span, and leave all else: the spans are those of `spans_of`.

    This converts IOB1 (Ramshaw and Marcus, 1995), where B-X only separates spans that touch.

    >>> as_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC']
    """
    pairs = zip([OUTSIDE, *tags], tags, strict=False)
    return [
        BEGINNING + tag[len(INSIDE) :] if tag.startswith(INSIDE) and not continues(before, tag) else tag
        for before, tag in pairs
    ]


def check_iob2(tags: Sequence[str]) -> None:
    """Make sure that the tags of a row keep the rules.

    Raises:
        ValueError: A tag is of another form, or an I-X continues nothing.
    """
    for word, (before, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False), start=1):
        place = f"has the tag {tag!r} at word {word}"
        if tag != OUTSIDE and not (is_inside(tag) and len(tag) > 2):
            raise ValueError(
                f"{place}, which is none of O, B-X and I-X: correct it, or set task.scheme = none"
            )
        if tag.startswith(INSIDE) and not continues(before, tag):
            raise ValueError(
                f"{place}, which continues no span, because the tag before it is {before!r}: write "
                f"{BEGINNING + tag[2:]}, with which a span begins, or set task.scheme = none"
            )


def span_scores(found: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Score the tags of rows.

    Returns:
        `span_f1`, `span_precision`, `span_recall`, and `accuracy`, the share of words whose tag is right;
        each is 0 where there is nothing to count.
    """
    hits, num_found, num_there = (counts.total() for counts in count_spans(found, references))
    words = [pair for row in zip(found, references, strict=True) for pair in zip(*row, strict=True)]
    precision, recall, f1 = ratios(hits, num_found, num_there)
    return {
        "span_f1": f1,
        "span_precision": precision,
        "span_recall": recall,
        "accuracy": ratio(sum(tag == reference for tag, reference in words), len(words)),
    }


def span_table(found: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> list[LabelRow]:
    """Score each type of span on its own, in the order of the alphabet."""
    hits, num_found, num_there = count_spans(found, references)
    return [
        LabelRow(kind, *ratios(hits[kind], num_found[kind], num_there[kind]), num_there[kind])
        for kind in sorted(num_found | num_there)
    ]


def count_spans(
    found: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count the spans of each type: those that were found and are there, those found, those there."""
    hits, num_found, num_there = Counter(), Counter(), Counter()
    for row, (tags, right_tags) in enumerate(zip(found, references, strict=True)):
        if len(tags) != len(right_tags):
            raise ValueError(
                f"row {row + 1} has {len(tags)} predicted tags for {len(right_tags)} words: give one for each"
            )
        spans, right_spans = spans_of(tags), spans_of(right_tags)
        for counter, counted in ((hits, spans & right_spans), (num_found, spans), (num_there, right_spans)):
            counter.update(kind for kind, _, _ in counted)
    return hits, num_found, num_there


def row_counts(found: Sequence[str], reference: Sequence[str]) -> tuple[int, int, int, int]:
    """Count twice the hits and all spans of both sides, the right words and all words of a row."""
    spans, right_spans = spans_of(found), spans_of(reference)
    right_words = sum(tag == right for tag, right in zip(found, reference, strict=True))
    return 2 * len(spans & right_spans), len(spans) + len(right_spans), right_words, len(reference)


def ratios(hits: int, num_found: int, num_there: int) -> tuple[float, float, float]:
    """Return precision, recall and F1."""
    return ratio(hits, num_found), ratio(hits, num_there), ratio(2 * hits, num_found + num_there)


def ratio(part: int, whole: int) -> float:
    """Divide; nothing of nothing is 0."""
    return part / whole if whole else 0.0
