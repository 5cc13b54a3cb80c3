"""The register names what exists, and leaves out no item."""

import re
from pathlib import Path

import pytest

from lab.studies.study import all_studies

ROOT = Path(__file__).parents[3]
REGISTER = ROOT / "docs" / "studies" / "register.md"
ROWS = {
    item: (text, settled)
    for item, text, settled in re.findall(
        r"^\| ([A-Z]\d+) (.*) \| ([^|]+) \|$", REGISTER.read_text(encoding="utf-8"), re.MULTILINE
    )
}
COUNTS = {"A": 19, "P": 10, "B": 13, "M": 15, "C": 10, "Z": 12}
STUDIES = all_studies()


def slug(heading: str) -> str:
    """Name the anchor of a heading as the site does."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def test_every_item_is_there_once():
    assert [*ROWS] == [
        f"{group}{number}" for group, count in COUNTS.items() for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("item", ROWS)
def test_what_settles_an_item_exists(item):
    settled = ROWS[item][1]
    studies = re.findall(r"study `([\w-]+)`", settled)
    tests = re.findall(r"test `([\w/]+\.py)::(\w+)`", settled)
    pages = re.findall(r"\]\(\.\./([\w/.-]+?\.md)(?:#([\w-]+))?\)", settled)
    assert studies or tests or pages or settled.startswith("open")
    assert set(studies) <= set(STUDIES)
    for file, name in tests:
        assert re.search(
            rf"^def {name}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE
        ), name
    for page, anchor in pages:
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in map(slug, headings), anchor


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_named_by_the_items_it_serves(name):
    for item in STUDIES[name].items:
        assert f"study `{name}`" in ROWS[item][1], item
