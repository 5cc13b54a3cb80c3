"""The report of a finished run, made from its folder: when it has ended, and by `tercet report`."""

from importlib import import_module
from pathlib import Path

from .configs.model_paths import MODEL


class ReportError(RuntimeError):
    """The report of a run that has ended could not be made."""


def find_finished(folder: Path) -> Path:
    """Return the folder of a finished run, which may be named by its model's."""
    folder = folder.parent if folder.name == MODEL else folder
    if not (folder / "recipe.yaml").is_file():
        raise ValueError(f"{folder} has no recipe.yaml, so it is no folder of a run: name one")
    if not (folder / "evaluation.json").is_file():
        raise ValueError(f"the run in {folder} has not ended: let its command end first, with --resume")
    return folder


def write_report(command: str, folder: Path) -> None:
    """Make the report of a finished run of a command."""
    from .kinds import kind_of
    from .reports.finished_run import report_on

    report = import_module(f".reports.{kind_of(command).folder}.report", __package__)
    report_on(folder, report.write_report, makes_model=command != "fewshot")


def report_after(command: str, folder: Path) -> None:
    """Make the report of a run that has just ended, once for all processes of its launch.

    Raises:
        ReportError: It cannot be made; the message says how to make it later.
        KeyboardInterrupt: The same.
    """
    from accelerate import PartialState

    if command != "fewshot" and not PartialState().is_main_process:
        return
    try:
        write_report(command, folder)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the run has ended, and its report was interrupted: {again(folder)}"
        ) from None
    except Exception as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise ReportError(
            f"the run has ended, and all that it made is in {folder}, but not its report ({what}): "
            f"{again(folder)}"
        ) from error


def again(folder: Path) -> str:
    """Say how the report of a run is made later."""
    return f"make it with tercet report {folder}"
