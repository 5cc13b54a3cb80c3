"""What the seeds of a run have come to: mean and spread, the best one with its interval, the baselines.

All is computed from the folder of a finished run, and from the rows and the model that it has read.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from ...data.files.reading import naming_keys
from ...data.identities import keep_texts
from ...data.tokenizers.special_tokens import UNKNOWN
from ...finetune.evaluation import Evaluation, evaluate_rows
from ...finetune.facts import unknown_in
from ...finetune.inputs import Inputs
from ...finetune.model import load_task_model
from ...finetune.output import seed_folder
from ...finetune.prepared import Prepared, Results
from ...finetune.splits import Split, encode_splits, encoder_of, identify, read_splits, remember_words
from ...finetune.tasks.library_metrics import is_own, load_metrics
from ...finetune.tasks.task import Prediction, Predictions, Task, load_task
from ...training.devices.precision import choose_precision, join_processes, products_in
from ...training.metrics.bootstrap import bootstrap_scores, deviation, percentile_interval
from ...training.run_folder import SCORES, TEXTS
from ...training.tracking import as_json, as_scores
from ..finished_run import FinishedRun
from ..scores import Score, as_pair, between, metric_words, number
from ..verdicts import (
    FEWEST_ROWS,
    Verdict,
    about_few_rows,
    as_data,
    judge,
    missing_interval,
    shown,
    trusted,
)

SHARED = "shared_rows"
"""Where the scores say how many measured rows are among those that were learned from."""

SCORE_NAMES = "score_names"
"""Where the scores say what some of them are called: of which label F1 is."""

BAD_ROWS = "bad_rows"
"""Where the scores say how many rows of each file were bad, and what was done about them."""

CEILING = "ceiling"
"""Where the scores say what the references score as the tokenizer writes them, if that changes them."""

BEFORE = "before this run"
"""Name of the baseline that is the model before the run; none if its head is new, for it would guess."""

BAG_OF_WORDS = "bag of words"
"""Name of the baseline that counts words."""

GUESSES = {
    "majority class": "guessing the most frequent label",
    "mean": "guessing the mean",
    "first sentence": "repeating the first sentence",
    "most frequent answer": "giving the most frequent answer",
    "most frequent documents": "the same documents for every query",
    "frequency of tokens": "predicting tokens by their frequency",
    BAG_OF_WORDS: "a bag of words (logistic regression on TF-IDF weights)",
    BEFORE: "the same model before this run",
}
"""Name of a baseline -> what it does, in the words of a verdict."""


def called(name: str, summary: Mapping[str, Any]) -> str:
    return summary.get(SCORE_NAMES, {}).get(name, metric_words(summary["kind"])[name])


def prepared_again(inputs: Inputs, run: FinishedRun) -> Prepared:
    """Read the rows of a finished run, and the model that it began with, as the run did.

    Code of others is not run again: somebody else may have made the folder, and trusted it.

    Args:
        run: Its model knows the labels, and its folder which rows they were.
    """
    data, own, first = inputs.data, inputs.task.recipe, inputs.settings[0]
    with warnings.catch_warnings(action="ignore"):  # the run has told
        with naming_keys(own.keys):
            rows = read_splits(data, inputs.task)
        task = load_task(run.model)
        task.modules = load_metrics([*filter(is_own, getattr(own, "metrics", ()))])
        pretrained = load_task_model(first.start, task, first.training.seeds[0])
        encoder = encoder_of(pretrained.model, pretrained.tokenizer, data.max_length)
        splits = encode_splits(rows, task, encoder, data.on_bad_row)
    identity = identify(data, {name: split.rows for name, split in splits.items()})
    keep_texts(run.folder / TEXTS, identity, goes_on=True, may_change=False)
    remember_words(pretrained.model, splits)
    return Prepared(task, splits, pretrained, rows.bad_rows)


def read_results(folder: Path, seeds: Sequence[int]) -> Results:
    return {
        seed: json.loads((seed_folder(folder, seed) / SCORES).read_text(encoding="utf-8")) for seed in seeds
    }


def read_predictions(file: Path) -> list[Prediction]:
    """Read predictions back; other ends of a line that Unicode knows may stand in their texts."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def summarize(
    prepared: Prepared,
    results: Results,
    best_seed: int,
    predictions: Sequence[Prediction],
    earlier: Evaluation | None,
) -> dict[str, Any]:
    """Join the scores of all seeds with the baselines and the interval of the best one."""
    task, measured = prepared.task, prepared.measured
    last = prepared.splits[measured[-1]]
    references = task.references(last.rows)
    predicted = guesses(prepared, last) | ({} if earlier is None else {BEFORE: earlier.predictions})
    scored = {name: task.score(each, references) for name, each in predicted.items()}
    drawn = {
        name: bootstrap(task, each, references)
        for name, each in predicted.items()
        if task.metric_for_best_model in scored[name]
    }
    own, number = bootstrap(task, predictions, references), len(task.drawn_rows(references))
    summary = {
        "kind": task.recipe.kind,
        "criterion": task.metric_for_best_model,
        SCORE_NAMES: task.score_names,
        "split": measured[-1],
        "rows": {name: len(split.rows) for name, split in prepared.splits.items()},
        "seeds": {str(seed): result for seed, result in results.items()},
        "best_seed": best_seed,
        SHARED: prepared.shared_rows,
        **({BAD_ROWS: prepared.bad_rows} if prepared.bad_rows else {}),
        UNKNOWN: {name: unknown_in(prepared, name) for name in measured},
        **spread(measured, results),
        "drawn": {"number": number, "unit": task.drawn_unit},
        "interval": trusted(percentile_interval(own), number),
        "baselines": {
            name: as_json(scored[name] | task.library_scores(each, references))
            for name, each in predicted.items()
            if name != BEFORE
        }
        | ({} if earlier is None else {BEFORE: as_json(earlier.scores)}),
        **({CEILING: most} if (most := task.ceiling(references)) else {}),
        "compared": compared(own, drawn) if number >= FEWEST_ROWS else {},
    }
    other = task.against_guess()
    if task.baseline in summary["compared"] and other.metric_for_best_model != task.metric_for_best_model:
        both = (predictions, predicted[task.baseline])
        own, guessed = (bootstrap(other, each, references) for each in both)
        summary["compared"][task.baseline]["judged"] = {
            "metric": other.metric_for_best_model,
            "own": trusted(percentile_interval(own), number),
            "difference": list(percentile_interval(own - guessed)),
        }
    return summary | {"verdicts": as_data(verdicts(task, summary))}


def bootstrap(task: Task, predictions: Predictions, references: Sequence[Any]) -> np.ndarray:
    """Score rows drawn again and again by the metric, (R,): the same rows for all predictions."""
    drawn = task.drawn(predictions, references)
    return bootstrap_scores(task.score_of_rows(*drawn), len(drawn[0]))


def scores_of(summary: Mapping[str, Any]) -> Iterator[Score]:
    """Yield the scores of the kept model, that which chose it first; of several seeds also the means."""
    split, criterion, seeds = summary["split"], summary["criterion"], summary["seeds"]
    found, rows = seeds[str(summary["best_seed"])][split], summary["rows"][split]
    for name in sorted(found, key=lambda name: name != criterion):
        interval = as_pair(summary["interval"]) if name == criterion else None
        baseline = {other: scores[name] for other, scores in summary["baselines"].items() if name in scores}
        yield Score(name, found[name], interval, baseline, rows, split)
        if len(seeds) > 1:
            mean = summary["mean"][split][name]
            yield Score(f"{name}, mean of {len(seeds)} seeds", mean, None, {}, rows, split)


def told(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about the score of the kept model with which the command ends."""
    first, *others = scores_of(summary)
    interval = first.interval
    doubt = (
        f"95 % interval {between(interval)}"
        if interval
        else f"no interval: {missing_interval(**summary['drawn'])}"
    )
    compared = {name: scores.get(first.name) for name, scores in summary["baselines"].items()}
    of_seed = ""
    if (number_of_seeds := len(summary["seeds"])) > 1:
        of_seed = " of the best seed"
        compared = {f"mean of {number_of_seeds} seeds": others[0].value} | compared
    beside = ", ".join(f"{name} {number(value)}" for name, value in compared.items())
    yield (
        f"{first.name}{of_seed} {number(first.value)} on {first.n:,} {first.split} "
        f"{'row' if first.n == 1 else 'rows'} ({doubt}; {beside})"
    )
    if (most := summary.get(CEILING, {}).get(first.name)) is not None:
        of_references = "of the references themselves, encoded and decoded by the tokenizer"
        yield f"{first.name} {of_references}: {number(most)}"


def compared(own: np.ndarray, others: Mapping[str, np.ndarray]) -> dict[str, dict[str, list[float]]]:
    """Return each baseline's interval, and that of how far the model is above it, from drawn scores, (R,)."""
    return {
        name: {
            "interval": list(percentile_interval(scores)),
            "difference": list(percentile_interval(own - scores)),
        }
        for name, scores in others.items()
    }


def verdicts(task: Task, summary: Mapping[str, Any]) -> Iterator[Verdict]:
    """Compare the kept model with what needs no learning, with words alone, and with itself before."""
    criterion, split = summary["criterion"], summary["split"]
    if few := about_few_rows(**summary["drawn"]):
        yield few
        return
    scores = summary["seeds"][str(summary["best_seed"])][split]
    for name, found in summary["compared"].items():
        by = found.get("judged", {"metric": criterion, "own": summary["interval"]} | found)
        metric, interval, difference = by["metric"], by["own"], tuple(by["difference"])
        theirs, name_of_score = summary["baselines"][name].get(metric), called(metric, summary)
        if interval is None or theirs is None or not np.isfinite([theirs, *difference]).all():
            yield Verdict(f"Not compared with {GUESSES[name]}: not both have a finite {name_of_score}.")
            continue
        verdict = judge(
            GUESSES[name],
            (scores[metric], tuple(interval)),
            theirs,
            difference=difference,
            metric=name_of_score,
            is_higher_better=task.metrics[metric],
        )
        if metric != criterion:
            beside = f"{called(criterion, summary)} of {shown(scores[criterion])}"
            verdict = replace(verdict, text=f"{verdict.text[:-1]}, with a {beside}.")
        yield verdict


def guesses(prepared: Prepared, split: Split) -> dict[str, list[Prediction]]:
    """Predict a split by what ignores the text and, where there are labels, by what counts its words."""
    task, train = prepared.task, prepared.splits["train"].rows
    words = task.count_words(train, split.rows)
    guess = {task.baseline: task.guess(train, split.rows)}
    return guess if words is None else guess | {BAG_OF_WORDS: words}


def evaluate_before(prepared: Prepared, precision: str) -> Evaluation | None:
    """Score the model that the first seed begins with on the split that counts, as its run computes.

    `None`: its head is new.
    """
    if prepared.pretrained.fresh:
        return None
    device = cast(torch.device, join_processes().device)
    model, split = prepared.pretrained.model, prepared.splits[prepared.measured[-1]]
    nn.Module.to(model, device)
    with products_in(choose_precision(precision, device), device):
        found = evaluate_rows(model.eval(), prepared.task, split.rows, split.examples)
    nn.Module.to(model, "cpu")
    return found


def spread(measured: Sequence[str], results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean of each score over the seeds, and its standard deviation; nan where a seed has none."""
    return {
        "mean": {name: across(results, name, np.mean) for name in measured},
        "standard_deviation": {name: across(results, name, deviation) for name in measured},
    }


def across(results: Results, split: str, reduce: Callable[[list[float]], Any]) -> dict[str, float]:
    """Reduce each score of a split over the seeds to one number; nan if a seed has none."""
    names = next(iter(results.values()))[split]
    return {
        name: float(reduce([as_scores(result[split])[name] for result in results.values()])) for name in names
    }
