"""Rows that a program holds in memory, brought to where a recipe can name them.

    a DataFrame, a Dataset, a list of dictionaries, ... -> TERCET_CACHE/rows/DIGEST/900-rows.parquet

A run reads a file then, as ever, and all that holds for files holds for such rows: their number, size and
hash are in `texts.json`, a run that is resumed must be given the same ones, and what is wrong with a row is
said in the same words. The name of the folder is a digest of the contents: equal rows are the same file.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from datasets import Dataset

KINDS = "a DataFrame, a Dataset, an Arrow table, a list of dictionaries or the path of a file"
"""What rows may be."""

SPLITS = ("train", "validation", "test")
"""What several tables of rows are called."""


def is_file(rows: Any) -> bool:
    """Return whether rows are named by the path of their file."""
    return isinstance(rows, str | Path)


def is_table(value: Any) -> bool:
    """Return whether a value holds rows; a list of dictionaries only where rows are asked for.

    >>> [is_table(value) for value in ("rows.csv", {"train": "rows.csv"}, ["gpt2"], 3)]
    [False, False, False, False]
    """
    return is_frame(value) or is_dataset(value) or hasattr(value, "__arrow_c_stream__")


def is_frame(value: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def is_dataset(value: Any) -> bool:
    """Return whether a value is a `Dataset` of the library `datasets`."""
    datasets = sys.modules.get("datasets")
    return datasets is not None and isinstance(value, datasets.Dataset)


def splits_of(rows: Any) -> dict[str, Any]:
    """Return tables of rows by the names of their splits; a single one is for training."""
    splits = rows if isinstance(rows, Mapping) else {"train": rows}
    for name, own in splits.items():
        if name not in SPLITS:
            raise ValueError(
                f"rows has {name!r}: give one table, or several called {', '.join(SPLITS)}, as in "
                "rows={'train': ..., 'test': ...}"
            )
        if not (is_file(own) or is_table(own) or isinstance(own, list)):
            raise ValueError(f"rows is of type {type(own).__name__}: give {KINDS}")
    return dict(splits)


def as_dataset(rows: Any, name: str) -> "Dataset":
    """Return rows as a data set; a missing value (NaN, NA, NaT) is `None`.

    Args:
        rows: As in `KINDS`, but for a file.
    """
    import pyarrow
    from datasets import Dataset

    if isinstance(rows, Dataset):
        if rows.format["type"] == "custom":
            raise ValueError(
                f"{name} has a transform that changes rows while they are read (set_transform): apply it to "
                "all of them with map"
            )
        return rows.with_format(None)
    if is_frame(rows):
        return of_columns(
            {str(column): list(rows.iloc[:, i]) for i, column in named(rows.columns, name)}, name
        )
    with suppress(pyarrow.ArrowInvalid):  # one column, which has no name
        table = pyarrow.table(rows) if hasattr(rows, "__arrow_c_stream__") else None
        if table is not None:
            return of_columns(
                {column: table[i].to_pylist() for i, column in named(table.column_names, name)}, name
            )
    if (
        isinstance(rows, Sequence)
        and not isinstance(rows, str)
        and all(isinstance(row, Mapping) for row in rows)
    ):
        columns = dict.fromkeys(column for row in rows for column in row)
        return of_columns(
            {str(column): [row.get(column) for row in rows] for _, column in named([*columns], name)}, name
        )
    raise ValueError(f"{name} is of type {type(rows).__name__}: give {KINDS}")


def texts_in(rows: Any) -> list[Any] | None:
    """Return texts, or tuples of the texts of each column, as a list; `None` where rows are no texts.

    Warns:
        UserWarning: The only text names a file.

    >>> texts_in("a"), texts_in(word for word in ("a", "b")), texts_in([{"a": "b"}]), texts_in({"a": "b"})
    (['a'], ['a', 'b'], None, None)
    """
    if isinstance(rows, str):
        if isfile(rows):
            warnings.warn(
                f"{rows!r} is read as a text, but there is a file of this name: give Path({rows!r}) to read "
                "the file",
                stacklevel=3,
            )
        return [rows]
    has_columns = hasattr(rows, "columns") or hasattr(rows, "column_names") or isinstance(rows, Mapping)
    if has_columns or not isinstance(rows, Iterable):
        return None
    values: list[Any] = [*getattr(rows, "to_pylist", rows.__iter__)()]
    are_rows = isinstance(next(iter(values), ""), Mapping)
    for number, each in enumerate(values, 1):
        if not isinstance(each, Mapping if are_rows else str | tuple):
            raise ValueError(f"row {number} has no text ({each!r:.60}): take it out, or fill it in")
    return None if are_rows else values


def named(columns: Sequence[Any], name: str) -> Iterator[tuple[int, Any]]:
    """Number the columns of a table."""
    seen: set[str] = set()
    for number, column in enumerate(columns):
        if str(column) in seen:
            raise ValueError(f"{name} has several columns {str(column)!r}: give all but one another name")
        seen.add(str(column))
        yield number, column


def of_columns(columns: dict[str, list[Any]], name: str) -> "Dataset":
    """Make a data set of columns."""
    from .data.files.bad_rows import RowError
    from .data.files.columns import as_rows

    try:
        return as_rows({column: [*map(present, values)] for column, values in columns.items()})
    except RowError as error:
        raise ValueError(f"{name}: {error}") from None


def present(value: Any) -> Any:
    """Return a value, or `None` for one that stands for a missing one: NaN, pandas' NA and NaT.

    >>> present(float("nan")), present("nan"), present(0)
    (None, 'nan', 0)
    """
    if getattr(value, "ndim", None) == 0 and value.dtype.kind in "bf":  # a number of numpy
        value = value.item()
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    return value


def keep(rows: Any, name: str) -> str:
    """Write rows into the cache, unless they are there, and return the path of their file."""
    from pyarrow.parquet import write_table

    from .data.cache import cache_folder, made_once

    table = as_dataset(rows, name)
    if not len(table):
        raise ValueError(f"{name} has no rows: give some")
    folder = cache_folder() / "rows" / digest_of(table)
    file = f"{len(table)}-{'row' if len(table) == 1 else 'rows'}.parquet"
    arrow = cast(Any, table.with_format("arrow")[:])  # a table, whose features are not among its own metadata
    arrow = arrow.replace_schema_metadata(table.features.arrow_schema.metadata)
    made_once(folder, lambda target: write_table(arrow, target / file))
    return str((folder / file).absolute())


def digest_of(table: "Dataset") -> str:
    """Hash the names and kinds of columns, and the contents of rows."""
    digest = hashlib.sha256(repr(table.features).encode())
    for row in table.with_format(None):
        digest.update(json.dumps(row, ensure_ascii=True, default=repr).encode())
    return digest.hexdigest()[:24]


@contextmanager
def calling(files: Mapping[str, str]) -> Iterator[None]:
    """Let errors call `files` by the names that the program knows: path -> name."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        for file, name in files.items():
            message = message.replace(file, name)
        if message == str(error):
            raise
        raise ValueError(message) from None
