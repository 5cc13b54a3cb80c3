"""What several processes notice of each other: one that is stuck, one that is slow, a launcher that is gone.

Processes wait for each other in every step, and a collective does not say for whom. A thread in each process
therefore tells the others, by the store through which they met, in which step it is and what it does there.
If no step ends for `training.timeout` seconds, one line names whoever is behind, and the processes end, so
that their launcher can start the run again from its last checkpoint.

Waiting makes the steps of all processes equally long. What tells a slow one is the time that it needs by
itself: for the data and the forward passes of a step, up to the backward pass in which gradients are
exchanged. Of a model in pieces, whose forward pass waits, too, it is the time for the data alone.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from statistics import median_low
from typing import Any, NoReturn, Self

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.distributed import PrefixStore  # pyright: ignore[reportPrivateImportUsage]

from .batches import Step
from .compatibility import default_store

DATA, COMPUTING, EVALUATING, SAVING = "waits for the data", "computes", "evaluates", "writes a checkpoint"
"""What a process does in a step."""

BEATS = 4
"""How often a process reports within the timeout, at least."""

LONGEST_BEAT = 10.0
"""Seconds between two reports at most."""

FAR_ABOVE = 1.5
"""Times the median that a slow process needs for its own part of a step."""

IN_A_ROW = 3
"""Comparisons in which a process must be slow to be named."""


class ProcessWatch:
    """Watches the steps of a run on several processes, as a context; every process has one.

    Args:
        accelerator: Of the run.
        timeout: Seconds in which a step must end; evaluations do not count.
        say: Shows a line, once and not per process.
        measures_forward: Whether forward passes are computed without the others.
    """

    def __init__(
        self, accelerator: Accelerator, timeout: float, say: Callable[[str], None], *, measures_forward: bool
    ):
        self.index, self.timeout, self.say = accelerator.process_index, timeout, say
        self.device, self.measures_forward = accelerator.device, measures_forward
        self.names: list[str] = gather_object([f"process {self.index} on {socket.gethostname()}"])
        self.store = PrefixStore("tercet", default_store())
        self.parent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        self.step, self.doing, self.num_beats = 0, DATA, 0
        self.since: float | None = time.monotonic()
        self.own_seconds, self.num_steps, self.from_there = 0.0, 0, 0.0
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.slow = [0] * len(self.names)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()

    def watching(self, steps: Iterator[Step], first: int) -> Iterator[Step]:
        """Iterate over the steps of a run, from number `first` on; between two of them, it computes."""
        for number in count(first):
            self.step, self.doing, self.since = number, DATA, time.monotonic()
            begin = time.perf_counter()
            step = next(steps)
            self.from_there = time.perf_counter()
            self.own_seconds += self.from_there - begin
            self.num_steps += 1
            self.doing = COMPUTING
            if self.measures_forward and self.device.type == "cuda":
                self.events.append((event(), torch.cuda.Event(enable_timing=True)))
            yield step

    def before_exchange(self) -> None:
        """Note that the next backward pass waits for the other processes."""
        if self.measures_forward and self.events:
            self.events[-1][1].record()
        elif self.measures_forward:
            self.own_seconds += time.perf_counter() - self.from_there

    @contextmanager
    def while_doing(self, doing: str) -> Iterator[None]:
        """Report what a process does between two steps, as a context; evaluations may take any time."""
        self.doing, self.since = doing, None if doing == EVALUATING else time.monotonic()
        try:
            yield
        finally:
            self.doing, self.since = COMPUTING, time.monotonic()

    def compare(self) -> None:
        """Name the processes that have been far slower than the median; every process calls this."""
        own = self.own_seconds + sum(begin.elapsed_time(end) for begin, end in self.events) / 1000
        seconds: list[float] = gather_object([own / max(self.num_steps, 1)])
        self.own_seconds, self.num_steps = 0.0, 0
        self.events.clear()
        usual = median_low(seconds)
        for index, one in enumerate(seconds):
            self.slow[index] = self.slow[index] + 1 if one > FAR_ABOVE * usual else 0
            if self.slow[index] == IN_A_ROW:
                self.say(
                    f"{self.names[index]} is slow: it takes {one:.3g} s for its part of a step, the median "
                    f"process {usual:.3g} s; all wait for it"
                )

    def _look(self) -> None:
        """Report and look around, until the run ends or this process must."""
        beat = min(self.timeout / BEATS, LONGEST_BEAT)
        while not self.ended.wait(beat):
            self._report()
            if self.parent not in (None, os.getppid()):
                leave(f"{self.names[self.index]}: its launcher (process {self.parent}) is gone, so it ends")
            since = self.since
            if since is not None and time.monotonic() - since > self.timeout:
                self._give_up(beat)

    def _report(self) -> None:
        self.num_beats += 1
        with suppress(RuntimeError):  # who keeps the store has ended: the collective or the timeout says so
            self.store.set(str(self.index), json.dumps([self.num_beats, self.step, self.doing]))

    def _reports(self) -> list[Any]:
        """Read what all processes have reported last; `None` of one that never has."""
        names = [str(index) for index in range(len(self.names))]
        try:
            return [json.loads(self.store.get(name)) if self.store.check([name]) else None for name in names]
        except RuntimeError:
            return [None] * len(names)

    def _give_up(self, beat: float) -> None:
        """End this process, and say for whom it has waited, unless one before it says so."""
        before = self._reports()
        for _ in range(2):
            if self.ended.wait(beat):
                return
            self._report()
        after = self._reports()
        is_heard = [one is not None and one != other for one, other in zip(after, before, strict=True)]
        is_heard[self.index] = True
        told = describe(self.names, after, is_heard)
        told = (
            f"no step has ended for {self.timeout:g} s (training.timeout): {told}. The processes end; start "
            "the run again with --resume, if the launcher does not"
        )
        leave(told if is_heard.index(True) == self.index else "")


def describe(names: Sequence[str], reports: Sequence[Any], is_heard: Sequence[bool]) -> str:
    """Say who keeps the others waiting.

    Args:
        names: Of the processes.
        reports: Their last ones: a count, the step, what is done there.
        is_heard: Whether each still reports.

    >>> from tercet.training.process_watch import describe
    >>> describe(["process 0", "process 1"], [[9, 7, "computes"], [5, 7, "computes"]], [True, False])
    'process 1 does not answer'
    >>> describe(["process 0", "process 1"], [[9, 7, "computes"], [9, 7, "waits for the data"]], [True, True])
    'process 1 waits for the data of step 7'
    >>> describe(["process 0", "process 1"], [[9, 7, "computes"], [9, 7, "computes"]], [True, True])
    'all processes are in step 7, and wait for each other'
    """
    if silent := [name for name, heard in zip(names, is_heard, strict=True) if not heard]:
        return f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
    order = {DATA: 0, COMPUTING: 1, EVALUATING: 2, SAVING: 2}
    places = [(step, order[doing]) for _, step, doing in reports]
    if len({*places}) == 1:
        return f"all processes are in step {places[0][0]}, and wait for each other"
    behind = [
        f"{name} {report[2]}{' of' if report[2] == DATA else ' in'} step {report[1]}"
        for name, report, place in zip(names, reports, places, strict=True)
        if place == min(places)
    ]
    return ", ".join(behind)


def leave(line: str) -> NoReturn:
    """Say why this process ends, and end it, in whatever it is stuck."""
    if line:
        print(line, file=sys.stderr, flush=True)
    os._exit(1)


def event() -> torch.cuda.Event:
    """Record an event on the GPU."""
    recorded = torch.cuda.Event(enable_timing=True)
    recorded.record()
    return recorded
