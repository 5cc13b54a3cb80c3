"""Signals that ask a run to stop: the step is finished and a checkpoint written before it does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interruption:
    """Whether, and by which signal, this process has been asked to stop."""

    def __init__(self):
        self.name: str | None = None

    def ask(self, number: int, frame=None) -> None:
        """Remember the signal. A second one acts at once, as if nobody listened."""
        self.name = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


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
