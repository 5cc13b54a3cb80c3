"""The demonstration's page, made from the folders of its runs: what was learned, then what models answer."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...finetune.output import PREDICTIONS
from ...reports.blocks import (
    Block,
    Bullets,
    Example,
    Examples,
    Heading,
    Line,
    Prose,
    Report,
    Run,
    Table,
    Verdicts,
)
from ...reports.verdicts import Verdict
from ...training.run_folder import EVALUATION, PAGE, SCORES
from .tasks import CHOICES, READ_WORDS, STAND_IN, evenly_spaced

MEMBERS = {"encoder": "Encoder", "decoder": "Decoder", "seq2seq": "Sequence to sequence"}
"""Folder of a pretraining -> the kind of model."""
JOBS = {"": "pretrained", "finetuned": "fine-tuned", "distilled": "distilled"}
"""Folder above that of a run -> what is done there."""
PROMPTED, TASKS = "prompted", "tasks"
"""Folders of the evaluation with prompts, and of the rows."""
NUM_SHOWN = 3  # held-out texts of each run

HOW_TO_READ = (
    "Losses are nats per held-out token: lower is better. Fine-tuned and distilled models tell which of "
    f"eight packages a paragraph documents, whose names are replaced by `{STAND_IN}`; prompted ones, which "
    f"of {CHOICES} texts goes on from {READ_WORDS} words. No model was trained on the test rows' modules. "
    "Brackets are 95 % bootstrap intervals; they do not cover other seeds: each run is done once."
)


def build_page(
    folder: Path,
    times: Mapping[str, tuple[float, float]],
    shortened: Mapping[str, Sequence[str]],
    minutes: float,
) -> Report:
    """Build the page from the folder of a demonstration, and its runs' times in seconds, as on processors."""
    verdicts = [verdict for run in times for verdict in verdicts_of(folder, run)]
    good = sum(verdict.outcome == "better" for verdict in verdicts)
    return Report(
        f"What three small Transformers learned in {minutes:.0f} minutes",
        f"{good} of {len(verdicts)} verdicts are in favour of the models. They began with random weights and "
        "read documentation that is installed on this machine, so figures of other machines differ.",
        [
            Verdicts(verdicts),
            Prose(HOW_TO_READ),
            *(block for member in MEMBERS for block in samples(folder, member)),
            *answers(folder),
            Heading("Runs"),
            Table(
                ["", "time", "processor time"],
                [[name_of(run), *(f"{each:,.0f} s" for each in own)] for run, own in times.items()],
            ),
            Prose(f"Their reports: {', '.join(f'[{name_of(run)}]({run}/{PAGE})' for run in times)}."),
            Prose("The recipes are shipped; as they are, without these settings, they train for longer:"),
            Bullets([f"{recipe}: {' '.join(settings)}" for recipe, settings in shortened.items()]),
        ],
    )


def verdicts_of(folder: Path, run: str) -> Iterator[Verdict]:
    """Yield the verdicts that a run's own report has, with the name of the run."""
    for each in json.loads((folder / run / SCORES).read_text(encoding="utf-8"))["verdicts"]:
        yield Verdict(f"{name_of(run)}. {each['text']}", each["outcome"])


def name_of(run: str) -> str:
    """Name a run.

    >>> name_of("finetuned/seq2seq"), name_of("decoder"), name_of("prompted")
    ('Sequence to sequence, fine-tuned', 'Decoder, pretrained', 'Prompted')
    """
    kind, _, member = run.rpartition("/")
    return f"{MEMBERS[member]}, {JOBS[kind]}" if member in MEMBERS else run.capitalize()


def samples(folder: Path, member: str) -> Iterator[Block]:
    """Show what a pretrained model does with held-out texts."""
    shown = json.loads((folder / member / EVALUATION).read_text(encoding="utf-8"))["samples"]
    yield Heading(f"{MEMBERS[member]}: held-out texts, evenly spaced")
    yield Examples([example(each) for each in evenly_spaced(shown, NUM_SHOWN)])


def answers(folder: Path) -> Iterator[Block]:
    """Show what the fine-tuned models answer, all on the same rows."""
    rows = lines_of(folder / TASKS / "packages-test.jsonl")
    predicted = {name: lines_of(folder / "finetuned" / run / PREDICTIONS) for run, name in MEMBERS.items()}
    found = [
        {"paragraph": row["text"], "right": row["label"]}
        | {name: own[number]["label"] for name, own in predicted.items()}
        for number, row in enumerate(rows)
    ]
    yield Heading("Which package does a paragraph document? Test rows, evenly spaced")
    yield Examples([example(each) for each in evenly_spaced(found, NUM_SHOWN)])


def example(lines: Mapping[str, str]) -> Example:
    return Example([Line(label, [Run(text)]) for label, text in lines.items()])


def lines_of(file: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
