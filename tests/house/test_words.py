"""The documentation stays short: bounds that may only fall."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
EVIDENCE = ("decisions", "performance", "results", "scaling", "studies/")
"""How the paths of pages begin that hold what was measured; all others are guides."""


def words(page: Path) -> int:
    """Count what stands between white space, marks of tables included."""
    return len(page.read_text(encoding="utf-8").split())


def test_the_readme_is_short():
    assert words(ROOT / "README.md") <= 900


def test_the_documentation_is_short():
    guides = [page for page in PAGES if not page.relative_to(ROOT / "docs").as_posix().startswith(EVIDENCE)]
    assert sum(map(words, guides)) <= 30_000
    assert sum(map(words, PAGES)) <= 48_600
