"""The page of decisions stays short enough to be read before a change."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "decisions.md"
MOST_ENTRIES = 60
MOST_WORDS = 80

ENTRIES = re.findall(r"^### (.+)\n((?:(?!##).*\n)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
"""Heading and text of each entry."""


def test_the_page_has_few_entries():
    assert 0 < len(ENTRIES) <= MOST_ENTRIES


def test_entries_are_short_and_have_a_text():
    for heading, text in ENTRIES:
        assert 0 < len(text.split()) <= MOST_WORDS, heading
