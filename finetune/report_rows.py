"""What a report shows of single labels and of single rows: how well each is found, the best and the worst."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..reporting.blocks import Beside, Block, Figure, Heading, Prose, Table, counted
from ..reporting.charts import LARGEST_MATRIX, MOST_COUNTED, draw_confusions
from .output import CONFUSIONS
from .task import Prediction, Task

SHOWN = 10
"""Rows that are shown because they were predicted best, and because they were predicted worst."""


def by_label(task: Task, predictions: Sequence[Prediction], references: Any, folder: Path) -> Iterator[Block]:
    """Show how well each label is found, and what it is taken for."""
    table = task.breakdown(predictions, references)
    if not table:
        return
    yield Heading("By label")
    yield Table(
        ["label", "precision", "recall", "F1", "rows"],
        [[row.label, *(f"{value:.3f}" for value in (row.precision, row.recall, row.f1)), f"{row.support:,}"]
         for row in table],
    )  # fmt: skip
    confusions = task.confusions(predictions, references)
    if confusions is not None and len(confusions[0]) <= LARGEST_MATRIX:
        drawing = draw_confusions(*confusions, folder / CONFUSIONS)
        yield Figure(CONFUSIONS, drawing, "Confusion matrix")
    if confusions is not None and len(confusions[0]) > MOST_COUNTED:
        yield from frequent_confusions(*confusions)


def frequent_confusions(names: Sequence[str], counts: np.ndarray) -> Iterator[Block]:
    """List the labels that are taken for one another most often, where no chart has room for the counts."""
    wrong = counts * (1 - np.eye(len(names), dtype=counts.dtype))
    most = [divmod(place, len(names)) for place in np.argsort(-wrong, axis=None, kind="stable")[:SHOWN]]
    rows = [
        [f"{names[right]} taken for {names[found]}", f"{wrong[right, found]:,}", f"{counts[right].sum():,}"]
        for right, found in most
        if wrong[right, found]
    ]
    if rows:
        yield Table(["most frequent confusions", "rows", "of"], rows)


def best_and_worst(
    task: Task, rows: Dataset, predictions: Sequence[Prediction], references: Any
) -> Iterable[Block]:
    """Show the rows that were predicted best, the surest first, beside those that were predicted worst."""
    errors = np.asarray(task.error(predictions, references), dtype=np.float64)
    best = np.lexsort((-task.sureness(predictions), errors))[:SHOWN].tolist()
    worst = [index for index in np.argsort(-errors, kind="stable")[:SHOWN].tolist() if errors[index] > 0]
    kept = [index for index in best if index not in worst]
    all_right = all(errors[index] == 0 for index in kept)
    lists = {"The surest correct predictions" if all_right else "The smallest errors": kept}
    lists["The largest errors"] = worst
    shown = [
        (name, [task.show(rows[row], predictions[row], references[row], is_right=row in kept) for row in own])
        for name, own in lists.items()
        if own
    ]
    about = f"Of {counted(len(rows), 'row')}, by the model of the best seed."
    if not worst:
        about += " Every prediction is correct."
    return [Heading("Best and worst predictions"), Prose(about), Beside(shown)]
