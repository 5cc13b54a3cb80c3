"""Whether a model's name can only be a path, and what to do if no model is there. Imports no torch."""

import json
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

RUNS = "runs"
"""The folder in which the shipped recipes have their outputs."""

MODEL = "model"
"""Folder of the finished model in that of its run, for `from_pretrained`."""

CONFIG = "config.json"
"""The file by which a folder is that of a model."""


TASK = "task.json"
"""File of a fine-tuned model's folder that says what the model can do."""


def is_path(name: str) -> bool:
    """Return whether a model's name can be no repository on the Hub: its form is not `owner/name`.

    >>> [is_path(name) for name in ("gpt2", "me/gpt2", "runs/gpt2", "./gpt2", "models/gpt2/model")]
    [False, False, True, True, True]
    """
    parts = Path(name).parts
    return len(parts) > 2 or parts[:1] == (RUNS,) or name.startswith((".", "~", "/"))


def require_folder(name: str, *, of_run: bool = False) -> None:
    """Refuse a folder that is no model (or run, if `of_run`); what may be on the Hub is left to it."""
    folder = Path(name).expanduser()
    if folder.is_file():
        raise ValueError(f"{name} is a file: name its folder")
    if not folder.exists():
        if not is_path(name):
            return
        is_unfinished = folder.name == MODEL and (folder.parent / "recipe.yaml").is_file()
        unfinished = "its run has not ended: continue it with --resume"
        remedy = unfinished if is_unfinished else nearest(folder, Path.is_dir, "check the path")
        raise FileNotFoundError(f"{name} does not exist: {remedy}")
    is_run = (folder / MODEL / CONFIG).is_file()
    if not (folder / CONFIG).is_file() and not (of_run and is_run):
        meant = (
            f"did you mean {Path(name) / MODEL}?" if is_run else "name a folder that save_pretrained wrote"
        )
        raise FileNotFoundError(f"{name} is not a model (it has no {CONFIG}): {meant}")


def read_task(folder: Path) -> dict[str, Any]:
    """Read what the folder of a model says that it was fine-tuned for: its `task`, and its `facts`."""
    if not (folder / TASK).exists():
        raise ValueError(
            f"{folder} has no {TASK}, so it was not made by tercet finetune: fine-tune it, or use "
            "transformers.pipeline"
        )
    try:
        told = json.loads((folder / TASK).read_text(encoding="utf-8"))
    except ValueError:
        told = None
    if not isinstance(told, dict) or not {"task", "facts"} <= told.keys():
        raise ValueError(f"{folder / TASK} is damaged: copy the model's folder again, or fine-tune it again")
    return told


def unknown_model(name: str, reason: str) -> FileNotFoundError:
    """Build the error about a model that is neither here nor on the Hub."""
    return FileNotFoundError(
        f"{name} is not a folder, and cannot be loaded from the Hub ({reason}): check the name, or the "
        "network"
    )


def nearest(path: Path, fits: Callable[[Path], bool], remedy: str) -> str:
    """Ask for what fits in the place of a missing path, and differs from it in a single name.

    Args:
        fits: Whether another one may be meant.
        remedy: What is returned if there is none.
    """
    *_, missing = (place for place in (path, *path.parents) if not place.exists())
    above, rest = missing.parent, path.relative_to(missing)
    fitting = [
        each.name
        for each in (above.iterdir() if above.is_dir() else ())
        if fits(each / rest) and get_close_matches(missing.stem, [each.stem])  # not alike by .jsonl alone
    ]
    near = get_close_matches(missing.name, fitting, n=1)
    return f"did you mean {above / near[0] / rest}?" if near else remedy
