"""Files that are whole or not there, and what a full disk says.

What is written gets its name only when its contents are on the disk: a process that is killed on the way, or
that finds no room, leaves what was there before. Until then it is called `.NAME.partial`.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when the disk, or the user's share of it, is full."""


class DiskFullError(OSError):
    """There is no room for what was to be written; nothing that was there before has changed."""


def partial_path(path: Path) -> Path:
    """Name what will be called `path` once it is complete."""
    return path.with_name(f".{path.name}.partial")


def replace_text(path: Path, text: str) -> None:
    """Give a file new contents, at once or not at all.

    Raises:
        DiskFullError: There is no room; the file is as it was.
    """
    partial = partial_path(path)
    with explaining_a_full_disk(path, len(text.encode())), removing_on_failure(partial):
        partial.write_text(text, encoding="utf-8")
        flush(partial)
        partial.replace(path)
        flush(path.parent)


def delete_folder(folder: Path) -> None:
    """Delete a folder so that, whenever the process is killed, what bears its name is whole.

    It is called `.NAME.deleted` before its files go.
    """
    deleted = folder.with_name(f".{folder.name}.deleted")
    shutil.rmtree(deleted, ignore_errors=True)
    shutil.rmtree(folder.rename(deleted))


def flush(path: Path) -> None:
    """Wait until a file or a folder's list of files is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def removing_on_failure(partial: Path) -> Iterator[None]:
    """Delete an unfinished file or folder if what is done inside fails."""
    try:
        yield
    except BaseException:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)
        raise


@contextmanager
def explaining_a_full_disk(path: Path, num_bytes: int, remedy: str = "make room") -> Iterator[None]:
    """Say where room is missing, how much, and what to do, if that is why what is done inside fails.

    Args:
        path: What is being written; its folder's disk is looked at.
        num_bytes: Room that it takes.
        remedy: What to do.

    Raises:
        DiskFullError: Instead of whatever the writer raised.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, DiskFullError) or not is_disk_full(error):
            raise
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        raise DiskFullError(
            f"no room on the disk for {path}, which takes {num_bytes / 2**20:,.2f} MiB where "
            f"{shutil.disk_usage(folder).free / 2**20:,.2f} MiB are free: {remedy}"
        ) from error


def is_disk_full(error: BaseException | None) -> bool:
    """Tell whether a full disk is behind an error: torch wraps the system's, safetensors only quotes it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        if any(f"(os error {number})" in str(error) for number in NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False
