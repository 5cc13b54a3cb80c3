"""Runs with their reports, as the commands make them: functions for tests of what stands in both."""

from functools import wraps
from pathlib import Path
from typing import Any

from tercet.distill.run import distill as teach
from tercet.fewshot.run import fewshot as evaluate
from tercet.finetune.run import finetune as fine_tune
from tercet.finished_reports import write_report
from tercet.pretraining.run import pretrain as train


def with_report(command: str, carry_out: Any) -> Any:
    """Let the function of a command also make the report of its run."""

    @wraps(carry_out)
    def run(recipe: Any, **options: Any) -> Path:
        made = carry_out(recipe, **options)
        write_report(command, recipe.folder)
        return made

    return run


pretrain = with_report("pretrain", train)
distill = with_report("distill", teach)
fewshot = with_report("fewshot", evaluate)
finetune = with_report("finetune", fine_tune)

PARTS = ("report.md", "report.html", "scores.json")
"""What a report consists of, as far as a kind has it."""


def read_report(folder: Path) -> dict[str, bytes]:
    """Read the report in the folder of a run."""
    return {name: (folder / name).read_bytes() for name in PARTS if (folder / name).exists()}


def remove_report(folder: Path) -> None:
    """Remove the report in the folder of a run, and its charts."""
    for file in (*map(folder.joinpath, PARTS), *folder.glob("*.png")):
        file.unlink(missing_ok=True)
