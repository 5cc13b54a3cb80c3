"""One run at a time writes a folder: a lock that the system holds for as long as the process lives.

`.NAME.lock` lies beside the folder, or in it where nothing can be written beside it, and names who holds it:
process, machine, command, since when. The lock
itself is the kernel's (POSIX record locks, `fcntl.lockf`): it ends with its process, however that ends, and
worker processes do not inherit it. Over NFS, machines see each other's locks where the server's lock service
runs, as it does by default; a warning names a file system without locks. A launch of several processes is
one run, of which the main process holds the lock.
"""

import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has other locks
    fcntl = None

ATTEMPTS = 5
"""How often a lock is tried for: whoever only looks whether it is held has it for a moment."""

COMMAND_LENGTH = 200
"""Characters of a command that are shown of who holds a lock, at most."""

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Opens no link, which would have the name of the holder written to where it leads; Windows lacks it."""

HELD: set[Path] = set()
"""Locks of this process. The system does not tell a process's own locks apart."""


def lock_of(folder: Path) -> Path:
    """Name the file whose lock the run of a folder holds: beside what its name leads to, or in that."""
    folder = folder.resolve()
    is_alone = folder.is_dir() and not os.access(folder.parent, os.W_OK)  # as where a disk is mounted
    return (folder if is_alone else folder.parent) / f".{folder.name}.lock"


@contextmanager
def occupied(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, which need not be there.

    Raises:
        ValueError: Another run holds it, or the folder above cannot be made or written.
    """
    what, choice = f"output {folder}", "another folder with output=..."
    with made(folder.resolve().parent), locked(lock_of(folder), what, choice):
        yield


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; remove at the end which of them are new and still empty."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error.strerror}): choose another folder") from error
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            for path in missing:
                path.rmdir()


@contextmanager
def locked(file: Path, what: str, choice: str) -> Iterator[None]:
    """Hold the lock that a file stands for; it goes in the end. A file system without locks is warned of."""
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
            os.write(descriptor, own_name().encode())
        yield
    finally:
        HELD.discard(file)
        file.unlink(missing_ok=True)  # while it is still locked, so that nobody's newer one is meant
        os.close(descriptor)


def acquire(file: Path, what: str) -> int | None:
    """Lock a file and return its descriptor, or `None` if someone else holds it."""
    for _ in range(ATTEMPTS):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
        try:
            if fcntl is not None:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as the system likes
            os.close(descriptor)
            time.sleep(0.1)
            continue
        except OSError as error:
            warnings.warn(
                f"{what} is on a file system without locks ({error.strerror}): make sure that no other run "
                f"writes there",
                stacklevel=3,
            )
        with suppress(FileNotFoundError):
            if os.stat(file).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # its last holder has just removed it
    return None


def is_abandoned(file: Path) -> bool:
    """Return whether the holder of a lock is certain to be gone."""
    return looked_up(file) is True


def require_unheld(folder: Path) -> None:
    if looked_up(file := lock_of(folder)) is False:
        raise ValueError(f"output {folder} is in use by {holder(file)}: wait until it ends")


def looked_up(file: Path) -> bool | None:
    """Tell whether a lock could be taken; `None`: it is ours, there is none, or the system cannot tell."""
    if fcntl is None or file.absolute().parent.resolve() / file.name in HELD:
        return None
    try:
        descriptor = os.open(file, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return True


def own_name() -> str:
    """Describe this process in words."""
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    command = " ".join(["tercet" if name == "__main__.py" else name, *arguments])[:COMMAND_LENGTH]
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()} ({command}) since {since}"


def holder(file: Path) -> str:
    with suppress(OSError):
        return own_name() if file in HELD else file.read_text(encoding="utf-8") or "another process"
    return "another process"  # which has not written its name yet, or no more
