"""Paths that a recipe names, checked before anything is looked for there."""

import os
from contextlib import suppress
from pathlib import Path


def named_path(name: str | Path, key: str) -> Path:
    """Make a path of what a recipe says under `key`; it need not exist. `~` is the user's home."""
    if not str(name).strip():
        raise ValueError(f"{key} is {str(name)!r}: name a file or folder; use . for the current folder")
    try:
        path = Path(name).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # whoever opens it says more
            os.lstat(path)
    except (OSError, RuntimeError, ValueError) as error:  # too long, nobody's home, a NUL character
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(
            f"{key} is {str(name)[:80]!r}, which is not a valid path ({reason}): choose another"
        ) from error
    return path
