"""What a command says at its end: the score, beside what it has to be compared with, where the report is, and
what the score shows.

It is read from the files that the run has written, and printed to stderr: stdout has the folder alone, for
scripts.
"""

import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Scores = Mapping[str, Any]
"""What a run has written as JSON."""


def tell(ending: Callable[[Path], Iterator[str]], folder: Path) -> None:
    """Print how a run in a folder ended."""
    for line in ending(folder):
        print(line, file=sys.stderr)


def pretraining_ending(folder: Path) -> Iterator[str]:
    """Yield the scores on held-out text, and what may come next."""
    evaluation = read(folder / "evaluation.json")
    scores = evaluation["scores"]
    terms: dict[str, list[str]] = {}
    for name, value in scores.items():
        term, _, score = name.rpartition("/")
        if term and score not in {"loss", "targets"}:
            terms.setdefault(term, []).append(f"{score} {number(value)}")
    told = "; ".join(f"{term.replace('_', ' ')}: {', '.join(own)}" for term, own in terms.items())
    loss = f"loss {number(scores.get('loss'))}"
    yield f"on held-out text: {told or loss}"
    yield f"report: {link(folder / 'report.html')}"
    model = folder / "model"
    if "loss" in scores and not is_number(scores["loss"]):
        yield (
            "the loss on held-out text is not finite, so the model is of no use: lower "
            "training.optimizer.learning_rate, and start over with --overwrite"
        )
        return
    trained = evaluation.get("models", {}).get("model", "")
    if not classifies_texts(trained):
        yield f"next: tercet play {shlex.quote(str(model))}"
    else:
        path = shlex.quote(f"model.path={model}")
        yield f"next: tercet finetune text-classification {path} data.train=FILE output=FOLDER"
    yield from verdicts(evaluation)


def classifies_texts(name: str) -> bool:
    """Return whether a model's member has a head for labels of texts; an unknown one is taken to have.

    Args:
        name: Of the model's class, perhaps behind what wrappers put before it (`FSDP...`).
    """
    from transformers import AutoModelForSequenceClassification

    from .modeling import AUTO_CLASSES

    models = {model for models in AUTO_CLASSES.values() for model in models}
    members = {model.config_class for model in models if name.endswith(model.__name__)}
    classifiers = {model.config_class for model in AUTO_CLASSES[AutoModelForSequenceClassification]}
    return members <= classifiers


def finetuning_ending(folder: Path) -> Iterator[str]:
    """Yield the score of the task with its interval and its baselines."""
    summary = read(folder / "scores.json")
    split, metric = summary["split"], summary["criterion"]
    rows, interval = summary["rows"][split], " to ".join(map(number, summary["interval"]))
    baselines = [f"{name} {number(scores.get(metric))}" for name, scores in summary["baselines"].items()]
    yield (
        f"{metric} {number(summary['mean'][split][metric])} on {rows:,} {split} "
        f"{'row' if rows == 1 else 'rows'} (95 % interval {interval}; {', '.join(baselines)})"
    )
    yield f"report: {link(folder / 'report.html')}"
    yield f"next: tercet predict {shlex.quote(str(folder / 'model'))} FILE"
    yield from verdicts(summary)


def distillation_ending(folder: Path) -> Iterator[str]:
    """Yield the scores of student and teacher, and of the same student without a teacher."""
    summary = read(folder / "scores.json")
    step = summary.get("task") or summary["general"]
    yield "; ".join(f"{name} {told(scores, step)}" for name, scores in reversed(step["scores"].items()))
    yield f"report: {link(folder / 'report.html')}"
    yield from verdicts(summary)


def told(scores: Scores, step: Scores) -> str:
    """Return the score of a model in the last step of a distillation: of its task, or by each measure."""
    if "score" in scores:
        return f"{step['criterion']} {number(scores['score'])}"
    measures = {name: kept["score"] for name, kept in scores.items() if "score" in kept}
    return ", ".join(f"{name} {number(value)}" for name, value in measures.items())


def prompting_ending(folder: Path) -> Iterator[str]:
    """Yield each model's score for every number of demonstrations."""
    results = read(folder / "results.json")
    for model in results["models"]:
        for shots, own in model["shots"].items():
            interval = " to ".join(map(number, own["interval"]))
            yield f"{model['name']}, K = {shots}: {results['criterion']} {number(own['mean'])} ({interval})"
    about = "K demonstrations in a prompt, 95 % intervals"
    if baselines := [f"{name} {number(value)}" for name, value in results["baselines"].items()]:
        about = f"baselines: {', '.join(baselines)}; {about}"
    yield about
    yield f"report: {link(folder / 'report.html')}"
    yield from verdicts(results)


def verdicts(scores: Scores) -> Iterator[str]:
    """Yield the sentences that a report begins with: what the scores show."""
    for verdict in scores["verdicts"]:
        yield verdict["text"]


def read(file: Path) -> Scores:
    """Read what a run has written."""
    return json.loads(file.read_text(encoding="utf-8"))


def is_number(value: float | None) -> bool:
    """Return whether a score is finite; JSON has null for one that is not."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> str:
    """Write a score; one that is not finite is written as JSON's null."""
    return "undefined" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def link(file: Path) -> str:
    """Return an address that a terminal or a browser opens."""
    return file.resolve().as_uri()
