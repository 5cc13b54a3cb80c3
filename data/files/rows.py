"""Labelled rows, read whole and checked once, or one after another as they are needed.

    .jsonl .csv .tsv     a line or more is a row
    .json                a list of objects, or lines of them
    .parquet             with the names of its labels
    .gz .zst             any of these, compressed: train.csv.gz
    a split              of a data set on the Hub, or in a folder
    -                    standard input, lines of JSON

`bad_rows.py` says what is done about bad ones.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow
from datasets import Dataset

from ...configs.messages import first_line
from .bad_rows import (
    Check,
    OnBadRow,
    Places,
    Repair,
    RowError,
    bad_rows,
    no_check,
    no_repair,
    problem_of_values,
)
from .columns import as_rows, rows_of_other_kinds, values_of
from .problems import Problem, Record, Row, Tally, usable
from .reading import find_file, has_lines, read, read_lines_of_json, require_columns

SETTING = "data.on_bad_row"
"""What says in a recipe what is done about bad rows."""


class Reading(NamedTuple):
    """The rows that were read."""

    rows: Dataset
    places: Places
    """Where they stand."""
    tally: Tally
    """How many there were, and how many were bad."""


def read_rows(
    source: str,
    columns: Sequence[str],
    key: str,
    *,
    dataset: str | None = None,
    subset: str | None = None,
    on_bad_row: OnBadRow = "stop",
    check: Check | None = None,
    repair: Repair = no_repair,
    check_all: Check = no_check,
) -> Reading:
    """Read labelled rows, and make sure that there are some, each of which can be used.

    Args:
        source: A file, or a split of `dataset`.
        key: Names the rows in a recipe, for messages.
        check: Refuses bad rows; by default, those with nothing in a column.
        check_all: Refuses what no row shows by itself, before bad rows are left out or repaired.
    """
    check = check or partial(require_values, columns=columns)
    remedy = f", or leave such rows out with {SETTING}=skip"
    skipped = check if on_bad_row == "skip" else None
    if dataset is None:
        location, reading = source, read_file_rows(source, columns, remedy, skipped, check_all)
    else:
        location = f"{dataset}, split {source}"
        reading = read_split_rows(dataset, subset, source, columns, skipped, check_all)
    if on_bad_row == "repair":
        reading = with_repaired_rows(reading, check, repair, remedy)
    elif on_bad_row == "stop":
        for error in bad_rows(reading.rows, check):
            if repair(reading.rows, error.row) is not None:
                remedy = f", or have such rows repaired with {SETTING}=repair"
            raise reading.places.refusal(error, remedy)
    if not len(reading.rows):
        bad = reading.tally.records
        none = f"has {bad:,} bad rows and no others" if bad else "has no rows"
        raise ValueError(f"{location} {none}: name one that has some in {key}")
    return reading


def read_file(source: str, columns: Sequence[str]) -> Dataset:
    """Read some columns of a file, `None` where a row lacks one."""
    return read_file_rows(source, columns).rows


def read_file_rows(
    source: str,
    columns: Sequence[str],
    remedy: str = "",
    skipped: Check | None = None,
    check_all: Check = no_check,
) -> Reading:
    """Read the rows of a file.

    Args:
        remedy: What else to do about a bad row than to correct it, for the error.
        skipped: Refuses bad rows, which are left out; without it, one that cannot be read is an error.
    """
    path, tally = find_file(source), Tally()
    values, places = read_columns(path, source, columns, tally, remedy, skip=skipped is not None)
    kinds = kinds_of(path, columns)
    while True:
        try:
            rows = as_rows(values, kinds)
        except RowError as error:
            if skipped is None:
                raise places.refusal(error, remedy) from error
            bad = rows_of_other_kinds(values) or {error.row: error.reason}
        else:
            require_all(rows, places, check_all)
            bad = {error.row: error.reason for error in bad_rows(rows, skipped)} if skipped else {}
            if not bad:
                return Reading(rows, places, tally)
        kept = count_left_out(bad, places, tally)
        places = places.select(kept)
        values = {name: [column[row] for row in kept] for name, column in values.items()}


def read_columns(
    path: Path, source: str, columns: Sequence[str], tally: Tally, remedy: str, *, skip: bool
) -> tuple[dict[str, list[Any]], Places]:
    """Read the values of some columns of a file, `None` where a row has none, and the rows' places."""
    values: dict[str, list[Any]] = {column: [] for column in columns}
    names: dict[str, None] = {}
    rows, lines = [], []
    records, problem_of = unbroken(read(path, columns)), partial(problem_of_values, columns=columns)
    for place, row in usable(records, tally, problem_of, f"correct it{remedy}", skip=skip):
        names |= dict.fromkeys(row)
        for column in columns:
            values[column].append(row.get(column))
        rows.append(place.row)
        lines.append(place.line)
    if names:
        require_columns(source, list(names), columns)
    numbers = np.array(lines, np.int64) if has_lines(path) else None
    return values, Places(source, np.array(rows, np.int64), numbers)


def kinds_of(file: Path, columns: Sequence[str]) -> pyarrow.Schema | None:
    """Return the kinds of columns, with the names of labels, where a file tells them."""
    if has_lines(file):
        return None
    from .parquet_files import schema_of

    return schema_of(file, columns)


def unbroken(records: Iterator[Record]) -> Iterator[Record]:
    """Refuse a file that is damaged from some place on, even if bad rows are left out: more is lost."""
    for place, row in records:
        if isinstance(row, Problem) and row.is_end:
            raise ValueError(f"{place}: {row.what}: correct it")
        yield place, row


def read_split_rows(
    dataset: str,
    subset: str | None,
    split: str,
    columns: Sequence[str],
    skipped: Check | None,
    check_all: Check,
) -> Reading:
    """Read a split of a data set, as `read_file_rows` reads a file."""
    rows, location = read_split(dataset, subset, split), f"{dataset}, split {split}"
    require_columns(location, rows.column_names, columns)
    places = Places(location, np.arange(1, len(rows) + 1))
    reading = Reading(rows.select_columns(list(columns)), places, Tally(len(rows)))
    require_all(reading.rows, places, check_all)
    return without_bad_rows(reading, skipped) if skipped else reading


def require_all(rows: Dataset, places: Places, check_all: Check) -> None:
    """Refuse rows by what none shows by itself, with the place of one."""
    try:
        check_all(rows)
    except RowError as error:
        raise places.refusal(error) from None


def without_bad_rows(reading: Reading, check: Check) -> Reading:
    """Leave bad rows out, and count them."""
    rows, places, tally = reading
    bad = {error.row: error.reason for error in bad_rows(rows, check)}
    kept = count_left_out(bad, places, tally)
    return Reading(rows.select(kept), places.select(kept), tally) if bad else reading


def count_left_out(bad: Mapping[int, str], places: Places, tally: Tally) -> list[int]:
    """Count bad rows, with the reasons, as left out; return the numbers of the others."""
    for row, reason in bad.items():
        tally.leave_out(places[row], reason)
    return [row for row in range(len(places)) if row not in bad]


def with_repaired_rows(reading: Reading, check: Check, repair: Repair, remedy: str) -> Reading:
    """Repair bad rows, and count them."""
    rows, places, tally = reading
    values: dict[str, list[Any]] = {}
    for error in bad_rows(rows, check):
        changes = repair(rows, error.row)
        if changes is None:
            raise places.refusal(error, remedy)
        values = values or {name: list(column) for name, column in rows[:].items()}
        for name, value in changes.items():
            values[name][error.row] = value
        tally.repair(places[error.row], error.reason)
    if not values:
        return reading
    repaired = Dataset.from_dict(values, features=rows.features)
    for error in bad_rows(repaired, check):
        raise places.refusal(error, remedy)
    return Reading(repaired, places, tally)


def require_values(rows: Dataset, columns: Sequence[str]) -> None:
    for column in columns:
        values_of(rows, column)


def read_split(dataset: str, subset: str | None, split: str) -> Dataset:
    """Read a split of a data set on the Hub."""
    from .data_sets import load_dataset

    try:
        return cast(Dataset, load_dataset(dataset, subset, split=split))
    except Exception as error:  # a name, a split, a network: each fails in its own way
        raise ValueError(
            f"data set {dataset} (subset {subset}, split {split}) cannot be loaded "
            f"({first_line(error)}): check the names, or the network"
        ) from error


STANDARD = "-"
"""What stands for standard input or output."""


def stream_rows(source: str, columns: Sequence[str], *, with_others: bool = False) -> Iterator[Row]:
    """Read rows one after another, with `None` in a column that one lacks; those of a table hold texts only.

    Args:
        source: A file, or `-` for lines of JSON on standard input.
        columns: Needed ones, of which the first row must have all.
        with_others: Whether rows have their other columns, too.
    """
    name, remedy = source, "correct it"
    if source == STANDARD:
        example = json.dumps(dict.fromkeys(columns, "..."))
        name, remedy = "standard input", f"write a JSON object in each line, such as {example}"
        records = read_lines_of_json(sys.stdin, name)
    else:
        path = find_file(source)
        records = read(path, () if with_others and not has_lines(path) else columns)

    def problem_of(row: Row) -> str:
        return problem_of_values(row, list(row) if with_others else columns)

    rows = (row for _, row in usable(records, Tally(), problem_of, remedy, skip=False))
    if (first := next(rows, None)) is None:
        return iter(())
    require_columns(name, list(first), columns)
    rows = chain([first], rows)
    return rows if with_others else ({column: row.get(column) for column in columns} for row in rows)
