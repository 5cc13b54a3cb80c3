"""The keys of a recipe, read from the source of its dataclass without running it.

A recipe's module imports torch, which takes seconds, and a wrong key should be answered at once. So the
source is parsed (`ast`), annotations are followed through relative imports, and the result is a dataclass
with the same fields, nested as they are. `checking.check_keys` reads it as it reads the dataclass itself.
What cannot be told without running the source is `Any`, which allows everything.
"""

import ast
from collections.abc import Iterator
from dataclasses import make_dataclass
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, Literal, TypeGuard


@cache
def read_shape(module: str, name: str) -> Any:
    """Build a dataclass with the fields of one in a module that is not imported.

    Args:
        module: Absolute name, such as `tercet.pretraining.recipe`; only its package is imported.
        name: The dataclass.

    Returns:
        A class whose fields have the annotations that matter for keys: nested dataclasses, unions and lists
        of them, and literals. The rest is `Any`.
    """
    where, definition = _find(module, name) or (module, None)
    if not _is_dataclass(definition):
        return Any
    hints = {key: _hint(annotation, source) for source, key, annotation in _fields(where, definition)}
    return make_dataclass(name, list(hints.items()))


def field_names(module: str, name: str) -> list[str]:
    """Name the annotated fields of a class and of its bases, as far as they are in the same package."""
    where, definition = _find(module, name) or (module, None)
    if not isinstance(definition, ast.ClassDef):
        return []
    return list(dict.fromkeys(key for _, key, _ in _fields(where, definition)))


@cache
def _tree(module: str) -> ast.Module:
    top, *below = module.split(".")
    package = f"{top}.{below[0]}" if len(below) > 1 else top
    spec = find_spec(package)  # of a folder within it, it would import the package
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        place = Path(folder, *below[1:]) if len(below) > 1 else Path(folder, *below)
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return ast.parse(path.read_text(encoding="utf-8"))
    return ast.Module([], [])


def _find(module: str, name: str) -> tuple[str, ast.ClassDef | ast.expr] | None:
    """Find what a name stands for in a module: a class or an expression, and the module that defines it."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            return module, node.value
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            source = resolve_name("." * node.level + node.module, module.rpartition(".")[0])
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _find(source, alias.name)
    return None


def _fields(module: str, definition: ast.ClassDef) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the fields of a class, those of its bases first: the module, the name, the annotation."""
    for base in definition.bases:
        found = _find(module, base.id) if isinstance(base, ast.Name) else None
        if found is not None and isinstance(found[1], ast.ClassDef):
            yield from _fields(found[0], found[1])
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_class_variable = "ClassVar" in ast.unparse(node.annotation)
            is_derived = node.value is not None and "init=False" in ast.unparse(node.value)
            if not (is_class_variable or is_derived):
                yield module, node.target.id, node.annotation


def _hint(annotation: ast.expr, module: str) -> Any:
    """Return an annotation as far as it says something about keys."""
    match annotation:
        case ast.Constant(value=None):
            return type(None)
        case ast.Name(id=name):
            found = _find(module, name)
            if found is None:
                return Any
            where, meaning = found
            return (
                read_shape(where, meaning.name)
                if isinstance(meaning, ast.ClassDef)
                else _hint(meaning, where)
            )
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _hint(left, module) | _hint(right, module)
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
            return _hint(first, module)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            values = choices.elts if isinstance(choices, ast.Tuple) else [choices]
            return Literal[tuple(ast.literal_eval(value) for value in values)]
        case ast.Subscript(value=ast.Name(id="list"), slice=element):
            return list[_hint(element, module)]
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[element, ast.Constant()])):
            return tuple[_hint(element, module), ...]
        case _:
            return Any


def _is_dataclass(node: ast.ClassDef | ast.expr | None) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list)
