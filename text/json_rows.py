"""Rows of a .json file: a list of objects, or one object after another, as they are written.

A date is the text that stands there, and a whole number is that number, however large: nothing is inferred.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow

from .corpus_files import COMPRESSIONS, first_line

NEXT = re.compile(r"\S")
"""Where a value begins."""


def json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a .json file, which may be compressed.

    Raises:
        ValueError: It cannot be unpacked or is no JSON, or a row is no object.
    """
    try:
        with pyarrow.input_stream(str(path), COMPRESSIONS.get(path.suffix.lower())) as file:
            text = file.read().decode("utf-8-sig")
        values = list(values_in(text))
    except (pyarrow.ArrowException, OSError, EOFError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as json ({first_line(error)}): repair it") from error
    rows = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(
                f"{path}, row {number:,} is {row!r:.60}, not keys with values: write a list of objects"
            )
        yield row


def values_in(text: str) -> Iterator[Any]:
    r"""Read the values of a text, which follow each other with or without white space between them.

    >>> list(values_in('{"day": "2020-01-01"}\n{"n": 9007199254740993}'))
    [{'day': '2020-01-01'}, {'n': 9007199254740993}]
    """
    decoder, end = json.JSONDecoder(), 0
    while match := NEXT.search(text, end):
        value, end = decoder.raw_decode(text, match.start())
        yield value
