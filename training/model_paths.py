"""Whether a model's name can only be a path, and what to do if nothing is there. Imports no torch."""

from difflib import get_close_matches
from pathlib import Path

RUNS = "runs"
"""The folder in which the shipped recipes have their outputs."""


def is_path(name: str) -> bool:
    """Return whether a model's name can be no repository on the Hub: its form is not `owner/name`.

    >>> [is_path(name) for name in ("gpt2", "me/gpt2", "runs/gpt2", "./gpt2", "models/gpt2/model")]
    [False, False, True, True, True]
    """
    parts = Path(name).parts
    return len(parts) > 2 or parts[:1] == (RUNS,) or name.startswith((".", "~", "/"))


def require_path(name: str) -> None:
    """Refuse a model whose name can only be a path if there is nothing.

    Raises:
        FileNotFoundError: With what probably helps: to resume the run, or a similar path.
    """
    path = Path(name).expanduser()
    if not is_path(name) or path.exists():
        return
    is_unfinished = path.name == "model" and (path.parent / "recipe.yaml").is_file()
    near = "" if is_unfinished else nearest(path)
    remedy = "its run has not ended: continue it with --resume" if is_unfinished else "check the path"
    raise FileNotFoundError(f"{name} does not exist: {f'did you mean {near}?' if near else remedy}")


def nearest(path: Path) -> str:
    """Find a folder whose path differs from a missing one in a single name; empty if there is none."""
    *_, missing = (each for each in (path, *path.parents) if not each.exists())
    if not missing.parent.is_dir():
        return ""
    siblings = [each.name for each in missing.parent.iterdir() if each.is_dir()]
    rest = path.relative_to(missing)
    found = [missing.parent / name / rest for name in get_close_matches(missing.name, siblings)]
    return next((str(each) for each in found if each.is_dir()), "")
