"""Docstrings stand where readers need one: on public functions of more than three lines, not on overrides."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(
    file.parent for file in ROOT.glob("*/__init__.py") if file.parent.name not in ("tests", "lab", "docs")
)
MOST_LINES_WITHOUT = 3

MODULES = {
    file: ast.parse(file.read_text(encoding="utf-8")) for folder in FOLDERS for file in folder.rglob("*.py")
}
CLASSES = {
    node.name: node for tree in MODULES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
}


def lines_of(function: ast.FunctionDef) -> int:
    """Count the lines of a body."""
    return (function.body[-1].end_lineno or 0) - function.body[0].lineno + 1


def bases_of(node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """List the classes of ours that one extends, by their names."""
    for base in node.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        if name in CLASSES and name != node.name:  # not a class of transformers by the same name
            yield CLASSES[name]
            yield from bases_of(CLASSES[name])


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}


def test_functions_of_modules_say_what_they_do():
    for file, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                is_said = lines_of(node) <= MOST_LINES_WITHOUT or ast.get_docstring(node)
                assert is_said, f"{file.relative_to(ROOT)}: {node.name}"


def test_the_class_that_is_extended_says_the_contract():
    for node in CLASSES.values():
        inherited = {name for base in bases_of(node) for name in methods_of(base)}
        for name, method in methods_of(node).items():
            assert not (name in inherited and ast.get_docstring(method)), f"{node.name}.{name}"
