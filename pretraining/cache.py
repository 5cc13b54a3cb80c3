"""Where finished work is kept between runs, and how it gets there: whole or not at all."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..training.disk import flush
from .paths import named_path


def cache_folder(choice: str | Path | None = None) -> Path:
    """Find the cache: the recipe's `choice`, else `TERCET_CACHE` of the environment, else a default."""
    return named_path(choice or os.environ.get("TERCET_CACHE") or "~/.cache/tercet", "corpus.cache")


def name_of(*dependencies: object) -> str:
    """Name work by all that it depends on."""
    return hashlib.sha256(json.dumps(dependencies).encode()).hexdigest()[:24]


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return `folder`, after `make` has filled it if it is not there yet.

    `make` writes into a temporary folder beside it, hidden and called `.partial`, which gets its name only
    when it is complete: an interrupted run leaves nothing that a later one could mistake for finished work,
    and of two runs at once the first one wins.
    """
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(".partial", f".{folder.name}.", folder.parent))
    except OSError as error:
        raise ValueError(
            f"{folder.parent} cannot be written ({error.strerror}): name another folder in output or "
            "corpus.cache"
        ) from error
    try:
        make(temporary)
        temporary.chmod(0o755)  # mkdtemp's folders are closed to everybody else
        for path in [*temporary.rglob("*"), temporary]:
            flush(path)
        temporary.rename(folder)
        flush(folder.parent)
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
