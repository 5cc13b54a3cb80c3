"""Where finished work is kept between runs, and how it gets there: whole or not at all."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from ..configs.named_files import named_path
from .files.atomic_writes import explaining_a_full_disk, flush
from .files.locks import is_abandoned, locked

PARTIAL = ".partial"
LOCK = ".lock.partial"
"""Endings of what is being made, and of the lock that its maker holds."""

ANOTHER_CACHE = "another folder in corpus.cache, or in TERCET_CACHE of the environment"
"""What to name where the cache cannot be written."""

SWEPT: set[Path] = set()
"""Folders in which this process has removed what killed ones had left."""


def cache_folder(choice: str | Path | None = None) -> Path:
    """Find the cache: the recipe's `choice`, else `TERCET_CACHE` of the environment, else a default."""
    return named_path(choice or os.environ.get("TERCET_CACHE") or "~/.cache/tercet", "corpus.cache")


def key_of(*dependencies: object) -> str:
    return hashlib.sha256(json.dumps(dependencies).encode()).hexdigest()[:24]


def made_once(folder: Path, make: Callable[[Path], object], choice: str = ANOTHER_CACHE) -> Path:
    """Return `folder`, after `make` has filled it if it is not there yet.

    `make` writes into a temporary folder beside it, hidden and called `.partial`, which gets its name only
    when it is complete: an interrupted run leaves nothing that a later one could mistake for finished work,
    and of two runs at once the first one wins. What a killed process left goes with the next work beside it.

    Args:
        choice: What to name if this one cannot be written.
    """
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder.parent} cannot be written ({error.strerror}): name {choice}") from error
    sweep(folder.parent)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}{PARTIAL}")
    remedy = f"make room, or name {choice}"
    with locked(lock_of(temporary), str(folder.parent), choice):
        try:
            with explaining_a_full_disk(folder, None, remedy):
                temporary.mkdir()
                make(temporary)
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


def sweep(folder: Path) -> None:
    """Remove what killed processes left unfinished in a folder, once in a process; what others make stays."""
    if folder.resolve() in SWEPT:
        return
    SWEPT.add(folder.resolve())
    for lock in folder.glob(f".*{LOCK}"):
        if is_abandoned(lock):
            shutil.rmtree(lock.with_name(lock.name.removesuffix(LOCK) + PARTIAL), ignore_errors=True)
            lock.unlink(missing_ok=True)


def lock_of(temporary: Path) -> Path:
    """Name the lock that the maker of a temporary folder holds."""
    return temporary.with_name(temporary.name.removesuffix(PARTIAL) + LOCK)
