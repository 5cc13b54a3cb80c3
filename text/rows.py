"""Labelled rows: those of a file (`row_files.py`), or of a split of a data set on the Hub, checked once."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from datasets import Dataset, load_dataset

from .bad_records import RowError
from .corpus_files import first_line
from .row_files import is_number, read_file, require_columns

Row = dict[str, Any]
"""The values of one row, by the names of the columns."""


def read_rows(
    source: str, columns: Sequence[str], key: str, *, dataset: str | None = None, subset: str | None = None
) -> Dataset:
    """Read labelled rows, and make sure that there are some, with something in every column.

    Args:
        source: A file, or a split of `dataset`.
        columns: Needed ones.
        key: Names the rows in a recipe, for messages.
        dataset: Id of a data set on the Hub.
        subset: Its part, where it has several.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be read, is empty, lacks a column, or a row has nothing there.
    """
    location = source if dataset is None else f"{dataset}, split {source}"
    rows = read_file(source, columns) if dataset is None else read_split(dataset, subset, source)
    if not len(rows):
        raise ValueError(f"{location} has no rows: name one that has some in {key}")
    require_columns(location, rows.column_names, columns)
    for column in columns:
        try:
            values_of(rows, column)
        except RowError as error:  # here, where rows still are counted as in the file
            raise ValueError(f"{location}: {error}") from None
    return rows


def read_split(dataset: str, subset: str | None, split: str) -> Dataset:
    """Read a split of a data set on the Hub.

    Raises:
        ValueError: There is none, or the network is not there.
    """
    try:
        return cast(Dataset, load_dataset(dataset, subset, split=split))
    except Exception as error:  # a name, a split, a network: each fails in its own way
        raise ValueError(
            f"data set {dataset} (subset {subset}, split {split}) cannot be loaded "
            f"({first_line(error)}): check the names, or the network"
        ) from error


def split_off(rows: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Hold out a random share of rows: what is left, and the share.

    Raises:
        ValueError: One of the two would be empty.
    """
    rest, held_out = divide(len(rows), share, seed)
    if not (len(rest) and len(held_out)):
        raise ValueError(
            f"data.validation is left out, and data.validation_share = {share:g} of {len(rows)} rows leaves "
            f"{len(rest)} training rows and {len(held_out)} validation rows: add more rows"
        )
    return rows.select(rest), rows.select(held_out)


def divide(num_rows: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw which of the rows are held out; the numbers of the others, and theirs, ascending."""
    order = np.random.default_rng(seed).permutation(num_rows)
    num_held_out = round(share * num_rows)
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


def texts_of(rows: Dataset, column: str) -> list[str]:
    """Give a column of texts; numbers are texts, too.

    Raises:
        RowError: A row has none there.
    """
    texts = [str(value) if is_number(value) else value for value in rows[column][:]]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise RowError(row, f"has no text in column {column!r} ({text!r}): take it out, or fill it in")
    return texts


def values_of(rows: Dataset, column: str) -> Sequence[Any]:
    """Give a column of anything; nothing may be missing.

    Raises:
        RowError: A row has no value there.
    """
    values = rows[column][:]
    for row, value in enumerate(values):
        if value is None or value == "":
            raise RowError(row, f"has nothing in column {column!r}: take it out, or fill it in")
    return values


def lists_of(rows: Dataset, column: str, of: str) -> Sequence[list[Any]]:
    """Give a column of lists, which may be empty.

    Args:
        rows: Have it.
        column: Its name.
        of: What the lists hold, for the error.

    Raises:
        RowError: A row has no list there: neither a text nor a number is one of itself.
    """
    values = values_of(rows, column)
    for row, value in enumerate(values):
        if not isinstance(value, list):
            raise RowError(
                row,
                f"has {value!r:.60} in column {column!r}, which is no list of {of}: write a list, such as "
                '["a", "b"], into .jsonl, .json or .parquet; tables have none',
            )
    return values
