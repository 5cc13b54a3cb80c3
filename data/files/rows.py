"""Labelled rows, checked once: those of a file (`row_files.py`), or of a split of a data set on the Hub.

They are also read one after another, as they are needed, from a file of any size or from standard input.
"""

import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TextIO, cast

import numpy as np
from datasets import Dataset

from ...configs.messages import first_line
from .bad_records import RowError, foreign_in
from .bad_rows import Check, OnBadRow, Places, Repair, RowTally, bad_rows, no_check, no_repair
from .record_files import find_file, has_lines, object_of, require_columns
from .row_files import (
    Written,
    as_rows,
    number_of,
    read_lines,
    read_parquet,
    rows_of_other_kinds,
    stream_file,
    text_of,
)

Row = dict[str, Any]
"""The values of one row, by the names of the columns."""


SETTING = "data.on_bad_row"
"""What says in a recipe what is done about bad rows."""


class Reading(NamedTuple):
    """The rows that were read."""

    rows: Dataset
    places: Places
    """Where they stand."""
    tally: RowTally
    """How many were bad."""


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
        columns: Needed ones.
        key: Names the rows in a recipe, for messages.
        dataset: Id of a data set on the Hub.
        subset: Its part, where it has several.
        on_bad_row: What is done about bad rows.
        check: Refuses bad rows; by default, those with nothing in a column.
        repair: Repairs bad rows.
        check_all: Refuses what no row shows by itself, before bad rows are left out or repaired.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be read, is empty or lacks a column, or a row is bad and neither left out nor
            repaired.
    """
    check = check or partial(require_values, columns=columns)
    remedy = f", or leave such rows out with {SETTING}=skip"
    location = source if dataset is None else f"{dataset}, split {source}"
    if dataset is None and has_lines(find_file(source)):
        reading = read_lined(source, columns, remedy, check if on_bad_row == "skip" else None, check_all)
    else:
        rows = read_parquet(source, columns) if dataset is None else read_split(dataset, subset, source)
        require_columns(location, rows.column_names, columns)
        reading = Reading(
            rows.select_columns(list(columns)), Places(location, np.arange(len(rows))), RowTally(len(rows))
        )
        require_all(reading.rows, reading.places, check_all)
        if on_bad_row == "skip":
            reading = without_bad_rows(reading, check)
    if on_bad_row == "repair":
        reading = with_repaired_rows(reading, check, repair, remedy)
    elif on_bad_row == "stop":
        for error in bad_rows(reading.rows, check):
            if repair(reading.rows, error.row) is not None:
                remedy = f", or have such rows repaired with {SETTING}=repair"
            raise reading.places.refusal(error, remedy)
    if not len(reading.rows):
        none = f"has {reading.tally.rows:,} bad rows and no others" if reading.tally.rows else "has no rows"
        raise ValueError(f"{location} {none}: name one that has some in {key}")
    return reading


def require_all(rows: Dataset, places: Places, check_all: Check) -> None:
    """Refuse rows by what none shows by itself, with the place of one."""
    try:
        check_all(rows)
    except RowError as error:
        raise places.refusal(error) from None


def read_lined(
    source: str, columns: Sequence[str], remedy: str, check: Check | None, check_all: Check
) -> Reading:
    """Read a file of lines.

    Args:
        source: The file.
        columns: Needed ones.
        remedy: What else to do about a bad row than to correct it, for the error.
        check: Refuses bad rows, which are left out; without it, one that cannot be read is an error.
        check_all: As in `read_rows`.

    Raises:
        ValueError: The file cannot be read, or a line, or a value does not go with those before it.
    """
    tally = RowTally()
    written = read_lines(source, columns, remedy=remedy, tally=None if check is None else tally)
    tally.rows = len(written.places.numbers) + tally.left_out.total()
    while True:
        try:
            rows = as_rows(written.values)
        except RowError as error:
            if check is None:
                raise written.places.refusal(error, remedy) from error
            bad = rows_of_other_kinds(written.values) or {error.row: error.reason}
        else:
            require_all(rows, written.places, check_all)
            bad = {error.row: error.reason for error in bad_rows(rows, check)} if check else {}
            if not bad:
                return Reading(rows, written.places, tally)
        for row, reason in bad.items():
            tally.count(tally.left_out, written.places.of(row), reason)
        kept = [row for row in range(len(written.places.numbers)) if row not in bad]
        values = {name: [column[row] for row in kept] for name, column in written.values.items()}
        written = Written(values, written.places.select(kept))


def without_bad_rows(reading: Reading, check: Check) -> Reading:
    """Leave bad rows out, and count them."""
    rows, places, tally = reading
    bad = {error.row: error.reason for error in bad_rows(rows, check)}
    for row, reason in bad.items():
        tally.count(tally.left_out, places.of(row), reason)
    kept = [row for row in range(len(rows)) if row not in bad]
    return Reading(rows.select(kept), places.select(kept), tally) if bad else reading


def with_repaired_rows(reading: Reading, check: Check, repair: Repair, remedy: str) -> Reading:
    """Repair bad rows, and count them.

    Raises:
        ValueError: One cannot be repaired.
    """
    rows, places, tally = reading
    values: dict[str, list[Any]] = {}
    for error in bad_rows(rows, check):
        changes = repair(rows, error.row)
        if changes is None:
            raise places.refusal(error, remedy)
        values = values or {name: list(column) for name, column in rows[:].items()}
        for name, value in changes.items():
            values[name][error.row] = value
        tally.count(tally.repaired, places.of(error.row), error.reason)
    if not values:
        return reading
    repaired = Dataset.from_dict(values, features=rows.features)
    for error in bad_rows(repaired, check):
        raise places.refusal(error, remedy)
    return Reading(repaired, places, tally)


def require_values(rows: Dataset, columns: Sequence[str]) -> None:
    """Raise a `RowError` if a row has nothing in a column."""
    for column in columns:
        values_of(rows, column)


def read_split(dataset: str, subset: str | None, split: str) -> Dataset:
    """Read a split of a data set on the Hub.

    Raises:
        ValueError: There is none, or the network is not there.
    """
    from .data_sets import load_dataset

    try:
        return cast(Dataset, load_dataset(dataset, subset, split=split))
    except Exception as error:  # a name, a split, a network: each fails in its own way
        raise ValueError(
            f"data set {dataset} (subset {subset}, split {split}) cannot be loaded "
            f"({first_line(error)}): check the names, or the network"
        ) from error


def split_off(
    rows: Dataset,
    share: float,
    seed: int,
    labels: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a random share of rows: the numbers of those that are left, and of the share, ascending.

    Args:
        rows: To be divided.
        share: Of them that is held out.
        seed: Of the draw.
        labels: Of the rows: they are then held out in proportion, and at least one row of each is left.
        groups: Of the rows: all of one are then held out or none, and labels do not matter.

    Raises:
        ValueError: One of the two would be empty.
    """
    if groups is None:
        rest, held_out = divide(len(rows), share, seed, labels)
    else:
        rest, held_out = divide_groups(groups, share, seed)
    if not (len(rest) and len(held_out)):
        raise ValueError(
            f"data.validation is left out, and data.validation_share = {share:g} of the rows ({len(rows)}) "
            f"leaves {len(rest)} for training and {len(held_out)} for validation: name a file of validation "
            "rows (data.validation), change the share, or add rows"
        )
    return rest, held_out


def divide(
    num_rows: int, share: float, seed: int, labels: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw which of the rows are held out; the numbers of the others, and theirs, ascending."""
    order, num_held_out = np.random.default_rng(seed).permutation(num_rows), round(share * num_rows)
    if labels is not None:
        order = taking_turns(order, np.unique(np.array(labels, dtype=object), return_inverse=True)[1])
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


def divide_groups(groups: Sequence[Any], share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw which groups are held out, as many as have no more than a share of the rows; as in `divide`.

    >>> [rows.tolist() for rows in divide_groups(["a", "b", "a", "c", "b"], 0.4, 0)]
    [[0, 1, 2, 4], [3]]
    """
    numbers = np.unique(np.array([*map(str, groups)], dtype=object), return_inverse=True)[1]
    sizes, room, drawn = np.bincount(numbers), round(share * len(groups)), list[int]()
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        if sizes[group] <= room:
            room -= sizes[group]
            drawn.append(group)
    is_held_out = np.isin(numbers, drawn)
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def taking_turns(order: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Change an order of rows so that any beginning of it has the labels in proportion.

    One row of each label, perhaps its only one, comes last.

    Args:
        order: The numbers of the rows, (E,).
        labels: The number of each row's label, (E,).
    """
    counts = np.bincount(labels)
    by_label, sizes = np.argsort(labels[order], kind="stable"), np.repeat(counts, counts)
    turns = np.concatenate([np.arange(count) for count in counts])
    places = np.where(turns == sizes - 1, 1.0, (turns + 0.5) / sizes)
    return order[by_label[np.lexsort((by_label, places))]]


def texts_of(rows: Dataset, column: str) -> list[str]:
    """Return a column of texts; numbers are texts, too.

    Raises:
        RowError: A row has none there.
    """
    texts = [*map(text_of, rows[column][:])]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise RowError(row, f"has no text in column {column!r} ({text!r}): take it out, or fill it in")
    return texts


def values_of(rows: Dataset, column: str) -> Sequence[Any]:
    """Return a column of anything; nothing may be missing.

    Raises:
        RowError: A row has no value there.
    """
    values = rows[column][:]
    for row, value in enumerate(values):
        if value is None or value == "":
            raise RowError(row, f"has nothing in column {column!r}: take it out, or fill it in")
    return values


def lists_of(rows: Dataset, column: str, of: str) -> Sequence[list[Any]]:
    """Return a column of lists, which may be empty.

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
                f"has no list of {of} in column {column!r}",
            )
    return values


def require_from_zero(values: Sequence[Any], sizes: Sequence[int], column: str) -> None:
    """Refuse numbers that count from 1 what is counted from 0; bad rows among them do not matter.

    Args:
        values: A number of each row, or a list of numbers.
        sizes: How many there are to choose from in each row.
        column: Holds the values.

    Raises:
        RowError: No row has 0, and one has the number of all there are.
    """
    numbers = [{*map(number_of, value if isinstance(value, list) else [value])} for value in values]
    if any(0 in own for own in numbers):
        return
    for row, (own, size) in enumerate(zip(numbers, sizes, strict=True)):
        if size in own:
            raise RowError(
                row,
                f"has {size} in column {column!r}, which is to count from 0, and no row has 0: does it count "
                "from 1? Then subtract 1 from each of its numbers",
            )


UNLIKELY = 1e-3
"""Below this chance, it is no accident that the first choice is right in no row."""


def tell_of_no_first(numbers: Sequence[Any], sizes: Sequence[int], what: str, remedy: str) -> None:
    """Warn if the right choices of all rows seem to be counted from 1: none of many is the first.

    Args:
        numbers: Of the right choice of each row; `None` where there is none.
        sizes: How many there are to choose from in each row.
        what: Holds the numbers.
        remedy: What to do if they count from 1.

    Warns:
        UserWarning: This would happen by chance in less than `UNLIKELY` of all cases.
    """
    chance = math.prod(1 - 1 / max(1, size) for size in sizes)
    if {0, None}.isdisjoint(numbers) and len({*numbers}) > 1 and chance < UNLIKELY:
        warnings.warn(
            f"{what} is to count choices from 0, but none of {len(numbers):,} rows has 0: if it counts from "
            f"1, {remedy}",
            stacklevel=2,
        )


STANDARD = "-"
"""What stands for standard input or output."""


def stream_rows(source: str, columns: Sequence[str], *, whole: bool = False) -> Iterator[Row]:
    """Read a file's rows one after another, with `None` in a column that one lacks.

    Args:
        source: A file as `read_file` reads them, or `-` for lines of JSON on standard input.
        columns: Those that every row must have.
        whole: Whether rows have their other columns, too.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is of no known kind, or has no such column.
    """
    if source == STANDARD:
        rows = lines_of_json(columns)
    else:
        for first in islice(stream_file(source, columns), 1):
            require_columns(source, list(first), columns)
        rows = stream_file(source, columns, whole=whole)
    return rows if whole else ({column: row.get(column) for column in columns} for row in rows)


def lines_of_json(columns: Sequence[str], file: TextIO | None = None) -> Iterator[Row]:
    """Read lines of JSON, as they come; a byte order mark and blank lines are no rows.

    Args:
        columns: Those that every row must have.
        file: Standard input if left out.

    Raises:
        RowError: A line is no object with these columns.
    """
    example = json.dumps(dict.fromkeys(columns, "..."))
    for number, line in enumerate(file or sys.stdin):
        line = line.removeprefix("\ufeff") if number == 0 else line
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=object_of)
            row |= {column: row[column] for column in columns}  # it has them
        except (ValueError, KeyError, TypeError) as error:
            says_more = isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError)
            cause = f" ({first_line(error)})" if says_more else ""
            raise RowError(
                number, f"is {line.strip()!r:.60}{cause}: write a JSON object in each line, such as {example}"
            ) from None
        if problem := foreign_in(row, list(row)):
            raise RowError(number, f"is bad: {problem}: correct it")
        yield row
