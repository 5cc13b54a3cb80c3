"""The page of decisions stays short enough to be read before a change."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "decisions.md"
MOST_ENTRIES = 60
MOST_WORDS = 80

ENTRIES = re.findall(r"^### (.+)\n((?:(?!##).*\n)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
"""Heading and text of each entry."""


def test_the_page_has_few_entries():
    assert 0 < len(ENTRIES) <= MOST_ENTRIES


@pytest.mark.parametrize(("heading", "text"), ENTRIES, ids=[heading for heading, _ in ENTRIES])
def test_an_entry_is_short_and_has_a_text(heading, text):
    assert 0 < len(text.split()) <= MOST_WORDS
