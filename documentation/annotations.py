"""Annotations of a recipe's fields in words: `Annotated[int, Field(ge=8)]` is "integer, at least 8"."""

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

WORDS = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "`true` or `false`",
    NoneType: "`null`",
    Any: "any value",
    dict: "keys with values",
}
"""The names of plain types."""

BOUNDS = {
    "ge": "at least {}",
    "gt": "above {}",
    "le": "at most {}",
    "lt": "below {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}
"""How the limits that pydantic keeps are said."""


def describe(annotation: Any) -> str:
    """Say in words which values an annotation allows; dataclasses are left to the caller.

    >>> describe(str | None)
    'text or `null`'
    >>> describe(tuple[int, ...])
    'list of integers'
    >>> describe(Literal["adam", "muon"])
    '`adam` or `muon`'

    Raises:
        ValueError: There are no words for it yet.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in WORDS:
        return WORDS[annotation]
    if origin is Annotated:
        limits = [limit for extra in arguments[1:] for limit in _limits(extra)]
        return ", ".join([describe(arguments[0]), *limits])
    if origin is Literal:
        return _alternatives([f"`{_written(value)}`" for value in arguments])
    if origin in (Union, UnionType):
        return _alternatives(list(dict.fromkeys(map(describe, arguments))))
    if origin in (list, tuple):
        return _describe_list(arguments)
    if origin is dict:
        return WORDS[dict]
    if is_dataclass(annotation):
        return "keys"
    raise ValueError(f"no words for the annotation {annotation!r}: add them to documentation/annotations.py")


def members(annotation: Any) -> list[Any]:
    """List the dataclasses that an annotation allows, wherever it names them."""
    if is_dataclass(annotation):
        return [annotation]
    parts = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return [] if get_origin(annotation) is Literal else [found for part in parts for found in members(part)]


def is_list(annotation: Any) -> bool:
    """Whether an annotation allows a list."""
    if get_origin(annotation) is Annotated or get_origin(annotation) in (Union, UnionType):
        return any(is_list(part) for part in get_args(annotation))
    return get_origin(annotation) in (list, tuple)


def _limits(extra: Any) -> Iterator[str]:
    """Say the limits that pydantic's `Field` puts on a value."""
    for limit in getattr(extra, "metadata", ()):
        for name, words in BOUNDS.items():
            if (bound := getattr(limit, name, None)) is not None:
                yield words.format(f"{bound:,}" if isinstance(bound, int) else f"{bound:g}")


def _describe_list(arguments: tuple[Any, ...]) -> str:
    elements = [argument for argument in arguments if argument is not Ellipsis]
    if len(elements) > 1:
        return f"list of {len(elements)}: {', '.join(map(describe, elements))}"
    word, comma, rest = describe(elements[0]).partition(",")
    plural = f"{word}s" if word in {"integer", "number", "text"} else word
    return f"list of {plural}{f' (each{rest})' if comma else ''}"


def _alternatives(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
