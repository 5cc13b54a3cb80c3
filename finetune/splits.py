"""The rows of a task, to learn from and to measure on, and what a model reads of them."""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase

from ..data.cache import cache_folder
from ..data.files.bad_rows import Check, OnBadRow, Places, RowError
from ..data.files.columns import values_of
from ..data.files.compressed_files import ending
from ..data.files.problems import Tally
from ..data.files.reading import TABLES, naming_keys
from ..data.files.rows import Reading, read_rows, without_bad_rows
from ..data.identities import identify_file
from ..modeling import TercetDecoderConfig, TercetPreTrainedModel
from ..modeling.saved.length import max_length, most_positions
from .encoding import LabelledExamples, TextEncoder
from .recipe import DataRecipe
from .tasks.recipes import KIND
from .tasks.task import Task, build_task

MEASURED = ("validation", "test")
"""Splits that nothing is learned from."""

SEED = 0
"""Of the rows that are held out."""

DRAWN = ", or name validation rows (data.validation): this one was held out of the training rows at random"
"""What else to do about a row that does not go with the training rows."""


@dataclass(frozen=True)
class Split:
    """The rows with labels, and the examples that the model reads of them."""

    rows: Dataset
    examples: LabelledExamples


class SplitRows(dict[str, Dataset]):
    """The rows of each split by its name: `train`, `validation` and, if there is one, `test`."""

    def __init__(self):
        super().__init__()
        self.places: dict[str, Places] = {}
        """Where the rows of each split stand."""
        self.tallies: dict[str, Tally] = {}
        """What the reading of each met."""
        self.held_out: set[str] = set()
        """Splits that were drawn from the training rows."""
        self.are_cells = False
        """Whether the training rows are a table's, whose cells are texts whatever they say."""

    def add(self, split: str, rows: Dataset, places: Places, tally: Tally) -> None:
        self[split], self.places[split], self.tallies[split] = rows, places, tally

    @property
    def bad_rows(self) -> dict[str, dict[str, Any]]:
        return {split: facts for split, tally in self.tallies.items() if (facts := tally.facts)}

    def leave_out(self, split: str, check: Check) -> None:
        """Leave the rows out that a check refuses, and count them."""
        with warnings.catch_warnings(action="ignore"):  # the rows that are left are read once more
            reading = without_bad_rows(Reading(self[split], self.places[split], self.tallies[split]), check)
        if not len(reading.rows):
            raise ValueError(
                f"all {len(self[split]):,} rows of {split} are bad: correct them, or name another file"
            )
        self.add(split, *reading)


def read_splits(data: DataRecipe, task: Task) -> SplitRows:
    """Read the rows of a task."""
    splits = SplitRows()
    splits.are_cells = data.dataset is None and ending(Path(data.train)) in TABLES
    for split in ("train", *MEASURED):
        source = getattr(data, split)
        groups = [data.group] if data.group and split == "train" else []
        if source is not None:
            with naming_keys(dict.fromkeys(groups, "data.group")):
                rows, places, tally = read_rows(
                    source,
                    [*dict.fromkeys((*task.recipe.columns, *groups))],
                    f"data.{split}",
                    dataset=data.dataset,
                    subset=data.subset,
                    on_bad_row=data.on_bad_row,
                    check=partial(require_usable, task, groups),
                    repair=task.repair,
                    check_all=task.require_consistent,
                )
            splits.add(split, rows, places, tally)
        elif split == "validation":
            rows, places = splits["train"], splits.places["train"]
            groups = values_of(rows, data.group) if data.group else None
            rest, held_out = split_off(rows, data.validation_share, SEED, task.strata(rows), groups)
            splits.add("train", rows.select(rest), places.select(rest), splits.tallies["train"])
            splits.add(split, rows.select(held_out), places.select(held_out), Tally(len(held_out)))
            splits.held_out.add("validation")
    return splits


def require_usable(task: Task, groups: Sequence[str], rows: Dataset) -> None:
    """Raise a `RowError` unless each row can be learned from, and has a value in the columns of groups."""
    task.require_usable(rows)
    for column in groups:
        values_of(rows, column)


def find_task(task: Task, rows: SplitRows, *, trust_remote_code: bool = False) -> Task:
    """Find out what the labels of the training rows are: the task that knows them."""
    with naming_rows("train", rows):
        task = build_task(task.recipe, rows["train"], trust_remote_code=trust_remote_code)
        if not task.facts.get("are_numbered", True):  # labels were found, not named
            from .tasks.odd_labels import describe_odd_labels

            odd = describe_odd_labels(task.labels_in(rows["train"]), rows.places["train"])
            if odd:
                warnings.warn(
                    f"labels that few rows have, or nearly another: {odd}: correct mistyped ones",
                    stacklevel=2,
                )
    if rows.are_cells:
        task.facts.pop(KIND, None)  # cells have none
    return task


def encode_splits(
    rows: SplitRows, task: Task, encoder: TextEncoder, on_bad_row: OnBadRow = "stop"
) -> dict[str, Split]:
    """Let the tokenizer read all rows; those of which it can read nothing are left out if bad ones are."""
    splits = {}
    for name in list(rows):
        with naming_rows(name, rows):
            try:
                examples = task.examples(rows[name], encoder)
            except RowError:
                if on_bad_row != "skip":
                    raise
                rows.leave_out(name, partial(task.require_readable, encoder=encoder))
                examples = task.examples(rows[name], encoder)
            splits[name] = Split(rows[name], examples)
    return splits


@contextmanager
def naming_rows(split: str, rows: SplitRows) -> Iterator[None]:
    """Let errors say which split they are about, and where a row stands in its file."""
    try:
        yield
    except RowError as error:
        raise rows.places[split].refusal(error, DRAWN if split in rows.held_out else "") from None
    except ValueError as error:
        raise ValueError(f"data.{split}: {error}") from None


def identify(data: DataRecipe, rows: Mapping[str, Dataset]) -> dict[str, list[dict[str, Any]]]:
    """Identify rows, so that others can tell whether theirs are the same."""
    named = {split: getattr(data, split) for split in rows if getattr(data, split) is not None}
    if data.dataset is None:
        return {
            split: [identify_file(Path(file).expanduser(), cache_folder(None))]
            for split, file in named.items()
        }
    return {
        split: [
            {
                "name": f"{data.dataset} ({part})",
                "dataset": data.dataset,
                "fingerprint": rows[split]._fingerprint,
            }
        ]
        for split, part in named.items()
    }


def contents(rows: Dataset, columns: Iterable[str]) -> list[str]:
    """Return what a model reads of each row."""
    values = zip(*(rows[column][:] for column in columns), strict=True)
    return [json.dumps(each, ensure_ascii=False, default=str) for each in values]


def encoder_of(
    model: TercetPreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: int | None
) -> TextEncoder:
    """Make what turns texts into a model's ids, as long as a recipe says, or as model and tokenizer do.

    A recipe may ask for more than the tokenizer says, which is what an earlier run has read.
    """
    longest = most_positions(model.config)
    if asked is not None and longest is not None and asked > longest:
        raise ValueError(
            f"data.max_length is {asked}, but the model has a maximum length of {longest} tokens: lower it"
        )
    has_token_types = (
        getattr(model.config, "type_vocab_size", 0) > 1
    )  # RoBERTa has one, which tells nothing apart
    return TextEncoder(
        tokenizer,
        asked or max_length(model.config, tokenizer.model_max_length),
        has_token_types=has_token_types,
        is_causal=isinstance(model.config, TercetDecoderConfig),
        decoder_start_id=getattr(model.config, "decoder_start_token_id", None),
    )


def remember_words(model: nn.Module, splits: Mapping[str, Split]) -> None:
    """Let a tagger compute the word vectors of all rows, once for all epochs and seeds; others need none."""
    if callable(remember := getattr(model, "remember_tokens", None)):
        for split in splits.values():
            ids = split.examples.fields["input_ids"]
            remember(torch.from_numpy(ids.values)[None], torch.from_numpy(ids.edges))


def split_off(
    rows: Dataset,
    share: float,
    seed: int,
    labels: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a random share of rows: the numbers of those that are left, and of the share, ascending.

    Args:
        labels: The rows' labels: rows are then held out in proportion, and at least one row of each is left.
        groups: The rows' groups: all rows of one are then held out or none, and labels do not matter.
    """
    if groups is None:
        rest, held_out = random_split(len(rows), share, seed, labels)
    else:
        rest, held_out = group_split(groups, share, seed)
    if not (len(rest) and len(held_out)):
        raise ValueError(
            f"data.validation is left out, and data.validation_share = {share:g} of the rows ({len(rows)}) "
            f"leaves {len(rest)} for training and {len(held_out)} for validation: name a file of validation "
            "rows (data.validation), change the share, or add rows"
        )
    return rest, held_out


def random_split(
    num_rows: int, share: float, seed: int, labels: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw which of the rows are held out; the numbers of the others, and theirs, ascending."""
    order, num_held_out = np.random.default_rng(seed).permutation(num_rows), round(share * num_rows)
    if labels is not None:
        order = stratified_order(order, np.unique(np.array(labels, dtype=object), return_inverse=True)[1])
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


def group_split(groups: Sequence[Any], share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw which groups are held out, as many as have no more than a share of the rows; as in `random_split`.

    >>> [rows.tolist() for rows in group_split(["a", "b", "a", "c", "b"], 0.4, 0)]
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


def stratified_order(order: np.ndarray, labels: np.ndarray) -> np.ndarray:
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
