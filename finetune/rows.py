"""Labelled rows: what files, folders and data sets of the Hub hold, read by `datasets`, checked once.

train.jsonl   train.csv   train.tsv   train.parquet   (each perhaps .gz)   or a data set's id and a split
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset, disable_progress_bars, enable_progress_bars, load_dataset
from datasets.exceptions import DatasetGenerationError

from .recipe import DataRecipe

Row = dict[str, Any]
"""The values of one row, by the names of the columns."""

READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"delimiter": "\t"}),
    ".parquet": ("parquet", {}),
}
"""Ending of a file -> how `datasets` reads it."""


def read_rows(data: DataRecipe, split: str, columns: Iterable[str]) -> Dataset:
    """Read one split of a task's data, and make sure that it has rows and the columns that are needed.

    Args:
        data: Names files, or a data set on the Hub.
        split: `train`, `validation` or `test`.
        columns: Needed ones.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be read, is empty, or lacks a column.
    """
    source = str(getattr(data, split))
    rows = read_split(data, source) if data.dataset is not None else read_file(source)
    place = source if data.dataset is None else f"{data.dataset}, split {source}"
    if not len(rows):
        raise ValueError(f"{place} has no rows: name a file that has some in data.{split}")
    for column in columns:
        if column not in rows.column_names:
            raise ValueError(
                f"{place} has no column {column!r}, only {', '.join(rows.column_names)}: name the right one "
                "in task"
            )
    return rows


def read_file(source: str) -> Dataset:
    """Read a file.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is of no known kind, or damaged.
    """
    kind, options = find_reader(source)
    disable_progress_bars()
    try:
        return cast(Dataset, load_dataset(kind, split="train", **options))
    except (DatasetGenerationError, ValueError, OSError) as error:
        cause = error.__cause__ or error
        raise ValueError(
            f"{source} cannot be read as {kind} ({str(cause).strip().splitlines()[0]}): repair it"
        ) from error
    finally:
        enable_progress_bars()


def find_reader(source: str) -> tuple[str, dict[str, Any]]:
    """Tell by a file's ending what reads it, and with which options, the file among them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind.
    """
    path = Path(source).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {source}: name one that ends in {', '.join(READERS)}")
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending not in READERS:
        raise ValueError(f"{source} ends in {ending or 'nothing'}: rows are read from {', '.join(READERS)}")
    kind, options = READERS[ending]
    return kind, options | {"data_files": str(path)}


def read_split(data: DataRecipe, split: str) -> Dataset:
    """Read a split of a data set on the Hub.

    Raises:
        ValueError: There is none, or the network is not there.
    """
    assert data.dataset is not None
    try:
        return cast(Dataset, load_dataset(data.dataset, data.subset, split=split))
    except Exception as error:  # a name, a split, a network: each fails in its own way
        raise ValueError(
            f"data set {data.dataset} (subset {data.subset}, split {split}) cannot be loaded "
            f"({str(error).strip().splitlines()[0]}): check the names, or the network"
        ) from error


def split_off(rows: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Hold out a random share of rows: what is left, and the share.

    Raises:
        ValueError: One of the two would be empty.
    """
    num_held_out = round(share * len(rows))
    if not 0 < num_held_out < len(rows):
        raise ValueError(
            f"data.validation is left out, and data.validation_share = {share:g} of {len(rows)} rows leaves "
            f"{len(rows) - num_held_out} to learn from and {num_held_out} to measure on: bring more rows"
        )
    order = np.random.default_rng(seed).permutation(len(rows))
    return rows.select(np.sort(order[num_held_out:])), rows.select(np.sort(order[:num_held_out]))


def texts_of(rows: Dataset, column: str) -> list[str]:
    """Give a column of texts.

    Raises:
        ValueError: A row has none there.
    """
    texts = rows[column][:]
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"row {number + 1} has no text in column {column!r} ({text!r}): take it out, or fill it in"
            )
    return texts


def values_of(rows: Dataset, column: str) -> Sequence[Any]:
    """Give a column of anything; nothing may be missing.

    Raises:
        ValueError: A row has no value there.
    """
    values = rows[column][:]
    for number, value in enumerate(values):
        if value is None:
            raise ValueError(f"row {number + 1} has nothing in column {column!r}: take it out, or fill it in")
    return values
