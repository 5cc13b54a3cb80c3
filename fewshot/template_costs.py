"""What operators, methods and filters of a template cost: an upper bound, known before they begin.

Costs are characters of what they make. Work that grows with a square counts less, since a processor compares
and copies many characters at a time.
"""

import re
from collections.abc import Callable, Mapping, Sized
from typing import Any

from .template_budget import require_bits, size, spend, whole, width

AT_A_TIME = 64
"""Characters that are compared or copied in the time that one is made."""
NUMBER = re.compile(r"\d{1,18}")


def widths_in(pattern: Any) -> int:
    """Add up the widths that a format asks for.

    >>> widths_in("%5d and %-1000s")
    1005
    """
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    return sum(map(int, NUMBER.findall(text))) if isinstance(text, str) else 0


def spend_on_formatting(pattern: Any, values: Any) -> None:
    """Spend what `pattern % values` costs: each place may show the longest value, as wide as it says."""
    places = pattern.count("%" if isinstance(pattern, str) else b"%")
    values = list(values.values()) if isinstance(values, Mapping) else values
    values = values if isinstance(values, tuple | list) else [values]
    longest = max((shown(value) for value in values), default=0)
    has_stars = b"*" in pattern if isinstance(pattern, bytes) else "*" in pattern
    stars = sum(map(width, values)) if has_stars else 0
    spend(len(pattern) + places * longest + widths_in(pattern) + stars)


def shown(value: Any) -> int:
    """Bound the characters that a value shows."""
    if isinstance(value, str | bytes):
        return len(value)
    whole(value)
    return 400 if isinstance(value, int | float) else len(str(value))


def spend_on_operator(operator: str, left: Any, right: Any) -> None:
    """Spend what an operator costs.

    Raises:
        ValueError: It costs too much.
    """
    are_whole = isinstance(left, int) and isinstance(right, int)
    if operator == "**":
        if are_whole:
            require_bits(left.bit_length() * max(right, 0))
    elif operator == "*":
        if are_whole:
            require_bits(left.bit_length() + right.bit_length())
        for values, times in ((left, right), (right, left)):
            if isinstance(values, str | bytes):
                spend(len(values) * width(times))
            elif isinstance(values, list | tuple) and isinstance(times, int):
                spend(len(values) * max(times, 0))
    elif operator == "%" and isinstance(left, str | bytes):
        spend_on_formatting(left, right)


def _square(text: Any, other: Any = None, *others: Any) -> int:
    """Search from the end, or for many characters: each place may be compared with all of another text."""
    return size(text) * size(other) // AT_A_TIME


def _replaced(text: Any, old: Any = "", new: Any = "", count: Any = None) -> int:
    if not (isinstance(text, str | bytes) and isinstance(old, type(text))):
        return size(text)
    places = text.count(old)  # pyright: ignore[reportArgumentType]
    return size(text) + places * size(new)


def _joined(separator: Any, values: Any = ()) -> int:
    return len(values) * size(separator) if isinstance(values, Sized) else 0


def _translated(text: Any, table: Any = None) -> int:
    return size(text) * max(map(size, table.values()), default=0) if isinstance(table, Mapping) else 0


def _encoded(text: Any, *arguments: Any, **others: Any) -> int:
    """Some encodings (punycode) take a time that grows with the square."""
    return size(text) ** 2 // AT_A_TIME if arguments or others else size(text) * 4


def _wide(text: Any, wanted: Any = 0, *others: Any) -> int:
    return size(text) + width(wanted)


METHODS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _wide),
    **dict.fromkeys(("strip", "lstrip", "rstrip", "rfind", "rindex", "rsplit", "rpartition"), _square),
    **dict.fromkeys(("encode", "decode"), _encoded),
    "expandtabs": lambda text, tabsize=8: size(text) * max(1, width(tabsize)),
    "replace": _replaced,
    "join": _joined,
    "translate": _translated,
    "to_bytes": lambda number, length=1, *others, **more: width(length),
    "strftime": lambda moment, pattern="": widths_in(pattern),
}
"""Name of a method -> what a call costs, beside what it gives."""


def _joined_by(values: Any, d: Any = "", attribute: Any = None) -> int:
    return _joined(d, values)


def _indented(s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> int:
    wide = len(width) if isinstance(width, str) else abs(width) if isinstance(width, int) else 0
    return size(s) + (s.count("\n") + 1) * wide if isinstance(s, str) else 0


def _wrapped(
    s: Any, width: Any = 79, break_long_words: Any = True, wrapstring: Any = None, *others: Any, **more: Any
) -> int:
    if not isinstance(s, str):
        return 0
    wide = max(1, width) if isinstance(width, int) else 1
    longest = max(map(len, s.split()), default=0)
    lines = 2 * len(s) // wide + s.count("\n") + 1
    return len(s) * 8 + longest**2 // (AT_A_TIME * wide) + lines * size(wrapstring)


def _filled(value: Any, linecount: Any = 1, fill_with: Any = None) -> int:
    return width(linecount) if fill_with is not None else 0


def _json(value: Any, indent: Any = None) -> int:
    return (1 + width(indent) * 64) * (1 if size(value) else _places(value))


def _places(value: Any) -> int:
    values = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    )
    return 1 + sum(map(_places, values))


def _links(value: Any, *arguments: Any, **others: Any) -> int:
    return size(value) * (8 + sum(map(size, (*arguments, *others.values()))))


def _rounded(value: Any, precision: Any = 0, method: Any = "common") -> int:
    if width(precision) > 400:
        raise ValueError(f"round({precision}) asks for more digits than a number has")
    return 0


def _summed(iterable: Any, attribute: Any = None, start: Any = 0) -> int:
    if not isinstance(start, int | float):
        raise ValueError("sum adds numbers: join lists and texts with `+`")
    return 0


def _formatted(value: Any, *arguments: Any, **others: Any) -> int:
    if isinstance(value, str):
        spend_on_formatting(value, others or arguments)
    return 0


FILTERS: dict[str, Callable[..., int]] = {
    "batch": _filled,
    "center": _wide,
    "format": _formatted,
    "indent": _indented,
    "join": _joined_by,
    "pprint": lambda value: 16 * _places(value),
    "replace": lambda s, old="", new="", count=None: _replaced(s, old, new),
    "round": _rounded,
    "slice": lambda value, slices=1, fill_with=None: width(slices) * AT_A_TIME,
    "striptags": lambda value: size(value) * (value.count("<") if isinstance(value, str) else 0) // AT_A_TIME,
    "sum": _summed,
    "tojson": _json,
    "trim": _square,
    "urlize": _links,
    "wordwrap": _wrapped,
}
"""Name of a filter -> what it costs, beside what it is given and gives."""
