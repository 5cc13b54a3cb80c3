"""Docstrings stand where a reader needs one: on public functions of more than three lines."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(
    file.parent for file in ROOT.glob("*/__init__.py") if file.parent.name not in ("tests", "lab", "docs")
)
MOST_LINES_WITHOUT = 3


def lines_of(function: ast.FunctionDef) -> int:
    """Count the lines of a body."""
    return (function.body[-1].end_lineno or 0) - function.body[0].lineno + 1


def test_functions_of_modules_say_what_they_do():
    for file in (each for folder in FOLDERS for each in folder.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                is_said = lines_of(node) <= MOST_LINES_WITHOUT or ast.get_docstring(node)
                assert is_said, f"{file.relative_to(ROOT)}: {node.name}"
