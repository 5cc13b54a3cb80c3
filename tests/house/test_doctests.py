"""The examples in docstrings run and print what they say.

pytest's own --doctest-modules imports files by their path, which the mapping of folders below one import root
does not allow: this imports the modules by their real names.
"""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BESIDE_THE_PACKAGE = [ROOT / "docs" / "site", ROOT / "lab" / "studies"]
FOLDERS = [folder for folder in ROOT.iterdir() if (folder / "__init__.py").exists()] + BESIDE_THE_PACKAGE
SOURCES = [path for folder in FOLDERS for path in folder.rglob("*.py")]
OF_THEIR_OWN = {"tercet", "docs", "lab"}
"""Folders that are no subpackage of `tercet`."""
WITH_EXAMPLES = sorted(path for path in SOURCES if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_print_what_they_say(path: Path) -> None:
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    module = import_module(".".join(parts if parts[0] in OF_THEIR_OWN else ["tercet", *parts]))
    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0
