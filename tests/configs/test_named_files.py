"""What a recipe may call a file."""

from pathlib import Path

import pytest

from tercet.configs.named_files import named_path


def test_home_is_found_and_what_is_missing_may_be_named():
    assert named_path("~/runs", "output") == Path.home() / "runs"
    assert named_path("nowhere/at/all.txt", "corpus") == Path("nowhere/at/all.txt")


@pytest.mark.parametrize("name", ["", " ", "~nobody-of-that-name/x", "x" * 300, "a\0b"])
def test_what_nothing_can_be_called_is_refused(name):
    with pytest.raises(ValueError, match=r"^output is .*(choose another|current folder)$"):
        named_path(name, "output")
