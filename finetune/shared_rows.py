"""Rows that are learned from and measured on as well: their scores say how well a model remembers."""

import json
import sys
from collections.abc import Iterable, Mapping

from datasets import Dataset

from .prepared import Prepared

SHARED = "shared_rows"
"""Where the scores say how many measured rows are among those that were learned from."""


def contents(rows: Dataset, columns: Iterable[str]) -> list[str]:
    """Give what a model reads of each row."""
    values = zip(*(rows[column][:] for column in columns), strict=True)
    return [json.dumps(each, ensure_ascii=False, default=str) for each in values]


def count_shared(prepared: Prepared) -> dict[str, int]:
    """Count the rows of each measured split of which a model reads the same as of a training row."""
    columns = prepared.task.inputs_in(prepared.task.recipe)
    learned = set(contents(prepared.splits["train"].rows, columns))
    return {
        split: sum(each in learned for each in contents(prepared.splits[split].rows, columns))
        for split in prepared.measured
    }


def shared_in_words(shared: Mapping[str, int], rows: Mapping[str, int]) -> list[str]:
    """Say of each split how many of its rows are learned from, if any are."""
    return [
        f"{number:,} of the {rows[split]:,} {split} rows are equal to a training row: the model's score on "
        f"these shows memorization"
        for split, number in shared.items()
        if number
    ]


def tell_of_shared(prepared: Prepared) -> None:
    """Say on the screen how many rows are learned from and measured on."""
    rows = {name: len(split.rows) for name, split in prepared.splits.items()}
    for line in shared_in_words(count_shared(prepared), rows):
        print(line, file=sys.stderr, flush=True)
