"""Data workers: processes that prepare items ahead, and the errors when one of them fails.

An item that cannot be prepared comes back as an exception, which is raised where the item is consumed: with
its place, without the worker's traceback for a message. A worker that dies (memory ran out, a library
crashed) cannot say anything, but it noted beforehand what it was at. torch notices its death at once and
raises wherever the main process is, so `PrefetchLoader.explained` goes around all that happens meanwhile.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Literal, NamedTuple, NoReturn, Protocol, TypeVar
from weakref import WeakSet

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset, get_worker_info

from ...modeling.compatibility import call_on_unsent, renew_end_of_workers
from .interruption import ignore_interruptions


class DataCursor(NamedTuple):
    """Where a step's data are; all numbers are counted from 0."""

    epoch: int
    """The epoch."""
    step_in_epoch: int
    """Number of the step in its epoch."""
    step: int = 0
    """Number of the step in the run, for objectives that change on the way."""


MOST_WORKERS = 4
"""Workers that are chosen at most: one or two prepare more than ten million tokens a second, and each costs
memory."""

AHEAD = 2
"""Items that each worker is asked for before they are needed."""

FORK = "fork" if sys.platform == "linux" else None
"""How workers start: on Linux as copies of the run, whose text they share; elsewhere as Python does."""

PR_SET_PDEATHSIG = 1
"""Linux's number for the signal that a process gets when its parent ends."""

UNSENT = 71
"""Exit code of a worker that could not send an item."""

SECONDS_TO_DIE = 1.0
"""How long a worker may take to end after it left the first sign of that."""

Item = TypeVar("Item", covariant=True)


class Items(Protocol[Item]):
    """What can be prepared, by its cursor: where it lies in the data."""

    def __getitem__(self, cursor: DataCursor) -> Item:
        """Prepare an item."""
        ...

    def describe(self, cursor: DataCursor) -> str:
        """Name an item and what it is made of."""
        ...


def choose_workers(
    wanted: int | Literal["auto"], accelerator: Accelerator, *, is_stream: bool = False
) -> int:
    """Return the number of workers of each process; `auto`: as many as keep a CUDA device from waiting.

    They take the cores that the processes of a machine leave free, one for each aside, up to `MOST_WORKERS`;
    a single one has a stream, beside the process that reads it. A CPU needs its cores itself.
    """
    if wanted != "auto":
        return wanted
    if accelerator.device.type != "cuda" or FORK is None:
        return 0
    processes = int(os.environ.get("LOCAL_WORLD_SIZE") or accelerator.num_processes)
    return max(0, min(1 if is_stream else MOST_WORKERS, len(os.sched_getaffinity(0)) // processes - 1))


class WorkerDiedError(RuntimeError):
    """A process that prepared data has died."""


class PrefetchLoader(Generic[Item]):
    """The items at some cursors, perhaps without end, prepared ahead; without workers, when consumed."""

    def __init__(self, items: Items[Item], cursors: Iterable[DataCursor], num_workers: int, pin_memory: bool):
        self.attempts = _Attempts(items, num_workers)
        earlier = multiprocessing.active_children()
        self.loader = iter(
            DataLoader(
                self.attempts,
                batch_size=None,
                sampler=cursors,
                num_workers=num_workers,
                prefetch_factor=AHEAD if num_workers else None,
                multiprocessing_context=FORK if num_workers else None,
                pin_memory=pin_memory,
                worker_init_fn=begin_to_work,
                # A loader draws a seed for its workers: from here, not from the generator that dropout uses.
                generator=torch.Generator(),
            )
        )
        self.workers = [child for child in multiprocessing.active_children() if child not in earlier]
        _OPEN.add(self)

    def __iter__(self) -> Iterator[Item]:
        # An item is delivered once.
        return self

    def __next__(self) -> Item:
        with self.explained():
            item = next(self.loader)
        if not isinstance(item, Exception):
            return item
        try:
            raise item
        finally:
            del item  # whose traceback holds this frame: such a circle would end the workers late

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Report of a worker that dies meanwhile what it was at."""
        try:
            yield
        except WorkerDiedError:
            raise  # explained already
        except (RuntimeError, OSError, EOFError) as error:  # torch's word, or a connection that broke off
            loaders = [self, *(each for each in _OPEN if each is not self)]  # one may read from another
            workers = [worker for each in loaders for worker in each.workers]
            if not any(worker.exitcode for worker in workers):
                alive = [worker.sentinel for worker in workers if worker.exitcode is None]
                wait(alive, timeout=SECONDS_TO_DIE)
            for each in loaders:
                if dead := [worker for worker in each.workers if worker.exitcode]:
                    each._end_for(dead, error)
            raise

    def _end_for(self, dead: Sequence[BaseProcess], error: Exception) -> NoReturn:
        _end(self.workers)
        raise WorkerDiedError(
            f"a data worker died ({_cause(dead[0])}) {self.attempts.describe(dead)}: if memory was "
            "short, lower training.num_workers or training.tokens_per_step; go on with --resume"
        ) from error


_OPEN: WeakSet[PrefetchLoader] = WeakSet()
"""Those whose loaders may not be closed yet."""


class _Attempts(Dataset):
    # Items, or what went wrong instead; and what each worker is at.
    def __init__(self, items: Items[Any], num_workers: int):
        self.items = items
        self.at = torch.zeros(num_workers, 4, dtype=torch.int64).share_memory_()
        """Each worker's process, and the cursor that it is at, or -1 for each of its numbers."""

    def __getitem__(self, cursor: DataCursor) -> Any:
        worker = get_worker_info()
        if worker is None:
            return self._attempt(cursor)
        self.at[worker.id] = torch.tensor([os.getpid(), *DataCursor(*cursor)])
        item = self._attempt(cursor)
        self.at[worker.id, 1:] = -1
        return item

    def describe(self, workers: Sequence[BaseProcess]) -> str:
        pids = [worker.pid for worker in workers]
        places = [(pid, DataCursor(*numbers)) for pid, *numbers in self.at.tolist()]
        cursors = [cursor for pid, cursor in places if pid in pids and cursor.epoch >= 0]
        names = " and ".join(map(self.items.describe, cursors))
        return f"while it prepared {names}" if names else "while it waited"

    def _attempt(self, cursor: DataCursor) -> Any:
        try:
            return self.items[cursor]
        except Exception as error:
            is_users = isinstance(error, ValueError)
            reason = str(error) if is_users else f"{type(error).__name__}: {error}"
            failure = (ValueError if is_users else RuntimeError)(
                f"{self.items.describe(cursor)} cannot be prepared: {reason}"
            )
            failure.add_note(traceback.format_exc())  # all that is left of it on the way from a worker
            return failure


def begin_to_work(worker: int) -> None:
    """Prepare a worker: it outlives signals to the group, but not the run, and dies of what it cannot send.

    Items are sent by a thread of the worker's. Where memory, or the room for shared memory, does not suffice
    for an item, that thread would only print so and drop it, and the main process would wait for it for ever.
    Where nobody is left to read an item, that thread would wait for ever, and with it the worker, which has a
    copy of its process's connections: so the other processes of a run would not see that one is lost.
    """
    ignore_interruptions(worker)
    if FORK is not None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        parent = multiprocessing.parent_process()
        if parent is not None and parent.pid != os.getppid():  # it had ended before
            os._exit(1)
    call_on_unsent(_die_unsent)


def _die_unsent(error: Exception, item: object) -> None:
    os._exit(UNSENT)


@contextmanager
def leaving_no_workers() -> Iterator[None]:
    """End the data workers that were started inside and are still there: one may wait for data for ever.

    They ignore the signal with which a loader ends them, and the interpreter would wait for them at its exit.
    """
    earlier = multiprocessing.active_children()
    try:
        yield
    finally:
        _end([child for child in multiprocessing.active_children() if child not in earlier])


def _cause(worker: BaseProcess) -> str:
    code = worker.exitcode or 0
    if code == UNSENT:
        return "it had no memory to send what it had prepared; /dev/shm may be full"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _end(workers: Sequence[BaseProcess]) -> None:
    # At once: they ignore polite signals, and might wait for what the dead one held.
    if threading.current_thread() is not threading.main_thread():
        return
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would take these deaths for failures
    for worker in workers:
        worker.kill()
        worker.join()
    signal.signal(signal.SIGCHLD, earlier)
    for deliveries in _OPEN:
        if any(worker in workers for worker in deliveries.workers):
            # Whoever was killed may have held the lock of the old one, and a loader that is closed takes it.
            renew_end_of_workers(deliveries.loader)
            deliveries.workers = [worker for worker in deliveries.workers if worker not in workers]
