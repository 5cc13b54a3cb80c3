"""AGENTS.md stays short, and what it names is there; tests/house/test_readme.py tests links and commands."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "AGENTS.md").read_text(encoding="utf-8")


def test_the_page_has_forty_lines_at_most():
    assert len(PAGE.splitlines()) <= 40


def test_files_and_folders_that_are_named_exist():
    named = re.findall(
        r"(?<![\w./])((?:[\w-]+/)*[\w.-]+\.(?:py|md|txt|toml|lock|yml)|[a-z]+/)(?=[`\s])", PAGE
    )
    assert {"tests/training/test_loop.py", "configs/", "uv.lock"} <= set(named)
    assert [name for name in named if not name.startswith("site/") and not (ROOT / name).exists()] == []


def test_limits_are_those_that_are_tested():
    rules = (ROOT / "tests" / "house" / "test_architecture.py").read_text(encoding="utf-8")
    limits = re.findall(r"at most (\d+)", PAGE)
    assert limits == re.findall(r"(?:<=|lineno <) (\d+)\b", rules)
