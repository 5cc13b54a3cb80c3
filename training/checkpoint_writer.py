"""Checkpoints written while the run goes on: one at a time, in a thread.

    run      step 4 | snapshot | step 5 | step 6 | step 7 | step 8 | waits, snapshot | step 9 ...
    thread                     | writes, flushes, hashes, renames |                  | writes ...

The thread works on copies, and talks to those of other processes in a group of its own. What it cannot write
ends the run after the present step.
"""

from threading import Thread
from typing import Self

from .checkpoint import Snapshot
from .disk import WriteError


class CheckpointWriter:
    """Writes snapshots, as a context, at whose end nothing is left to write.

    Args:
        in_background: Whether the run goes on meanwhile.
    """

    def __init__(self, *, in_background: bool):
        self.in_background = in_background
        self.thread: Thread | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.wait()
        except WriteError:
            raise
        except Exception:
            if kind is None:
                raise  # else what has ended the run, such as a lost process, has ended the thread as well

    def write(self, snapshot: Snapshot) -> None:
        """Write a snapshot, or begin to, once the one before is on the disk.

        Raises:
            WriteError: As in `wait`; without a thread, there is no room for this one.
        """
        self.wait()
        if not self.in_background:
            snapshot.write()
            return
        self.thread = Thread(target=self._write, args=[snapshot], name="checkpoint", daemon=True)
        self.thread.start()

    def is_writing(self) -> bool:
        """Return whether a checkpoint is not on the disk yet."""
        return self.thread is not None and self.thread.is_alive()

    def check(self) -> None:
        """Raise what has kept the latest snapshot from being written, if that is known already."""
        if not self.is_writing():
            self.wait()

    def wait(self) -> None:
        """Wait until the latest snapshot is on the disk.

        Raises:
            WriteError: There was no room; what was written of it is deleted.
        """
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _write(self, snapshot: Snapshot) -> None:
        try:
            snapshot.write()
        except BaseException as error:
            self.error = error
