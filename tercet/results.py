"""What a finished run came to: its folder, its scores with their intervals, its model, its report.

All is read from the files that the run has written. A command tells it at its end: the score, beside what it
has to be compared with, what it shows, where the report is, and what may come next.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .reporting.verdicts import missing_interval

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .modeling import NeuralPreTrainedModel

Scores = Mapping[str, Any]
"""What a run has written as JSON."""

MOST_SHOWN = 3
"""Scores that stand for all of them in a line."""

STEPS = 3
"""Next commands that are named at the end; the report has all."""


@dataclass(frozen=True)
class Score:
    """A score, and its 95 % interval where the run has computed one."""

    value: float | None
    """The score; `None` if it is undefined."""
    interval: tuple[float, float] | None = None
    """The ends of its interval."""

    def __str__(self) -> str:
        """Write the score, with its interval in brackets."""
        ends = "" if self.interval is None else f" [{', '.join(map(number, self.interval))}]"
        return f"{number(self.value)}{ends}"


class ScoresByName(dict[str, Score]):
    """Scores by name; an unknown one is answered with those that there are."""

    def __missing__(self, name: str) -> Score:
        """Name the scores.

        Raises:
            KeyError: Always.
        """
        near = get_close_matches(str(name), self, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise KeyError(f"there is no score {name!r}: {meant}there are {', '.join(map(repr, self))}")


@dataclass(frozen=True)
class Result:
    """What a run has left in its folder. All is read from there when it is asked for."""

    command: str
    """`pretrain`, `finetune`, `distill` or `fewshot`."""
    folder: Path
    """Folder of the run."""

    @property
    def model_path(self) -> Path:
        """Folder of the finished model, for `from_pretrained` and as `model.path` of another recipe.

        Raises:
            ValueError: The command makes no model.
        """
        if self.command == "fewshot":
            raise ValueError("fewshot evaluates models and makes none: load the model that was evaluated")
        return self.folder / "model"

    @property
    def report(self) -> Path:
        """The report, a page for a browser."""
        return self.folder / "report.html"

    @property
    def details(self) -> Mapping[str, Any]:
        """Everything that the run has written about its scores, as plain data."""
        file = self.folder / FILES[self.command].name
        return json.loads(file.read_text(encoding="utf-8"))

    @property
    def scores(self) -> dict[str, Score]:
        """The scores by name.

        Of a pretraining run, the names are those of the evaluation (`clm/perplexity`). Of a fine-tuning run,
        they are the task's metrics, on the test rows if there are some and else on the validation rows: those
        of the model that was kept and, of several seeds, their means (`accuracy, mean of 3 seeds`). Of a
        distillation, they are the models (`student`, `teacher`, ...) with their score by the task's metric
        or by each measure, and `share kept`. Of prompting, they are each model and number of demonstrations:
        `gpt2, K = 4`.
        """
        return ScoresByName(FILES[self.command].scores(self.details))

    @property
    def baselines(self) -> dict[str, float | None]:
        """What fine-tuning and prompting compare with: the score of each baseline by the run's metric."""
        details = self.details
        return {
            name: score[details["criterion"]] if isinstance(score, dict) else score
            for name, score in details.get("baselines", {}).items()
        }

    @property
    def verdicts(self) -> list[str]:
        """What the scores show, a sentence each."""
        return [verdict["text"] for verdict in self.details["verdicts"]]

    def model(self) -> "NeuralPreTrainedModel":
        """Load the finished model with its head, in evaluation mode on the CPU.

        Raises:
            ValueError: The command makes no model.
        """
        from .storage.checkpoint import Checkpoint

        return Checkpoint.open(str(self.model_path)).ours().eval()

    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Load the finished model's tokenizer.

        Raises:
            ValueError: The command makes no model.
        """
        from .storage.checkpoint import Checkpoint

        return Checkpoint.open(str(self.model_path)).required_tokenizer()

    def ending(self) -> Iterator[str]:
        """Yield the lines with which the command ends in a terminal."""
        details = self.details
        yield from FILES[self.command].told(details)
        yield from (verdict["text"] for verdict in details["verdicts"])
        yield f"report: {self.report.resolve().as_uri()}"  # a terminal or a browser opens it
        for step in details.get("next_steps", ())[:STEPS]:
            yield f"{step['needs'] or 'next'}: {step['command']}"

    def __repr__(self) -> str:
        """Name the run and its first scores."""
        shown = ", ".join(f"{name} {score}" for name, score in [*self.scores.items()][:MOST_SHOWN])
        return f"<{self.command} in {self.folder}: {shown}>"

    def _repr_html_(self) -> str:
        """Show the scores, what they mean and where the report is, in a notebook."""
        from .reporting.blocks import Bullets, Prose, Table
        from .reporting.page import as_html

        rows = [[name, *cells(score)] for name, score in self.scores.items()]
        rows += [[f"baseline: {name}", number(value), ""] for name, value in self.baselines.items()]
        blocks = [
            Table([f"{self.command} in {self.folder}", "score", "95 % interval"], rows),
            *([Bullets(self.verdicts)] if self.verdicts else []),
            Prose(f"[report]({self.report})"),
        ]
        return "\n".join(map(as_html, blocks))


def cells(score: Score) -> list[str]:
    """Write a score and its interval into two cells."""
    return [number(score.value), "" if score.interval is None else between(score.interval)]


def between(interval: tuple[float, float]) -> str:
    """Write the ends of an interval."""
    return " to ".join(map(number, interval))


def as_pair(interval: list[float] | None) -> tuple[float, float] | None:
    """Return an interval as JSON has it; there may be none."""
    return None if interval is None else (interval[0], interval[1])


def number(value: float | None) -> str:
    """Write a score; one that is not finite is written as JSON's null."""
    return "undefined" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


@dataclass(frozen=True)
class Written:
    """Where a command writes its scores, and how they are read."""

    name: str
    """The file in the run's folder."""
    scores: Callable[[Scores], Iterator[tuple[str, Score]]]
    """Finds the scores in what it holds."""
    told: Callable[[Scores], Iterator[str]]
    """Yields the lines in which a command tells them at its end."""


def pretraining_scores(details: Scores) -> Iterator[tuple[str, Score]]:
    """Yield the scores on held-out text."""
    scores = details["scores"]
    for name, value in scores.items():
        if name.rpartition("/")[2] not in ("targets", "interval"):  # of each score: how many, how sure
            interval = scores.get(f"{name}/interval")
            yield name, Score(value, as_pair(interval))


def finetuning_scores(details: Scores) -> Iterator[tuple[str, Score]]:
    """Yield the task's metrics of the kept model, the one that chose it first, with its interval.

    Of several seeds, each is followed by its mean.
    """
    split, criterion, seeds = details["split"], details["criterion"], details["seeds"]
    found = seeds[str(details["best_seed"])][split]
    for name in sorted(found, key=lambda name: name != criterion):
        yield name, Score(found[name], as_pair(details["interval"]) if name == criterion else None)
        if len(seeds) > 1:
            yield f"{name}, mean of {len(seeds)} seeds", Score(details["mean"][split][name])


def distillation_scores(details: Scores) -> Iterator[tuple[str, Score]]:
    """Yield the scores of student, teacher and controls in the last step, and what the student keeps."""
    models = (details.get("task") or details["general"])["scores"]
    for model, own in reversed(models.items()):
        of_measures = {model: own} if "score" in own else {f"{model}, {name}": s for name, s in own.items()}
        for name, kept in of_measures.items():
            if "score" in kept:
                yield name, Score(kept["score"])
            if kept.get("share") is not None:
                yield f"{name}: share kept", Score(kept["share"], as_pair(kept["interval"]))


def prompting_scores(details: Scores) -> Iterator[tuple[str, Score]]:
    """Yield the score of each model with each number of demonstrations."""
    for model in details["models"]:
        for shots, own in model["shots"].items():
            yield f"{model['name']}, K = {shots}", Score(own["mean"], as_pair(own["interval"]))


def told_of_pretraining(evaluation: Scores) -> Iterator[str]:
    """Yield the scores on held-out text."""
    scores = evaluation["scores"]
    terms: dict[str, list[str]] = {}
    for name, value in scores.items():
        term, _, score = name.rpartition("/")
        if term and score not in {"loss", "targets", "interval"}:
            interval = scores.get(f"{name}/interval")
            ends = f" [{', '.join(map(number, interval))}]" if interval else ""
            terms.setdefault(term, []).append(f"{score} {number(value)}{ends}")
    told = "; ".join(f"{term.replace('_', ' ')}: {', '.join(own)}" for term, own in terms.items())
    loss = f"loss {number(scores.get('loss'))}"
    yield f"on held-out text: {told or loss}"


def told_of_fine_tuning(summary: Scores) -> Iterator[str]:
    """Yield the score of the kept model with its interval, the mean over several seeds, and the baselines."""
    split, metric, seeds = summary["split"], summary["criterion"], summary["seeds"]
    rows, interval = summary["rows"][split], as_pair(summary["interval"])
    doubt = (
        f"95 % interval {between(interval)}"
        if interval
        else f"no interval: {missing_interval(**summary['drawn'])}"
    )
    others = {name: scores.get(metric) for name, scores in summary["baselines"].items()}
    of_seed = ""
    if len(seeds) > 1:
        of_seed = " of the best seed"
        others = {f"mean of {len(seeds)} seeds": summary["mean"][split][metric]} | others
    told = ", ".join(f"{name} {number(value)}" for name, value in others.items())
    yield (
        f"{metric}{of_seed} {number(seeds[str(summary['best_seed'])][split][metric])} on {rows:,} {split} "
        f"{'row' if rows == 1 else 'rows'} ({doubt}; {told})"
    )
    if (most := summary.get("ceiling", {}).get(metric)) is not None:
        yield f"{metric} of the references themselves, encoded and decoded by the tokenizer: {number(most)}"


def told_of_distillation(summary: Scores) -> Iterator[str]:
    """Yield the scores of student and teacher, and of the same student without a teacher."""
    step = summary.get("task") or summary["general"]
    yield "; ".join(
        f"{name} {told_of_model(scores, step)}" for name, scores in reversed(step["scores"].items())
    )


def told_of_model(scores: Scores, step: Scores) -> str:
    """Return the score of a model in the last step of a distillation: of its task, or by each measure."""
    if "score" in scores:
        return f"{step['criterion']} {number(scores['score'])}"
    measures = {name: kept["score"] for name, kept in scores.items() if "score" in kept}
    return ", ".join(f"{name} {number(value)}" for name, value in measures.items())


def told_of_prompting(results: Scores) -> Iterator[str]:
    """Yield each model's score for every number of demonstrations."""
    for model in results["models"]:
        for shots, own in model["shots"].items():
            interval = as_pair(own["interval"])
            doubt = between(interval) if interval else f"no interval: {missing_interval(own['rows'])}"
            yield f"{model['name']}, K = {shots}: {results['criterion']} {number(own['mean'])} ({doubt})"
    about = "K demonstrations in a prompt, 95 % intervals"
    if baselines := [f"{name} {number(value)}" for name, value in results["baselines"].items()]:
        about = f"baselines of all rows: {', '.join(baselines)}; {about}"
    yield about


FILES = {
    "pretrain": Written("evaluation.json", pretraining_scores, told_of_pretraining),
    "finetune": Written("scores.json", finetuning_scores, told_of_fine_tuning),
    "distill": Written("scores.json", distillation_scores, told_of_distillation),
    "fewshot": Written("results.json", prompting_scores, told_of_prompting),
}
"""Command -> what it leaves."""
