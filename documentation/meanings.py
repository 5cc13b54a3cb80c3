"""What the fields of a dataclass mean: the strings that stand below them in the source."""

import ast
import inspect
import sys
from dataclasses import fields
from functools import cache
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from types import ModuleType
from typing import Any


def meanings(cls: type) -> dict[str, str]:
    """Give the meaning of each field of a dataclass, in one line.

    A field without a string of its own has that of the abstract class, or that of the type that annotates it
    (`weight: Weight`, where the string stands below `Weight`).
    """
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if owner.__module__ != "builtins":
            found |= _below_names(ast.parse(dedent(_source(owner))).body[0])
    return {field.name: found.get(field.name) or _of_annotation(cls, field.name) for field in fields(cls)}


def summary(definition: Any) -> str:
    """Give the first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(definition) or "").partition("\n\n")[0].split())


def _below_names(scope: ast.AST) -> dict[str, str]:
    """Collect the strings that stand directly below an assignment to a name."""
    body = getattr(scope, "body", [])
    found = {}
    for statement, below in pairwise(body):
        target = _assigned_name(statement)
        if target and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[target] = " ".join(str(below.value.value).split())
    return found


def _assigned_name(statement: ast.stmt) -> str | None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return targets[0].id if isinstance(targets[0], ast.Name) else None


def _of_annotation(cls: type, name: str) -> str:
    """Give the meaning of the type that annotates a field, if the source names that type by one word."""
    for owner in cls.__mro__:
        for statement in getattr(_tree(owner), "body", []):
            if isinstance(statement, ast.AnnAssign) and _assigned_name(statement) == name:
                alias = statement.annotation
                module = sys.modules[owner.__module__]
                return _of_alias(module, alias.id) if isinstance(alias, ast.Name) else ""
    return ""


def _of_alias(module: ModuleType, alias: str) -> str:
    """Find what stands below an alias, in the module that defines it."""
    tree = ast.parse(_source(module))
    if meaning := _below_names(tree).get(alias):
        return meaning
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and alias in {name.name for name in statement.names}:
            dots = "." * statement.level
            return _of_alias(import_module(f"{dots}{statement.module}", module.__package__), alias)
    return ""


def _tree(owner: type) -> ast.AST:
    return ast.Pass() if owner.__module__ == "builtins" else ast.parse(dedent(_source(owner))).body[0]


@cache
def _source(definition: Any) -> str:
    return inspect.getsource(definition)
