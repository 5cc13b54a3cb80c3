"""What the seeds of a run have come to: mean and spread, the best one with its interval, the baselines."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from ..metrics.bootstrap import deviation, percentile_interval
from ..pretraining.text import UNKNOWN
from ..reporting.next_steps import after_learning_a_task
from ..reporting.next_steps import as_data as steps_as_data
from ..reporting.page import save
from ..reporting.verdicts import FEWEST_ROWS, Verdict, about_few_rows, as_data, judge, shown, trusted
from ..stock.architectures import options_of_export
from ..storage.finished_run import EVALUATION, TEXTS
from ..storage.model_folder import load_config
from ..storage.scores import INTERVAL
from ..text.bad_rows import in_words
from ..text.special_tokens import share_of_unknown, tell_of_unknown, tell_of_unwritable
from ..text.texts_read import keep_texts
from ..training.disk import replace_text
from ..training.precision import choose_precision, join_processes, products_in
from ..training.run_folder import MODEL, RECIPE, SCORES, delete
from ..training.tracking import as_json, as_scores
from .evaluation import Evaluation, evaluate_rows
from .learning_rate import LearningRate
from .output import GRID, GRID_SCORES, PREDICTIONS, SEED, seed_folder
from .prepared import Prepared, Results
from .recipe import FineTuningRecipe
from .report import (
    BAD_ROWS,
    BAG_OF_WORDS,
    BEFORE,
    CEILING,
    GUESSES,
    SCORE_NAMES,
    SHARED,
    UNTRAINED,
    build_report,
    called,
    shared_in_words,
)
from .splits import Split, identify
from .task import Prediction, Task
from .text_rows import example_texts


def conclude(
    recipe: FineTuningRecipe,
    prepared: Prepared,
    results: Results,
    earlier: Evaluation,
    *,
    unadapted: Results | None = None,
    rate: LearningRate | None = None,
) -> None:
    """Sum the seeds up, put the best one's model where it is looked for, and write the report.

    Args:
        recipe: As it was carried out.
        prepared: Its rows and its tokenizer.
        results: Of all seeds.
        earlier: Of the pretrained model, from `evaluate_before`.
        unadapted: Results of the runs without further pretraining, if there was any.
        rate: What was chosen for the recipe.
    """
    folder = recipe.folder
    best_seed = min(results, key=lambda seed: prepared.task.minimized_metric(results[seed]["validation"]))
    chosen = seed_folder(folder, best_seed)
    delete(folder / MODEL)
    shutil.copytree(chosen / MODEL, folder / MODEL, dirs_exist_ok=True)
    shutil.copy(folder / RECIPE, folder / MODEL)
    shutil.copy(chosen / PREDICTIONS, folder / PREDICTIONS)
    predictions = read_predictions(folder / PREDICTIONS)
    summary = summarize(prepared, results, best_seed, predictions, earlier)
    if unadapted is not None:
        summary["before_adaptation"] = spread(prepared.measured, unadapted)
    if (folder / GRID_SCORES).exists():
        summary["grid"] = json.loads((folder / GRID_SCORES).read_text(encoding="utf-8"))
    summary["learning_rate"] = {
        "value": recipe.training.learning_rate,
        "reason": rate.reason if rate else "as the recipe or its grid says",
    }
    model, task = str(folder / MODEL), recipe.task
    export = options_of_export(load_config(folder / MODEL))
    steps = after_learning_a_task(model, example_texts(task), task.input_columns, export)
    summary["next_steps"] = steps_as_data(steps)
    replace_text(folder / SCORES, json.dumps(as_json(summary), indent=2) + "\n")
    replace_text(
        folder / EVALUATION, json.dumps(as_json(for_card(recipe, prepared, summary)), indent=2) + "\n"
    )
    save(build_report(recipe, prepared, summary, predictions, folder), folder)


def keep_rows(recipe: FineTuningRecipe, prepared: Prepared) -> None:
    """Write which rows a run reads, before it reads them.

    Bad rows are told of, rows that are learned from and measured on, and tokens that are unknown.

    Raises:
        ValueError: The run has begun with other rows: seeds and baselines would not be of the same ones.
    """
    texts = identify(recipe.data, {name: split.rows for name, split in prepared.splits.items()})
    rows = {name: len(split.rows) for name, split in prepared.splits.items()}
    for line in (in_words(prepared.bad_rows), *shared_in_words(prepared.shared_rows, rows)):
        if line:
            print(line, file=sys.stderr, flush=True)
    for name in prepared.measured:
        tell_of_unknown(unknown_in(prepared, name), f"the {name} rows")
        if "chrf" in prepared.task.metrics:
            references = prepared.task.references(prepared.splits[name].rows)
            tell_of_unwritable(references, prepared.pretrained.tokenizer, f"the {name} rows")
    finished = (f"{SEED}*", f"*/{SEED}*", f"{GRID}/*")
    goes_on = any(any(recipe.folder.glob(pattern)) for pattern in finished)
    keep_texts(recipe.folder / TEXTS, texts, goes_on=goes_on, may_change=False)


def read_predictions(file: Path) -> list[Prediction]:
    """Read predictions back; other ends of a line that Unicode knows may stand in their texts."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def summarize(
    prepared: Prepared,
    results: Results,
    best_seed: int,
    predictions: Sequence[Prediction],
    earlier: Evaluation,
) -> dict[str, Any]:
    """Join the scores of all seeds with the baselines and the interval of the best one."""
    task, measured = prepared.task, prepared.measured
    last = prepared.splits[measured[-1]]
    references = task.references(last.rows)
    before = UNTRAINED if prepared.pretrained.fresh else BEFORE
    predicted = guesses(prepared, last) | {before: earlier.predictions}
    scored = {name: task.score(each, references) for name, each in predicted.items()}
    drawn = {
        name: task.bootstrap(each, references)
        for name, each in predicted.items()
        if task.metric_for_best_model in scored[name]
    }
    own, number = task.bootstrap(predictions, references), len(task.drawn_rows(references))
    summary = {
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
            if name != before
        }
        | {before: as_json(earlier.scores)},
        **({CEILING: most} if (most := task.ceiling(references)) else {}),
        "compared": compared(own, drawn) if number >= FEWEST_ROWS else {},
    }
    other = task.against_guess()
    if task.baseline in summary["compared"] and other.metric_for_best_model != task.metric_for_best_model:
        own, guessed = (other.bootstrap(each, references) for each in (predictions, predicted[task.baseline]))
        summary["compared"][task.baseline]["judged"] = {
            "metric": other.metric_for_best_model,
            "own": trusted(percentile_interval(own), number),
            "difference": list(percentile_interval(own - guessed)),
        }
    return summary | {"verdicts": as_data(verdicts(task, summary))}


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
    """Compare the kept model with what needs no learning, with words alone, and with itself before.

    The last is left out where it goes without saying: a random head is worse than what beats a guess, and
    better than a random head is nothing where a guess, the first, is better still.
    """
    criterion, split = summary["criterion"], summary["split"]
    if few := about_few_rows(**summary["drawn"]):
        yield few
        return
    scores = summary["seeds"][str(summary["best_seed"])][split]
    told: list[Verdict] = []
    for name, found in summary["compared"].items():
        by = found.get("judged", {"metric": criterion, "own": summary["interval"]} | found)
        metric, interval, difference = by["metric"], by["own"], tuple(by["difference"])
        theirs, name_of_score = summary["baselines"][name].get(metric), called(metric, summary)
        if interval is None or theirs is None or not np.isfinite([theirs, *difference]).all():
            told.append(
                Verdict(f"Not compared with {GUESSES[name]}: not both have a finite {name_of_score}.")
            )
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
        outcomes = [each.outcome for each in (*told, verdict)]
        if name != UNTRAINED or (outcomes[0] != "worse" and {*outcomes} != {"better"}):
            told.append(verdict)
    yield from told


def guesses(prepared: Prepared, split: Split) -> dict[str, list[Prediction]]:
    """Predict a split by what ignores the text and, where there are labels, by what counts its words."""
    task, train = prepared.task, prepared.splits["train"].rows
    words = task.count_words(train, split.rows)
    guess = {task.baseline: task.guess(train, split.rows)}
    return guess if words is None else guess | {BAG_OF_WORDS: words}


def unknown_in(prepared: Prepared, split: str) -> float:
    """Return the share of a split's tokens that the tokenizer does not know."""
    ids = prepared.splits[split].examples.fields["input_ids"].values
    return share_of_unknown([ids], prepared.pretrained.tokenizer)


def evaluate_before(prepared: Prepared, precision: str) -> Evaluation:
    """Score the model that the first seed begins with on the split that counts, as its run computes."""
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


def for_card(recipe: FineTuningRecipe, prepared: Prepared, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that a model card tells: the best seed's scores of the last split."""
    kind, best = recipe.task.kind, summary["seeds"][str(summary["best_seed"])]
    scores = {f"{kind}/{name}": value for name, value in best[summary["split"]].items()}
    if summary["interval"] is not None:
        scores[f"{kind}/{prepared.task.metric_for_best_model}/{INTERVAL}"] = summary["interval"]
    return {
        "scores": scores,
        "split": summary["split"],
        "held_out": {UNKNOWN: summary[UNKNOWN][summary["split"]]},
        "seconds": best["seconds"],
        "step": best["steps"],
        "trained_on": best["trained_on"],
    }
