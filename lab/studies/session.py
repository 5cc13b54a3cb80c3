"""What `tercet study` does: lists studies, or runs one, and may ask the reader to predict before it does."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tercet.configs.named_files import named_path
from tercet.data.files.atomic_writes import replace_text
from tercet.data.files.locks import made

from .study import Study, all_studies, find_study, require_switch

OUTCOMES = ("confirmed", "refuted", "undecided")

RESULT = "study.json"
"""File of what was measured, by which a folder is that of a study."""

NAME_WIDTH = 22
"""Columns for a name in the list."""


def list_studies() -> str:
    """List the studies, one in a line."""
    return "\n".join(line_of(study) for study in all_studies().values())


def line_of(study: Study) -> str:
    """Name a study, what it is about, and its time if it takes more than a minute."""
    long = f" ({study.minutes} minutes)" if study.minutes > 1 else ""
    return f"{study.name:<{NAME_WIDTH}} {study.title}{long}"


def carry_out(
    name: str, *, broken: str = "", predict: bool = False, seeds: int | None = None, output: str | None = None
) -> str:
    """Run a study, write its page, and return what is to be read in the terminal.

    Args:
        name: Of the study.
        broken: A switch that breaks the claim.
        predict: Whether to ask the reader first.
        seeds: How many, if not as many as the study says.
        output: The folder to write; by default runs/studies and the name. An earlier study there is replaced.

    Raises:
        ValueError: There is no such study or switch, too few seeds, the folder holds something else, or the
            reader answers nothing.
    """
    study = find_study(name)
    require_switch(study, broken)
    require_seeds(seeds)
    folder = named_path(
        output or Path("runs", "studies", name + (f"-{broken}" if broken else "")), "--output"
    )
    require_unused(folder)
    answers = (
        ask(study, sys.stdin, lambda line: print(line, file=sys.stderr, flush=True)) if predict else None
    )
    # What computes is imported here, after the reader has answered.
    from tercet.reports.blocks import Figure
    from tercet.reports.page import save
    from tercet.reports.text import for_terminal

    from .pages import blocks_of, report_of, table_of
    from .running import run_study
    from .verdicts import judged

    with made(folder):
        result = run_study(study, broken, seeds, lambda line: print(line, file=sys.stderr, flush=True))
        replace_text(folder / RESULT, json.dumps(result, indent=1) + "\n")
        save(report_of(study, result, folder), folder)
    shown = [block for block in blocks_of(study, result, Figure("", "", "")) if not isinstance(block, Figure)]
    lines = [study.title, for_terminal(shown)]
    if answers is not None:
        said, numbers = answers
        right = "right" if said == judged(study, result) else "not what was measured"
        lines += [f"You said: {said}, which is {right}.", for_terminal([table_of(study, result, numbers)])]
    return "\n\n".join([*lines, str(folder / "report.html")])


def require_unused(folder: Path) -> None:
    """Raise a `ValueError` if a folder is a file, or holds something, but no study."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output is {folder}, which is a file: name a folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / RESULT).exists():
        raise ValueError(f"{folder} is not empty and holds no {RESULT} of a study: choose another --output")


def require_seeds(seeds: int | None) -> None:
    """Raise a `ValueError` unless there are seeds enough for an interval."""
    if seeds is not None and seeds < 2:
        raise ValueError(f"--seeds is {seeds}, but an interval needs two or more: choose 2 or more")


def ask(study: Study, answers: TextIO, say: Callable[[str], Any]) -> tuple[str, dict[str, float]]:
    """Ask a reader for the verdict, and for each value; what is left empty is no answer.

    Raises:
        ValueError: The answers end before the verdict.
    """
    say(f"{study.title}\n\nClaim: {study.claim} ({study.source})\n\nMethod: {study.about_method}\n")
    say(f"Will it be {', '.join(OUTCOMES[:-1])} or {OUTCOMES[-1]}? (c, r, u)")
    verdict = answered(answers, say, verdict_meant, "write c, r or u")
    if verdict is None:
        raise ValueError(
            "--predict reads your answers, but there are none: answer in the terminal, or leave it out"
        )
    numbers = {}
    for name in study.expected:
        say(f"{name}? (a number, or nothing)")
        number = answered(
            answers, say, lambda text: float(text) if text else None, "write a number, or nothing"
        )
        if number is not None:
            numbers[name] = number
    return verdict, numbers


def answered(answers: TextIO, say: Callable[[str], Any], read: Callable[[str], Any], remedy: str) -> Any:
    """Read one answer, again until it can be understood; `None` at the end of the answers."""
    for line in answers:
        try:
            return read(line.strip())
        except ValueError:
            say(remedy)
    return None


def verdict_meant(text: str) -> str:
    """Return the verdict that a word begins.

    Raises:
        ValueError: It begins none.

    >>> verdict_meant("r"), verdict_meant("Confirmed")
    ('refuted', 'confirmed')
    """
    for outcome in OUTCOMES:
        if text and outcome.startswith(text.lower()):
            return outcome
    raise ValueError(text)
