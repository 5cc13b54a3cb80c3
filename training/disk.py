"""Files that are whole or not there, and errors that explain why they cannot be written.

What is written gets its name only when its contents are on the disk: a process that is killed on the way, or
that finds no room, leaves what was there before. Until then it is called `.NAME.partial`.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when the disk, or the user's share of it, is full."""

HINDRANCES = {
    errno.EFBIG: "it would be larger than a file may be here (see `ulimit -f`): raise the limit",
    errno.ENOENT: "its folder is gone, moved or deleted by another program: put it back",
    errno.ESTALE: "its folder is gone, moved or deleted on another machine: put it back",
    errno.EROFS: "the disk can only be read: mount it for writing",
}
"""What else keeps the system from writing, and what helps."""


class WriteError(OSError):
    """The system does not write what was to be written; what was there before is as it was."""


class DiskFullError(WriteError):
    """There is no room for what was to be written; nothing that was there before has changed."""


def partial_path(path: Path) -> Path:
    """Name what will be called `path` once it is complete."""
    return path.with_name(f".{path.name}.partial")


def replace_text(path: Path, text: str) -> None:
    """Replace the contents of a file, at once or not at all.

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


def publish_folder(partial: Path, final: Path) -> None:
    """Bring a complete folder to the disk, and then give it its name; what bore it before goes."""
    for path in [*partial.rglob("*"), partial]:
        flush(path)
    if final.exists():
        delete_folder(final)
    partial.rename(final)
    flush(final.parent)


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
def written_beside(path: Path) -> Iterator[Path]:
    """Give the name under which a file is written; it gets its own in the end, or stays as it was.

    Raises:
        WriteError: The system does not write it.
    """
    partial = partial_path(path)
    with explaining_a_full_disk(path, None, "repeat the command"), removing_on_failure(partial):
        yield partial
        flush(partial)
        partial.replace(path)


@contextmanager
def explaining_a_full_disk(
    path: Path, num_bytes: int | None, remedy: str = "make room", also: Sequence[Path] = ()
) -> Iterator[None]:
    """Explain a full disk: if the code inside fails for it, say where, how much is missing, what to do.

    What else keeps the system from writing (`HINDRANCES`) is explained as well. The message names `path`,
    unless the error is of a file that lies elsewhere. What has been explained already stays as it is.

    Args:
        path: What is being written; its folder's disk is looked at.
        num_bytes: Room that it takes, if that is known.
        remedy: What to do.
        also: Where else something may be written inside. An error without a file is taken for one of
            the fullest disk.

    Raises:
        DiskFullError: Instead of whatever the writer raised.
        WriteError: The same, for another reason than missing room.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, WriteError | ValueError) or (number := reason_of(error, path)) is None:
            raise
        if (named := file_of(error)) is not None:
            also = ()
            if named.parent != path.absolute().parent and not named.is_relative_to(path.absolute()):
                path, num_bytes = named, None
        if number not in NO_ROOM:
            places = " or ".join(map(str, (path, *also)))
            raise WriteError(f"{places} cannot be written: {HINDRANCES[number]}, then {remedy}") from error
        path = min((path, *also), key=free_bytes)
        taken = "" if num_bytes is None else f", which takes {num_bytes / 2**20:,.2f} MiB"
        room = f"{free_bytes(path) / 2**20:,.2f} MiB are free"
        raise DiskFullError(f"no room on the disk for {path}{taken} where {room}: {remedy}") from error


def free_bytes(path: Path) -> int:
    """Measure the room on the disk of a path that need not be there yet."""
    folder = next(place for place in (path.absolute(), *path.absolute().parents) if place.is_dir())
    return shutil.disk_usage(folder).free


def temporary_folders(path: Path) -> list[Path]:
    """List the folder of temporary files, if it is on another disk than a path."""
    folder = Path(tempfile.gettempdir())
    above = next(folder for folder in path.absolute().parents if folder.exists())
    return [] if folder.stat().st_dev == above.stat().st_dev else [folder]


def file_of(error: BaseException | None) -> Path | None:
    """Find the file that the system named when it did not write; `write` itself names none."""
    while error is not None:
        if isinstance(named := getattr(error, "filename", None), str | Path):
            return Path(named).absolute()
        error = error.__cause__ or error.__context__
    return None


def reason_of(error: BaseException | None, path: Path) -> int | None:
    """Find why the system did not write: torch wraps its number, safetensors only quotes it.

    That something is missing is a reason only if it is the folder of `path`, or lies there.
    """
    while error is not None:
        for number in (*NO_ROOM, *HINDRANCES):
            is_meant = number != errno.ENOENT or is_missing_below(path, getattr(error, "filename", None))
            if is_meant and (getattr(error, "errno", None) == number or f"(os error {number})" in str(error)):
                return number
        error = error.__cause__ or error.__context__
    return None


def is_missing_below(path: Path, missing: object) -> bool:
    """Return whether the folder is gone that something was to be written in, at, beside or below a path."""
    if not isinstance(missing, str | Path):
        return not path.absolute().parent.exists()
    path, folder = path.absolute(), Path(missing).absolute().parent
    return not folder.exists() and (folder == path.parent or folder.is_relative_to(path))
