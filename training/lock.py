"""One run at a time writes a folder: a lock that the system holds for as long as the process lives.

`.tercet.lock` lies in the folder and names who holds it: process, machine, command, since when. The lock
itself is the kernel's (POSIX record locks, `fcntl.lockf`): it ends with its process, however that ends, and
worker processes do not inherit it. Over NFS, machines see each other's locks where the server's lock service
runs, as it does by default; a warning names a file system without locks. A launch of several processes is
one run, of which the main process holds the lock. A run inside another's folder belongs to it if both are of
one process.
"""

import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has other locks
    fcntl = None

LOCK = ".tercet.lock"
"""Name of the file in a run's folder."""

ATTEMPTS = 5
"""How often a lock is tried for: whoever only looks whether it is held has it for a moment."""

COMMAND_LENGTH = 200
"""Characters of a command that are shown of who holds a lock, at most."""

HELD: set[Path] = set()
"""Locks of this process. The system does not tell a process's own locks apart."""


@contextmanager
def occupied(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder; one that is made for it and stays empty is removed at the end.

    Raises:
        ValueError: Another run holds it, or that of a folder that this one lies in; or it cannot be made.
    """
    with made(folder):
        require_free_above(folder)
        with locked(folder / LOCK, f"output {folder}", "another folder with output=..."):
            yield


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; remove at the end which of them are new and still empty.

    Raises:
        ValueError: It cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output is {folder}, which is a file: name a folder")
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output {folder} cannot be made ({error.strerror}): choose another folder with output=..."
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            for path in missing:
                path.rmdir()


@contextmanager
def locked(file: Path, what: str, choice: str) -> Iterator[None]:
    """Hold the lock that a file stands for; it goes in the end.

    Args:
        file: Its folder is there.
        what: What is locked, in words.
        choice: What else could be chosen, in words.

    Raises:
        ValueError: It is held, or the file cannot be written.

    Warns:
        UserWarning: The file system has no locks.
    """
    file = file.absolute().parent.resolve() / file.name
    try:
        descriptor = None if file in HELD else acquire(file, what)
    except OSError as error:
        raise ValueError(f"{what} cannot be written ({error.strerror}): choose {choice}") from error
    if descriptor is None:
        raise ValueError(f"{what} is in use by {holder(file)}: wait until it ends, or choose {choice}")
    HELD.add(file)
    try:
        with suppress(OSError):  # a full disk has no room for the name, but the lock holds
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(own_name()).encode())
        yield
    finally:
        HELD.discard(file)
        file.unlink(missing_ok=True)  # while it is still locked, so that nobody's newer one is meant
        os.close(descriptor)


def acquire(file: Path, what: str) -> int | None:
    """Lock a file and return its descriptor, or `None` if someone else holds it.

    Raises:
        OSError: The file cannot be written.
    """
    for _ in range(ATTEMPTS):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        if not lock(descriptor, what):
            os.close(descriptor)
            time.sleep(0.1)
            continue
        with suppress(FileNotFoundError):
            if os.stat(file).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # its last holder has just removed it
    return None


def lock(descriptor: int, what: str, *, shared: bool = False) -> bool:
    """Lock an open file, and tell whether that was possible."""
    if fcntl is None:
        return True
    try:
        fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as the system likes
        return False
    except OSError as error:
        warnings.warn(
            f"{what} is on a file system without locks ({error.strerror}): make sure that no other run "
            f"writes there",
            stacklevel=2,
        )
    return True


def is_held_elsewhere(file: Path) -> bool:
    """Return whether another process holds the lock that a file stands for."""
    file = file.absolute().parent.resolve() / file.name
    if file in HELD or fcntl is None:
        return False
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not lock(descriptor, str(file), shared=True)
    finally:
        os.close(descriptor)


def is_abandoned(file: Path) -> bool:
    """Return whether the holder of a lock is certain to be gone."""
    if fcntl is None or file.absolute().parent.resolve() / file.name in HELD:
        return False
    try:
        descriptor = os.open(file, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held, or this file system cannot tell
        return False
    finally:
        os.close(descriptor)
    return True


def require_free_above(folder: Path) -> None:
    """Raise a `ValueError` if another run writes a folder that this one lies in."""
    for parent in folder.resolve().parents:
        if is_held_elsewhere(parent / LOCK):
            raise ValueError(
                f"output {folder} lies in {parent}, which is in use by {holder(parent / LOCK)}: wait until "
                "it ends, or choose another folder with output=..."
            )


def require_free_below(files: Iterable[Path]) -> None:
    """Raise a `ValueError` if one of these files is the lock of a run that is alive."""
    for file in files:
        if file.name == LOCK and is_held_elsewhere(file):
            raise ValueError(f"{file.parent} is in use by {holder(file)}: wait until it ends")


def own_name() -> dict[str, str | int]:
    """Describe this process."""
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    command = " ".join(["tercet" if name == "__main__.py" else name, *arguments])
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": command[:COMMAND_LENGTH],
        "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def holder(file: Path) -> str:
    """Describe in words who holds a lock."""
    try:
        record = json.loads(file.read_text(encoding="utf-8")) if file not in HELD else own_name()
        return f"process {record['pid']} on {record['host']} ({record['command']}) since {record['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"  # which has not written its name yet, or no more
