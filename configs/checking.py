"""Checking of plain data against dataclasses, and errors that a reader can act on.

Unknown keys are looked for here, not by pydantic: it would need every dataclass to forbid them, and it tells
neither which key was meant nor, in a union, which keys the chosen member has.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from re import findall
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

Path = tuple[str | int, ...]
"""Keys and list positions that lead to a value."""

MISSING = ("missing", "union_tag_not_found")
"""What pydantic calls a key without a value; the latter where the key chooses among dataclasses."""


def check_keys(cls: Any, data: Any) -> None:
    """Refuse a key that the dataclass, or the nested one that it would go to, does not have.

    Raises:
        ValueError: The first unknown key, with its value and the key that was probably meant.
    """
    for path, value, owners in _unknown_keys(cls, data, ()):
        raise ValueError(f"{_dotted(path)} = {_shown(value)}: {_remedy(path, owners, cls)}")


def check_numbers(data: Any) -> None:
    """Refuse numbers that no computer counts with: infinite ones, and integers of more than 64 bits.

    Raises:
        ValueError: The first such number.
    """
    for path, value in _leaves(data, ()):
        is_infinite = isinstance(value, float) and not math.isfinite(value)
        if is_infinite or (isinstance(value, int) and value.bit_length() > 63):
            raise ValueError(f"{_dotted(path)} = {_shown(value)}: must be a finite number below 2^63")


def dotted_keys(cls: Any) -> list[str]:
    """List every dotted key of a dataclass, those of nested ones included."""
    return list(dict.fromkeys(_all_keys(cls, (), ())))


def describe_errors(error: ValueError, data: Any) -> str:
    """Put pydantic's complaints about one value, the first that it names, into one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    problems = [(_path_of(problem, data), problem) for problem in error.errors()]
    path, first = problems[0]
    if first["type"] in MISSING:
        return f"{_dotted(path)}: missing; the recipe must set it"
    # A value that fits no member of a union is complained about once for every member.
    expected = dict.fromkeys(_expectation(problem) for where, problem in problems if where == path)
    value, remedy = _value_at(data, path), " or ".join(expected)
    return f"{_dotted(path)} = {_shown(value)}: {remedy}{_nearest(value, remedy)}" if path else remedy


def _unknown_keys(annotation: Any, data: Any, path: Path) -> Iterator[tuple[Path, Any, list[Any]]]:
    """Walk data and annotation together; yield each unknown key's path, value, and the dataclasses there."""
    if isinstance(data, list):
        elements = [arg for member in _members(annotation) for arg in get_args(member) if get_args(member)]
        for index, value in enumerate(data):
            for element in elements[:1]:
                yield from _unknown_keys(element, value, (*path, index))
    candidates = [member for member in _members(annotation) if is_dataclass(member)]
    if not candidates or not isinstance(data, dict):
        return
    chosen = [candidate for candidate in candidates if _accepts_kind(candidate, data)] or candidates
    hints = {name: hint for candidate in reversed(chosen) for name, hint in _hints(candidate).items()}
    for key, value in data.items():
        if key in hints:
            yield from _unknown_keys(hints[key], value, (*path, key))
        else:
            yield (*path, key), value, chosen


def _leaves(data: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Walk through plain data; yield each single value with its path."""
    parts = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else None
    if parts is None:
        yield path, data
    for key, value in parts or ():
        yield from _leaves(value, (*path, key))


def _members(annotation: Any) -> list[Any]:
    """List the members of a union, or the annotation itself, without what `Annotated` adds."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [member for arg in get_args(annotation) for member in _members(arg)]
    return [annotation]


def _hints(cls: Any) -> dict[str, Any]:
    """Return a dataclass's fields with their annotations."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _accepts_kind(cls: Any, data: dict[str, Any]) -> bool:
    """Return whether the literals of a union's member (its `kind`) allow the data."""
    return all(
        data.get(name) in get_args(member)
        for name, hint in _hints(cls).items()
        for member in _members(hint)
        if get_origin(member) is Literal and name in data
    )


def _remedy(path: Path, owners: list[Any], cls: Any) -> str:
    """Describe which key was probably meant: one beside the unknown one, or elsewhere."""
    *above, key = map(str, path)
    siblings = list(dict.fromkeys(name for owner in owners for name in _hints(owner)))
    return f"unknown key; {_meant(above, key, siblings, cls)}"


def _meant(above: list[str], key: str, siblings: list[str], cls: Any) -> str:
    """Describe which key was probably meant."""
    if near := get_close_matches(key, siblings, n=1):
        return f"did you mean {'.'.join([*above, near[0]])}?"
    elsewhere = {dotted.rpartition(".")[2]: dotted for dotted in _all_keys(cls, (), ())}
    if near := get_close_matches(key, elsewhere, n=1, cutoff=0.8):
        return f"did you mean {elsewhere[near[0]]}?"
    return f"{'.'.join(above) or 'the recipe'} has {', '.join(siblings)}"


def _all_keys(annotation: Any, path: Path, above: tuple[Any, ...]) -> Iterator[str]:
    """List every dotted key of a dataclass; a dataclass inside itself is listed once."""
    for member in _members(annotation):
        if is_dataclass(member) and member not in above:
            for name, hint in _hints(member).items():
                yield _dotted((*path, name))
                yield from _all_keys(hint, (*path, name), (*above, member))


def _path_of(problem: Any, data: Any) -> Path:
    """Find where the data have a problem: pydantic's location without the names of a union's members."""
    path: Path = ()
    for part in problem["loc"]:
        if part in (range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()):
            path, data = (*path, part), data[part]
    if "discriminator" in problem.get("ctx", {}):
        return (*path, problem["ctx"]["discriminator"].strip("'"))
    return (*path, problem["loc"][-1]) if problem["type"] == "missing" else path


def _value_at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _expectation(problem: Any) -> str:
    """Shorten pydantic's sentence: `Input should be a valid integer` becomes `must be a valid integer`."""
    if problem["type"] == "union_tag_invalid":
        return f"must be one of {problem['ctx']['expected_tags']}"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return message.replace("an object", "keys with values").replace("a valid dictionary", "keys with values")


def _nearest(value: Any, expected: str) -> str:
    """Name the one of the quoted names that was probably meant, if one is near."""
    names = findall(r"'(.+?)'", expected)
    near = get_close_matches(value, names, n=1, cutoff=0.8) if isinstance(value, str) else []
    return f"; did you mean {near[0]}?" if near else ""


def _dotted(path: Path) -> str:
    return ".".join(str(part) if str(part).isidentifier() else _shown(part) for part in path)


def _shown(value: Any) -> str:
    """Show a value as YAML would take it, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
