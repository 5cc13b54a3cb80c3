"""What a finished run came to: its folder, its scores with their intervals, its model, its report.

All is read from the files that the run has written. A command tells it at its end: the score, beside what it
has to be compared with, what it shows, where the report is, and what may come next.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .reports.scores import Score as Score
from .reports.scores import between, from_data, number

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .modeling import NeuralPreTrainedModel

MOST_SHOWN = 3
"""Scores that stand for all of them in a line."""

STEPS = 3
"""Next commands that are named at the end; the report has all."""


class ScoresByName(dict[str, Score]):
    """Scores by name; an unknown one is answered with those that there are."""

    def __missing__(self, name: str) -> Score:
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
        """Everything that the run's report has found of its scores, as plain data."""
        return json.loads((self.folder / "scores.json").read_text(encoding="utf-8"))

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
        return ScoresByName((each["name"], from_data(each)) for each in self.details["scores"])

    @property
    def baselines(self) -> dict[str, float | None]:
        """What fine-tuning and prompting compare with: the first score of what needs no learning."""
        return dict(next(iter(self.scores.values())).baseline)

    @property
    def verdicts(self) -> list[str]:
        """What the scores show, a sentence each."""
        return [verdict["text"] for verdict in self.details["verdicts"]]

    def model(self) -> "NeuralPreTrainedModel":
        """Load the finished model with its head, in evaluation mode on the CPU.

        Raises:
            ValueError: The command makes no model.
        """
        from .modeling.saved.checkpoint import Checkpoint

        return Checkpoint.open(str(self.model_path)).ours().eval()

    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Load the finished model's tokenizer.

        Raises:
            ValueError: The command makes no model.
        """
        from .modeling.saved.checkpoint import Checkpoint

        return Checkpoint.open(str(self.model_path)).required_tokenizer()

    def ending(self) -> Iterator[str]:
        """Yield the lines with which the command ends in a terminal."""
        details = self.details
        yield from details["told"]
        yield from (verdict["text"] for verdict in details["verdicts"])
        yield f"report: {self.report.resolve().as_uri()}"  # a terminal or a browser opens it
        for step in details.get("next_steps", ())[:STEPS]:
            yield f"{step['note'] or 'next'}: {step['command']}"

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {score}" for name, score in [*self.scores.items()][:MOST_SHOWN])
        return f"<{self.command} in {self.folder}: {shown}>"

    def _repr_html_(self) -> str:
        from .reports.blocks import Bullets, Prose, Table
        from .reports.page import as_html

        rows = [[name, *cells(score)] for name, score in self.scores.items()]
        rows += [[f"baseline: {name}", number(value), ""] for name, value in self.baselines.items()]
        blocks = [
            Table([f"{self.command} in {self.folder}", "score", "95 % interval"], rows),
            *([Bullets(self.verdicts)] if self.verdicts else []),
            Prose(f"[report]({self.report})"),
        ]
        return "\n".join(map(as_html, blocks))


def cells(score: Score) -> list[str]:
    return [number(score.value), "" if score.interval is None else between(score.interval)]
