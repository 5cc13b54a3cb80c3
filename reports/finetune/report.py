"""The report of a run: scores with their doubt, beside what needs no learning; and what went wrong.

Written as Markdown and as a page of HTML, from the same blocks as the reports of pretraining.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ...configs.messages import counted
from ...configs.recipe import load_recipe
from ...data.files.atomic_writes import replace_text
from ...data.files.bad_rows import in_words as bad_in_words
from ...finetune.facts import shared_in_words
from ...finetune.inputs import find_inputs
from ...finetune.learning_rate import in_recipes
from ...finetune.output import ADAPTED, CONFUSIONS, GRID_SCORES, PREDICTIONS, seed_folder
from ...finetune.output import BEFORE as UNADAPTED
from ...finetune.prepared import Prepared
from ...finetune.recipe import FineTuningRecipe, in_words
from ...finetune.tasks.library_metrics import PREFIX, score_in_words
from ...finetune.tasks.recipes import TaskRecipe
from ...finetune.tasks.task import Prediction, Task
from ...finetune.typed_rows import example_texts
from ...modeling.saved.model_folder import load_config
from ...modeling.stock.architectures import options_of_export
from ...training.run_folder import CURVES, EVALUATION, MODEL, RECIPE, SCORES
from ...training.tracking import LOG, as_json, read_log
from ..blocks import (
    Beside,
    Block,
    Card,
    Cards,
    Example,
    Figure,
    Heading,
    Line,
    Prose,
    Report,
    Run,
    Table,
    bars_of,
    first_block,
    format_score,
    name_of_model,
)
from ..charts import LARGEST_MATRIX, MOST_COUNTED, draw_confusions, draw_learning
from ..finished_run import FinishedRun, find_run
from ..next_steps import NextStep, after_learning_a_task, next_steps
from ..next_steps import as_data as steps_as_data
from ..page import save
from ..scores import INTERVAL, metric_words
from ..scores import as_data as scores_as_data
from ..verdicts import missing_interval
from .summary import (
    BAD_ROWS,
    CEILING,
    GUESSES,
    SHARED,
    called,
    evaluate_before,
    prepared_again,
    read_predictions,
    read_results,
    scores_of,
    spread,
    summarize,
    told,
)

SHOWN = 10
"""Rows that are shown because they were predicted best, and because they were predicted worst."""


def write_report(run: FinishedRun) -> None:
    """Compute what a finished run has come to, and write that and its report into its folder."""
    folder, facts = run.folder, json.loads((run.folder / EVALUATION).read_text(encoding="utf-8"))
    recipe = replace(load_recipe(FineTuningRecipe, str(folder / RECIPE)), grid={})  # what it tried is there
    prepared = prepared_again(find_inputs(recipe), run)
    predictions = read_predictions(folder / PREDICTIONS)
    task, training = recipe.task, recipe.training
    results = read_results(folder, training.seeds)
    earlier = evaluate_before(prepared, training.precision)
    summary = summarize(prepared, results, facts["best_seed"], predictions, earlier)
    if (folder / UNADAPTED).exists():
        summary["before_adaptation"] = spread(
            prepared.measured, read_results(folder / UNADAPTED, training.seeds)
        )
    if (folder / GRID_SCORES).exists():
        summary["grid"] = json.loads((folder / GRID_SCORES).read_text(encoding="utf-8"))
    summary["learning_rate"] = facts["learning_rate"]
    summary["next_steps"] = steps_as_data(what_comes_next(folder / MODEL, task))
    summary |= {"scores": scores_as_data(scores_of(summary)), "told": [*told(summary)]}
    facts["scores"] |= interval_for_card(task.kind, summary)
    replace_text(folder / SCORES, json.dumps(as_json(summary), indent=2) + "\n")
    replace_text(folder / EVALUATION, json.dumps(as_json(facts), indent=2) + "\n")
    page = build_report(prepared, summary, predictions, folder, facts["begins_with"], training.epochs)
    save(page, folder)
    if (folder / ADAPTED).exists():
        from ..pretraining.report import write_report as report_of_pretraining

        report_of_pretraining(find_run(folder / ADAPTED / "run"))


def interval_for_card(kind: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the interval of the score that counts by its name in `evaluation.json`, if there is one."""
    known = summary["interval"]
    return {} if known is None else {f"{kind}/{summary['criterion']}/{INTERVAL}": known}


def what_comes_next(model: Path, task: TaskRecipe) -> Iterator[NextStep]:
    """Yield what may be done with a model that has learned a task."""
    export = options_of_export(load_config(model))
    return after_learning_a_task(str(model), example_texts(task), task.input_columns, export)


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
    """Show the rows that were predicted best, the surest first, beside those that were predicted worst.

    Rows that are no further evidence beside others are left out.
    """
    drawn = task.drawn_rows(references)
    of = f" ({len(drawn):,} {task.drawn_unit})" if len(drawn) < len(rows) else ""
    about = f"Of {counted(len(rows), 'row')}{of}, by the model that was kept."
    predictions, references = task.drawn(predictions, references)
    rows = rows.select(drawn)
    errors = np.asarray(task.error(predictions, references), dtype=np.float64)
    sureness = task.sureness(predictions)
    best = np.lexsort((errors,) if sureness is None else (-sureness, errors))[:SHOWN].tolist()
    worst = [index for index in np.argsort(-errors, kind="stable")[:SHOWN].tolist() if errors[index] > 0]
    kept = [index for index in best if index not in worst]
    good = {row for row in kept if task.grades_errors or errors[row] == 0}
    all_right = all(errors[row] == 0 for row in kept)
    correct = "Correct predictions" if sureness is None else "The surest correct predictions"
    lists = {correct if all_right else "The smallest errors": kept, "The largest errors": worst}

    def laid_out(row: int) -> Example:
        lines = task.show(rows[row], predictions[row], references[row], is_right=row in good)
        return Example([Line(label, [Run(*piece) for piece in pieces]) for label, pieces in lines])

    shown = [(name, [*map(laid_out, own)]) for name, own in lists.items() if own]
    if not worst:
        about += " Every prediction is correct."
    return [Heading("Best and worst predictions"), Prose(about), Beside(shown)]


OF_CEILING = (
    "The references, rewritten, are what the tokenizer has encoded and decoded: a model that writes all "
    "tokens right has these scores."
)
"""What the last column of the scores is, where there is one."""


def build_report(
    prepared: Prepared,
    summary: Mapping[str, Any],
    predictions: Sequence[Prediction],
    folder: Path,
    begins_with: str,
    epochs: float,
) -> Report:
    """Build the report, its blocks in their order.

    Args:
        predictions: Predictions of the best seed, for the last split.
        folder: Folder of the run, for the charts.
        epochs: Epochs of a whole run.
    """
    criterion, split, task = summary["criterion"], summary["split"], prepared.task
    measured = prepared.splits[split].rows
    references = task.references(measured)
    best = summary["seeds"][str(summary["best_seed"])][split]
    rows, seeds = summary["rows"], len(summary["seeds"])
    return Report(
        f"{task.title}: {called(criterion, summary)} {format_score(best[criterion], 3)}",
        f"{name_of_model(begins_with)}, fine-tuned on {counted(rows['train'], 'row')} with "
        f"{counted(seeds, 'seed')}, measured on {counted(rows[split], f'{split} row')}.",
        [
            *first_block(summary["verdicts"]),
            Cards([glance(summary, best)]),
            Prose(doubts(summary)),
            *(
                Prose(f"{line[0].upper()}{line[1:]}.")
                for line in [bad_in_words(summary.get(BAD_ROWS, {}))]
                if line
            ),
            *(Prose(f"{line}.") for line in shared_in_words(summary[SHARED], rows)),
            score_table(summary, best),
            *([Prose(OF_CEILING)] if CEILING in summary else []),
            *curve(task, summary, epochs, folder),
            *comparisons(summary),
            *by_label(task, predictions, references, folder),
            *best_and_worst(task, measured, predictions, references),
            *what_was_run(summary),
            *next_steps(summary),
        ],
    )


def glance(summary: Mapping[str, Any], best: Mapping[str, float]) -> Card:
    """Show the metric beside what needs no learning."""
    criterion, name = summary["criterion"], called(summary["criterion"], summary)
    values = {
        "fine-tuned": best[criterion],
        **{
            baseline: scores[criterion]
            for baseline, scores in summary["baselines"].items()
            if criterion in scores
        },
    }
    intervals = {"fine-tuned": summary["interval"]} | {
        name: found["interval"] for name, found in summary["compared"].items()
    }
    interval = summary["interval"]
    return Card(
        f"{name}{' of the best seed' if len(summary['seeds']) > 1 else ''}",
        format_score(best[criterion], 3),
        "95 % interval {:.3g} to {:.3g}.".format(*interval)
        if interval
        else f"No 95 % interval: {missing_interval(**summary['drawn'])}.",
        bars_of(values, "fine-tuned", intervals),
    )


def doubts(summary: Mapping[str, Any]) -> str:
    """Describe what the interval and the spread mean."""
    of_seed = "that of the best seed" if len(summary["seeds"]) > 1 else "the best checkpoint"
    chosen = f"The model that was kept is {of_seed} on the validation rows"
    if summary["split"] == "validation":
        chosen += (
            ", and its scores are on the same rows, so they are slightly optimistic. Set data.test for an "
            "unbiased score"
        )
    seeds = ", which the standard deviation covers" if len(summary["seeds"]) > 1 else ""
    return (
        f"{chosen}. The interval is a percentile bootstrap over rows (Efron and Tibshirani, 1993): it "
        f"covers other rows of the same kind, but not other seeds{seeds}. "
        f"Differences are of the same rows, drawn for both. The baselines: "
        f"{'; '.join(map(explained_baseline, summary['baselines']))}."
    )


def explained_baseline(name: str) -> str:
    """Say what a baseline does, with its name once.

    >>> explained_baseline("bag of words")
    'a bag of words (logistic regression on TF-IDF weights)'
    """
    return GUESSES[name] if name in GUESSES[name] else f"{name} ({GUESSES[name]})"


def score_table(summary: Mapping[str, Any], best: Mapping[str, float]) -> Table:
    """Put all scores side by side."""
    split, names = (
        summary["split"],
        [name for name in best if name in metric_words(summary["kind"]) or name.startswith(PREFIX)],
    )
    columns = {"best seed" if len(summary["seeds"]) > 1 else "fine-tuned": best, **summary["baselines"]}
    if CEILING in summary:
        columns["references, rewritten"] = summary[CEILING]
    rows = []
    for name in names:
        row = [
            called(name, summary) if name in metric_words(summary["kind"]) else score_in_words(name),
            *(format_score(scores[name]) if name in scores else "" for scores in columns.values()),
        ]
        if len(summary["seeds"]) > 1:
            row.insert(2, mean_and_deviation(summary, split, name))
        rows.append(row)
    heads = ["score", *columns]
    if len(summary["seeds"]) > 1:
        heads.insert(2, f"mean of {len(summary['seeds'])} seeds ± deviation")
    return Table(heads, rows, strong=names.index(summary["criterion"]))


def curve(task: Task, summary: Mapping[str, Any], epochs: float, folder: Path) -> Iterator[Block]:
    """Draw how the metric grew on the validation rows; its interval and the guess, if they are of these."""
    criterion = summary["criterion"]
    curves = {}
    for seed, result in summary["seeds"].items():
        log = read_log(seed_folder(folder, int(seed)) / LOG)
        scale = epochs / result["planned_steps"]
        points = [
            (record["step"] * scale, record[f"evaluation/{criterion}"])
            for record in log
            if record.get(f"evaluation/{criterion}") is not None
        ]
        if points:
            curves[f"seed {seed}"] = points
    chosen = f"seed {summary['best_seed']}"
    if len(curves.get(chosen, ())) < 2:  # a point is no curve
        return
    yield Heading("Learning curve")
    title = f"{called(criterion, summary)} of the validation rows"
    levels, interval = {}, None
    if summary["split"] == "validation":
        guess = summary["baselines"][task.baseline].get(criterion)
        levels = {} if guess is None or math.isnan(guess) else {task.baseline: guess}
        interval = summary["interval"]
    drawing = draw_learning(curves, levels, chosen, title, folder / CURVES, interval)
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
        yield Table(["setting", f"{called(criterion, summary)} (validation)"], rows, strong=best)
    if before := summary.get("before_adaptation"):
        yield Heading("Effect of domain adaptation")
        names = [name for name in before["mean"][split] if name in metric_words(summary["kind"])]
        rows = [
            [called(name, summary), *(mean_and_deviation(told, split, name) for told in (before, summary))]
            for name in names
        ]
        yield Table(["mean of the seeds ± deviation", "before", "after"], rows)


def mean_and_deviation(told: Mapping[str, Any], split: str, name: str) -> str:
    mean, deviation = (told[kind][split][name] for kind in ("mean", "standard_deviation"))
    return f"{format_score(mean)} ± {format_score(deviation, 2)}"


def what_was_run(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Yield steps and times of each seed, the learning rate, and the libraries."""
    yield Heading("Run")
    rows = [
        [f"seed {seed}", f"{result['steps']:,}", in_epochs(result), f"{result['seconds']:,.0f} s"]
        for seed, result in summary["seeds"].items()
    ]
    yield Table(["", "steps", "examples", "time in steps"], rows)
    rate = summary["learning_rate"]
    yield Prose(f"Peak learning rate {in_recipes(rate['value'])}, {rate['reason']}.")
    told = summary["seeds"][str(summary["best_seed"])]["trained_on"]
    yield Prose(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in told.items()) + ".")


def in_epochs(result: Mapping[str, Any]) -> str:
    """Write how many examples a seed's run has learned from, as it counted them."""
    of_epochs = result["learned"]["examples_of_epochs"]
    return f"{sum(of_epochs):,} in {counted(len(of_epochs), 'epoch')}"
