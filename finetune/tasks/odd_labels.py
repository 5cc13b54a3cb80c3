"""Labels that may be mistyped: each would be learned as one more label, and nothing else would say so.

A label is odd if few rows have it, or if it is nearly one that many have: in another case, with other blanks
or of other width, or with one letter more, less or changed.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable

from ...data.files.bad_rows import Places
from ...data.files.columns import plain

LEAST_ROWS, LEAST_SHARE = 3, 0.005
"""Fewer rows than either of a label are few."""

LEAST_LETTERS = 4
"""Of labels that one letter may tell apart by mistake."""

TIMES = 10
"""How often a label is there for each time of one that is mistaken for it by a letter."""

MOST_SHOWN = 8
"""Labels that are listed."""


def describe_odd_labels(found: Iterable[tuple[int, str]], places: Places) -> str:
    """List odd labels in a line, with how many rows have them and where the first one stands."""
    rows = dict.fromkeys(found)
    counts = Counter(label for _, label in rows)
    first = {label: row for row, label in reversed(rows)}
    few = max(LEAST_ROWS, LEAST_SHARE * len(places))
    keys = {label: folded(label) for label in counts}
    odd = []
    for label, count in sorted(counts.items(), key=lambda each: (each[1], each[0])):
        alike = [
            other
            for other, number in counts.items()
            if number > count and number >= few
            if keys[other] == keys[label]
            or (number >= TIMES * count and is_one_letter_off(keys[other], keys[label]))
        ]
        if alike or count < few:
            nearly = f"; nearly {alike[0]!r} in {counts[alike[0]]:,}" if alike else ""
            odd.append(f"{label!r} in {count:,} (first {places[first[label]]}{nearly})")
    return ", ".join(odd[:MOST_SHOWN]) + (f", and {len(odd) - MOST_SHOWN:,} more" if odd[MOST_SHOWN:] else "")


def folded(label: str) -> str:
    """Write a label without what its case, blanks and width tell.

    >>> folded("Posi tive"), folded("\uff21")
    ('positive', 'a')
    """
    return "".join(unicodedata.normalize("NFKC", plain(label)).casefold().split())


def is_one_letter_off(one: str, two: str) -> bool:
    """Return whether two words are the same but for a letter more, less or changed; figures are no letters.

    >>> [is_one_letter_off("positive", word) for word in ("positve", "pozitive", "positivity", "negative")]
    [True, True, False, False]
    >>> is_one_letter_off("class1", "class2")
    False
    """
    if min(len(one), len(two)) < LEAST_LETTERS:
        return False
    at = next(
        (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )
    are_letters = (one[at : at + 1] + two[at : at + 1]).isalpha()
    return are_letters and (one[at + 1 :] in (two[at:], two[at + 1 :]) or one[at:] == two[at + 1 :])
