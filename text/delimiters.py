"""What separates the fields of a .csv file: commas, or the semicolons or tabs that spreadsheets write too.

The first line decides. A file in which commas give the columns that are wanted is read as it always was.
"""

import csv
import warnings
from collections.abc import Sequence
from pathlib import Path

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What may separate fields -> its name."""


def delimiter_of(file: Path, header: str, columns: Sequence[str]) -> str:
    """Find what separates the fields of a file by its first line, and warn if that is no comma."""
    delimiter = find_delimiter(header, columns)
    if delimiter != ",":
        warnings.warn(f"{file}: its fields are separated by {DELIMITERS[delimiter]}", stacklevel=2)
    return delimiter


def find_delimiter(header: str, columns: Sequence[str]) -> str:
    r"""Give the first delimiter by which a line has all columns, or else the one that makes most fields.

    >>> [find_delimiter(line, ["text"]) for line in ("text,n", "text;n", "text\tn", "n;body", "text")]
    [',', ';', '\t', ';', ',']
    """
    names = {delimiter: names_in(header, delimiter) for delimiter in DELIMITERS}
    fitting = [delimiter for delimiter, own in names.items() if set(columns) <= set(own)]
    return fitting[0] if fitting else max(names, key=lambda delimiter: len(names[delimiter]))


def names_in(header: str, delimiter: str) -> list[str]:
    """Split a line; one that is not valid has no names."""
    try:
        return next(csv.reader([header], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
