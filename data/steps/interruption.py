"""Signals that ask a run to stop: the step is finished and a checkpoint written before it does.

So is an evaluation or a checkpoint that the signal falls into. Only waiting for data ends at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from accelerate import Accelerator

from .exchange import add_up

ASK_EVERY = 10
"""Steps after which several processes ask whether one of them was signalled to stop."""

Item = TypeVar("Item")


class BrokenOff(BaseException):
    """A signal came while the run waited for data; no code of a data source should take it for an error."""


class Interruption:
    """Whether, and by which signal, this process has been signalled to stop."""

    def __init__(self):
        self.name: str | None = None
        self.is_waiting = False

    def ask(self, number: int, frame=None) -> None:
        """Remember the signal. A second one acts at once, as if nobody listened."""
        self.name = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if self.is_waiting:
            raise BrokenOff

    def is_heard(self, accelerator: Accelerator, step: int) -> bool:
        """Return whether any process was signalled to stop, in the same step on all of them."""
        is_asked = self.name is not None
        if accelerator.num_processes == 1:
            return is_asked
        if step % ASK_EVERY:
            return False
        return add_up([is_asked])[0] > 0

    def waiting_for(self, items: Iterator[Item]) -> Iterator[Item]:
        """Iterate without an end; the signal breaks off whatever the next item takes, be it for ever.

        Raises:
            BrokenOff: The signal has come.
        """
        while True:
            self.is_waiting = True
            try:
                if self.name is not None:
                    raise BrokenOff
                item = next(items)
            finally:
                self.is_waiting = False
            yield item


@contextmanager
def listening() -> Iterator[Interruption]:
    """Note SIGTERM and SIGINT instead of dying from them; the earlier handlers return at the end.

    Only a process's main thread may listen; elsewhere signals keep their meaning.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    earlier = {number: signal.signal(number, interruption.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield interruption
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def ignore_interruptions(worker: int) -> None:
    """Let a data worker outlive a signal sent to the whole group: its batches are still needed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
