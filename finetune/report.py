"""The report of a run: scores with their doubt, beside what needs no learning; and what went wrong.

Written as Markdown and as a page of HTML, from the same blocks as the reports of pretraining.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..interop.scores import METRICS
from ..reporting.blocks import (
    Bar,
    Block,
    Card,
    Cards,
    Examples,
    Figure,
    Heading,
    Prose,
    Report,
    Table,
    format_score,
    name_of_model,
)
from ..reporting.blocks import as_markdown as in_markdown
from ..reporting.charts import LARGEST_MATRIX, draw_confusions, draw_learning
from ..reporting.page import as_page
from ..training.disk import replace_text
from ..training.run_folder import CURVES, MARKDOWN, PAGE
from ..training.tracking import LOG, read_log
from .library_metrics import PREFIX, score_in_words
from .output import CONFUSIONS, seed_folder
from .prepared import Prepared
from .recipe import FineTuningRecipe, in_words
from .task import Prediction, Task

SHARED = "shared_rows"
"""Where the scores say how many measured rows are among those that were learned from."""

WORST = 20
"""Rows that are shown because they were predicted worst."""

KINDS = {
    "classification": "Classification",
    "multi_label": "Labelling",
    "regression": "Regression",
    "tagging": "Tagging",
    "question_answering": "Question answering",
    "multiple_choice": "Multiple choice",
    "ranking": "Semantic search",
    "generation": "Generation",
}
"""Kind of a task -> how a title begins."""


def write_report(
    recipe: FineTuningRecipe,
    prepared: Prepared,
    summary: Mapping[str, Any],
    predictions: Sequence[Prediction],
) -> None:
    """Write the report of a run, with its charts, into the run's folder.

    Args:
        recipe: As it was carried out.
        prepared: Its rows.
        summary: What `summarize` found.
        predictions: Of the best seed, for the last split.
    """
    folder = recipe.folder
    report = build_report(recipe, prepared, summary, predictions, folder)
    replace_text(folder / MARKDOWN, in_markdown(report))
    replace_text(folder / PAGE, as_page(report))


def build_report(
    recipe: FineTuningRecipe,
    prepared: Prepared,
    summary: Mapping[str, Any],
    predictions: Sequence[Prediction],
    folder: Path,
) -> Report:
    """Tell everything in order; charts go into the run's folder."""
    criterion, split, task = summary["criterion"], summary["split"], prepared.task
    measured = prepared.splits[split].rows
    references = task.references(measured)
    best = summary["seeds"][str(summary["best_seed"])][split]
    rows, seeds = summary["rows"], len(summary["seeds"])
    return Report(
        f"{KINDS[recipe.task.kind]}: {METRICS[criterion]} {format_score(best[criterion], 3)}",
        f"{name_of_model(recipe.model.path)}, fine-tuned on {rows['train']:,} rows with "
        f"{seeds} seed{'s' if seeds > 1 else ''}, measured on {rows[split]:,} {split} rows.",
        [
            Cards([glance(summary, best)]),
            Prose(doubts(summary)),
            *(Prose(f"{line}.") for line in shared_in_words(summary[SHARED], rows)),
            score_table(summary, best),
            *curve(summary, recipe.training.epochs, folder),
            *comparisons(summary),
            *by_label(task, predictions, references, folder),
            *worst_errors(task, measured, predictions, references),
            *what_was_run(summary),
        ],
    )


def shared_in_words(shared: Mapping[str, int], rows: Mapping[str, int]) -> list[str]:
    """Say of each split how many of its rows are learned from, if any are."""
    return [
        f"{number:,} of the {rows[split]:,} {split} rows are equal to a training row: the model's score on "
        "these shows memorization"
        for split, number in shared.items()
        if number
    ]


def glance(summary: Mapping[str, Any], best: Mapping[str, float]) -> Card:
    """Show the metric beside what needs no learning."""
    criterion, name = summary["criterion"], METRICS[summary["criterion"]]
    values = {
        "fine-tuned": best[criterion],
        **{
            baseline: scores[criterion]
            for baseline, scores in summary["baselines"].items()
            if criterion in scores
        },
    }
    scale = max(1.0, *(abs(value or 0.0) for value in values.values()))
    bars = [
        Bar(who, max(0.0, value or 0.0) / scale, format_score(value, 3), who == "fine-tuned")
        for who, value in values.items()
    ]
    low, high = summary["interval"]
    return Card(
        f"{name} of the best seed",
        format_score(best[criterion], 3),
        f"95 % interval {low:.3g} to {high:.3g}.",
        bars,
    )


def doubts(summary: Mapping[str, Any]) -> str:
    """Say what the interval and the spread mean."""
    chosen = "The model that was kept is that of the best seed on the validation rows"
    if summary["split"] == "validation":
        chosen += (
            ", and its scores are on the same rows, so they are slightly optimistic. Set data.test for an "
            "unbiased score"
        )
    return (
        f"{chosen}. The interval is a percentile bootstrap over rows (Efron and Tibshirani, 1993): it "
        f"covers other rows of the same kind, but not other seeds, which the standard deviation covers. The "
        f"baselines are the best guess that ignores the text (majority class, mean, ...) and, untrained, "
        f"the same pretrained model with a random head."
    )


def score_table(summary: Mapping[str, Any], best: Mapping[str, float]) -> Table:
    """Put all scores side by side."""
    split, names = summary["split"], [name for name in best if name in METRICS or name.startswith(PREFIX)]
    columns = {"best seed": best, **summary["baselines"]}
    rows = []
    for name in names:
        row = [
            METRICS.get(name) or score_in_words(name),
            *(format_score(scores[name]) if name in scores else "" for scores in columns.values()),
        ]
        if len(summary["seeds"]) > 1:
            row.insert(2, mean_and_deviation(summary, split, name))
        rows.append(row)
    heads = ["score", *columns]
    if len(summary["seeds"]) > 1:
        heads.insert(2, f"mean of {len(summary['seeds'])} seeds ± deviation")
    return Table(heads, rows, strong=names.index(summary["criterion"]))


def curve(summary: Mapping[str, Any], epochs: float, folder: Path) -> Iterator[Block]:
    """Draw how the metric grew on the validation rows."""
    criterion = summary["criterion"]
    curves = {}
    for seed, result in summary["seeds"].items():
        log = read_log(seed_folder(folder, int(seed)) / LOG)
        last = max(record["step"] for record in log)
        scale = epochs / max(last, result["steps"])
        points = [
            (record["step"] * scale, record[f"evaluation/{criterion}"])
            for record in log
            if record.get(f"evaluation/{criterion}") is not None
        ]
        if points:
            curves[f"seed {seed}"] = points
    chosen = f"seed {summary['best_seed']}"
    if chosen not in curves:
        return
    yield Heading("Learning curve")
    title = f"{METRICS[criterion]} of the validation rows"
    drawing = draw_learning(curves, {}, chosen, title, folder / CURVES)
    yield Figure(CURVES, drawing, f"{title}, over the epochs")


def comparisons(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Show what a grid tried, and what further pretraining brought."""
    criterion, split = summary["criterion"], summary["split"]
    if tried := summary.get("grid"):
        yield Heading("Grid search")
        rows = [
            [", ".join(in_words(each["values"])), format_score(each["validation"][criterion])]
            for each in tried
        ]
        shortfalls = [math.inf if each["shortfall"] is None else each["shortfall"] for each in tried]
        best = shortfalls.index(min(shortfalls))
        yield Table(["setting", f"{METRICS[criterion]} (validation)"], rows, strong=best)
    if before := summary.get("before_adaptation"):
        yield Heading("Effect of domain adaptation")
        names = [name for name in before["mean"][split] if name in METRICS]
        rows = [
            [METRICS[name], *(mean_and_deviation(told, split, name) for told in (before, summary))]
            for name in names
        ]
        yield Table(["mean of the seeds ± deviation", "before", "after"], rows)


def mean_and_deviation(told: Mapping[str, Any], split: str, name: str) -> str:
    """Write a score's mean over the seeds, and its deviation."""
    mean, deviation = (told[kind][split][name] for kind in ("mean", "standard_deviation"))
    return f"{format_score(mean)} ± {format_score(deviation, 2)}"


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


def worst_errors(
    task: Task, rows: Dataset, predictions: Sequence[Prediction], references: Any
) -> Iterable[Block]:
    """Show the rows that were predicted worst."""
    errors = np.asarray(task.error(predictions, references), dtype=np.float64)
    worst = [index for index in np.argsort(-errors, kind="stable")[:WORST].tolist() if errors[index] > 0]
    if not worst:
        return [Heading("Errors"), Prose("None: every prediction is correct.")]
    shown = [task.show(rows[index], predictions[index], references[index]) for index in worst]
    about = f"The {len(worst)} of {len(rows):,} rows with the largest errors of the best seed's model."
    return [Heading("The worst errors"), Prose(about), Examples(shown)]


def what_was_run(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Say on what, with what and how long."""
    yield Heading("Run")
    rows = [
        [f"seed {seed}", f"{result['steps']:,}", f"{result['seconds']:,.0f} s"]
        for seed, result in summary["seeds"].items()
    ]
    yield Table(["", "steps", "time in steps"], rows)
    told = summary["seeds"][str(summary["best_seed"])]["trained_on"]
    yield Prose(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in told.items()) + ".")
