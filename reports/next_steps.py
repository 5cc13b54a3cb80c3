"""What may come next: the commands that go on from a run's model, as its report and its terminal name them.

A run keeps them among its scores, as its verdicts.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .blocks import Block, Heading, Prose

ROWS = "FILE"
"""What stands for a file of rows that the user has."""


@dataclass(frozen=True)
class NextStep:
    """A command."""

    command: str
    """As a shell takes it."""
    purpose: str
    """What it does, in words that go on from it."""
    note: str = ""
    """What it takes or is for, in parentheses behind it."""


def after_pretraining(model: str, *, can_classify: bool, export: str | None = None) -> Iterator[NextStep]:
    """Yield what may be done with a pretrained model.

    Args:
        can_classify: Whether its member has a head for labels of texts.
        export: As in `to_hand_on`.
    """
    path, key = shlex.quote(model), shlex.quote(f"model.path={model}")
    yield NextStep(f"tercet play {path}", "lets you try the model on texts of your own")
    if can_classify:
        command = f"tercet finetune text-classification {key} data.train={ROWS}"
        yield NextStep(command, "teaches it to label texts", "with rows of text and label")
    yield from to_hand_on(model, export)
    yield NextStep(f"tercet doctor {path}", "examines it")
    yield NextStep(f"tercet pretrain RECIPE {key}", "trains it further, on the same or on other text")


def after_learning_a_task(
    model: str, texts: Sequence[str], columns: Sequence[str], export: str | None = None
) -> Iterator[NextStep]:
    """Yield what may be done with a model that knows a task.

    Args:
        texts: What stands for the texts of a row.
        columns: That hold these in a file of rows.
        export: As in `to_hand_on`.
    """
    path = shlex.quote(model)
    yield NextStep(f"tercet predict {path} {' '.join(map(in_quotes, texts))}", "predicts a text")
    command = f"tercet predict {path} {ROWS} --output predictions.jsonl"
    yield NextStep(command, "predicts the rows of a file", f"with rows of {' and '.join(columns)}")
    yield from to_hand_on(model, export)
    yield NextStep(f"tercet play {path}", "lets you try the model in a browser")
    yield NextStep(f"tercet push {path} OWNER/NAME", "publishes it on the Hub, with a card about this run")


def to_hand_on(model: str, export: str | None) -> Iterator[NextStep]:
    """Yield how others may use a model; `export` has the options of the command, `None`: it has no form."""
    if export is not None:
        command = f"tercet export {shlex.quote(model)} FOLDER{export}"
        yield NextStep(command, "writes it with a comparison of both", "to use it without Tercet's code")


def in_quotes(text: str) -> str:
    """Write a text as a shell takes it, in double quotes where these do.

    >>> print(in_quotes("a text"), in_quotes("$5"))
    "a text" '$5'
    """
    return f'"{text}"' if text.replace(" ", "").isalnum() else shlex.quote(text)


def as_data(steps: Iterable[NextStep]) -> list[dict[str, str]]:
    return [asdict(step) for step in steps]


def next_steps(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the end of a report: the steps that its run has kept."""
    steps = [NextStep(**step) for step in summary.get("next_steps", ())]
    if steps:
        yield Heading("Next steps")
    for step in steps:
        yield Prose(f"`{step.command}` {step.purpose}{f' ({step.note})' if step.note else ''}.")
