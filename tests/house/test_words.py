"""The documentation stays short: bounds that may only fall."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def words(page: Path) -> int:
    """Count what stands between white space, marks of tables included."""
    return len(page.read_text(encoding="utf-8").split())


def test_the_readme_is_short():
    assert words(ROOT / "README.md") <= 900
