"""The rows that are evaluated, and those that demonstrate, read and turned into items."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..data.files.columns import number_of
from ..data.files.compressed_files import ending
from ..data.files.reading import TABLES, find_file
from ..data.files.rows import read_split, stream_rows
from ..data.files.template_program import Row, WrittenNumber
from .prompts.items import Item, row_error
from .prompts.templates import Template
from .recipe import DataRecipe, PromptingRecipe
from .tasks.task import Task


@dataclass(frozen=True)
class Items:
    """All items of an evaluation."""

    task: Task
    test: list[Item]
    """Those that are evaluated."""
    demonstrations: list[Item]
    """Those that precede them in prompts."""
    are_one_split: bool
    """Whether demonstrations are drawn from the rows that are evaluated."""
    columns: Row
    """The first row, for the names of its columns."""
    source: str
    """The file of the rows that are evaluated, or the name of their split, for messages."""


def read_items(task: Task, data: DataRecipe, prompting: PromptingRecipe) -> Items:
    """Read the rows of a task, and turn them into items."""
    most = max(prompting.num_fewshot)
    if most and not task.takes_demonstrations:
        raise ValueError(
            f"prompting.num_fewshot is {list(prompting.num_fewshot)}, but a task of kind "
            f"{task.recipe.kind} has no demonstrations: set prompting.num_fewshot=[0]"
        )
    rows = read_rows(data, data.test)
    test = items_of(task, data, data.test, rows)
    task.require_calibrated(rows[0])
    are_one_split = data.demonstrations in (None, data.test)
    demonstrations = test
    if not are_one_split and most:
        demonstrations = items_of(
            task, data, str(data.demonstrations), read_rows(data, str(data.demonstrations))
        )
    if prompting.balanced and not all(item.label for item in demonstrations):
        raise ValueError(
            "prompting.balanced is true, but the answers differ from row to row: only fixed choices can be "
            "balanced, so set prompting.balanced=false"
        )
    if len(demonstrations) - are_one_split < most:
        own = f"{len(demonstrations):,} rows{', one of which is the query' if are_one_split else ''}"
        source = data.demonstrations or data.test
        raise ValueError(
            f"prompting.num_fewshot is {most}, but {source} has {own}: ask for fewer, or name more rows"
        )
    return Items(task, chosen(test, data.limit), demonstrations, are_one_split, rows[0], data.test)


def items_of(task: Task, data: DataRecipe, source: str, rows: list[Row]) -> list[Item]:
    """Turn the rows of a split into items."""
    condition = None if data.where is None else Template("data.where", data.where, is_expression=True)
    columns = dict.fromkeys(name for row in rows for name in row)
    for template in (*task.templates.values(), *([condition] if condition else [])):
        template.require_columns(source, columns)
    items = []
    for number, row in enumerate(rows):
        try:
            if condition is None or is_true(condition, row):
                items.append(task.item(number, row))
        except ValueError as error:
            raise row_error(source, number, error) from None
    if not items:
        raise ValueError(
            f"{source} has no rows{' of which data.where is true' if condition else ''}: name some"
        )
    tell_of_spaces(source, items)
    task.tell_of_targets(source, items, rows[items[0].number])
    return items


def is_true(condition: Template, row: Row) -> bool:
    """Return whether a row meets a condition."""
    value = condition(row)
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    source = condition.source if condition.source.isidentifier() else f"({condition.source})"
    raise ValueError(
        f"{condition.name} = {condition.source!r} gives {value!r:.60}, which is neither true nor false: "
        f"compare it with something, as in {source} == {value!r:.60}"
    )


def tell_of_spaces(source: str, items: Sequence[Item]) -> None:
    """Warn if answers stand behind two spaces, as where the template ends in one and the delimiter is one.

    Tokenizers read two spaces differently from one. They stay: like lm-evaluation-harness, this reads what
    the recipe says.
    """
    if count := sum(map(has_two_spaces, items)):
        warnings.warn(
            f"{source}: {count:,} of {len(items):,} prompts have two spaces before an answer, which is other "
            "tokens than one space: remove the space at the end of the template or at the beginning of the "
            "answers, or set task.delimiter to ''",
            stacklevel=2,
        )


def has_two_spaces(item: Item) -> bool:
    """Return whether an answer, or a demonstration's where the model writes its own, is behind two spaces."""
    return any(
        "  " in prompt.context[-1:] + text[:2]
        for prompt in item.prompts
        if prompt.context
        for text in prompt.answers or (item.demonstration.removeprefix(prompt.context),)
    )


def read_rows(data: DataRecipe, split: str) -> list[Row]:
    """Read all columns of a file, or of a split of a data set on the Hub.

    A plain text has one column, `text`: a row is what stands between two blank lines.
    """
    if data.dataset is not None:
        return cast(list[Row], read_split(data.dataset, data.subset, split).to_list())
    if ending(Path(split)) == ".txt":
        from ..data.documents import open_documents

        return [{"text": text} for text in open_documents(split)]
    path = find_file(split)
    rows = list(stream_rows(split, (), with_others=True))
    if not rows:
        raise ValueError(f"{path} has no rows: name a file that has some")
    return with_numbers(rows) if ending(path) in TABLES else rows


def with_numbers(rows: list[Row]) -> list[Row]:
    """Read the columns of a table that hold nothing but numbers as numbers, which prompts show as written."""
    names = list(rows[0]) if rows else []
    columns: list[list[Any]] = [as_numbers([row[name] for row in rows]) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def as_numbers(texts: Sequence[str]) -> list[Any]:
    """Read a table's column as numbers if it holds nothing else, with `None` where it holds nothing.

    >>> as_numbers(["1", "", "-2"]), as_numbers(["1", ".5"]), as_numbers(["007", "", "NA"])
    ([1, None, -2], [1.0, 0.5], ['007', '', 'NA'])
    >>> str(as_numbers(["19.90"])[0])
    '19.90'
    """
    written = [text for text in texts if text.strip()]
    found = [number_of(text) for text in written]
    if not found or None in found:
        return list(texts)
    number = int if all(isinstance(each, int) for each in found) else WrittenNumber
    return [number(text) if text.strip() else None for text in texts]


def chosen(items: list[Item], limit: int | None) -> list[Item]:
    """Choose which rows are evaluated where they are too many, in their order."""
    if limit is None or limit >= len(items):
        return items
    indices = np.sort(np.random.default_rng(0).permutation(len(items))[:limit])
    return [items[index] for index in indices]


def files_of(data: DataRecipe) -> list[Path]:
    """Name the files of a recipe, if it reads any."""
    if data.dataset is not None:
        return []
    named = dict.fromkeys((data.test, data.demonstrations))
    return [Path(split).expanduser() for split in named if split]
