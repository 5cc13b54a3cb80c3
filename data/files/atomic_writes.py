"""Files that are whole or not there, and errors that explain why they cannot be written.

What is written gets its name only when its contents are on the disk: a process that is killed on the way, or
that finds no room, leaves what was there before. Until then it is called `.NAME.partial`. A link of either
name is replaced: nothing is written to where it leads.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What the system says where it does not write: no room, a limit, or a disk that can only be read."""


class WriteError(OSError):
    """The system does not write what was to be written; what was there before is as it was."""


def partial_path(path: Path) -> Path:
    """Name what will be called `path` once it is complete."""
    return path.with_name(f".{path.name}.partial")


def replace_text(path: Path, text: str) -> None:
    """Replace the contents of a file, at once or not at all."""
    partial = partial_path(path)
    with explaining_a_full_disk(path, len(text.encode())), removing_on_failure(partial):
        partial.unlink(missing_ok=True)
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
    """Give the name under which a file is written; it gets its own in the end, or stays as it was."""
    partial = partial_path(path)
    with explaining_a_full_disk(path, None, "repeat the command"), removing_on_failure(partial):
        partial.unlink(missing_ok=True)
        yield partial
        flush(partial)
        partial.replace(path)


@contextmanager
def explaining_a_full_disk(path: Path, num_bytes: int | None, remedy: str = "make room") -> Iterator[None]:
    """Explain why the system does not write, if the code inside fails for it: a full disk, above all.

    The message names `path`, unless the error is of a file that lies elsewhere. What has been explained
    already stays as it is.

    Raises:
        WriteError: Instead of whatever the writer raised.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, WriteError | ValueError) or (found := reason_of(error)) is None:
            raise
        number, file = found
        whole = path.absolute()
        if file is not None and file.parent != whole.parent and not file.is_relative_to(whole):
            path, num_bytes = file, None
        takes = "" if num_bytes is None else f", which takes {num_bytes / 2**20:,.2f} MiB,"
        free = f"{free_bytes(path) / 2**20:,.2f} MiB are free"
        why = os.strerror(number)
        raise WriteError(f"{path}{takes} cannot be written ({why}; {free}): {remedy}") from error


def free_bytes(path: Path) -> int:
    """Measure the room on the disk of a path that need not be there yet."""
    folder = next(place for place in (path.absolute(), *path.absolute().parents) if place.is_dir())
    return shutil.disk_usage(folder).free


def reason_of(error: BaseException | None) -> tuple[int, Path | None] | None:
    """Find why the system did not write, and which file: torch wraps its error, safetensors quotes it."""
    while error is not None:
        for number in NOT_WRITTEN:
            if getattr(error, "errno", None) == number or f"(os error {number})" in str(error):
                file = getattr(error, "filename", None)
                return number, None if file is None else Path(file).absolute()
        error = error.__cause__ or error.__context__
    return None
