"""What a run sets on a CPU: memory, number formats, and how many threads compute.

`prepared_cpu` is the setting of a run; threads adapt where other programs want the same cores.

The threads of a product meet at its end, and the last to arrive decides when all go on. Where another program
holds a core, the thread that waits for it holds up the others in every product: two threads on two shared
cores are slower than one. Linux tells how long each thread was ready and had to wait
(`/proc/self/task/*/schedstat`). From that, as many threads are taken back as had to wait, and offered again
once nothing waits, less and less often while that fails.

How long threads spin while they wait for each other is bounded beforehand, in `tercet/__main__.py`.

The gradients of norms, and in float32 those of some products, are summed up in parts, one for each thread: a
run whose threads change rounds otherwise than one whose threads do not.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from .heap import bound_kernel_cache, retain_heap
from .precision import fastest_float32_products

INTERVAL = 1.0
"""Seconds between two looks."""

ACTIVE = 0.3
"""Share of an interval that a thread runs or waits if it takes part in the computation."""

CONTENDED = 0.25
"""Share of its time that a thread waits for a core if others hold it."""

QUIET, LONGEST_QUIET = 5.0, 80.0
"""Seconds without waiting after which a thread is added: at first, and at most, doubled whenever it was too
early."""

TASKS = Path("/proc/self/task")

ThreadTimes = Mapping[int, tuple[int, int]]
"""Thread -> nanoseconds that it has run, and has waited for a core."""


def read_thread_times() -> ThreadTimes:
    """Read the times of this process's threads; empty where the system does not tell (other than Linux)."""
    times = {}
    for path in TASKS.glob("*/schedstat"):
        try:
            running, waiting, _ = map(int, path.read_text().split())
        except OSError:  # a thread that has just ended
            continue
        times[int(path.parent.name)] = (running, waiting)
    return times


def waiting_shares(before: ThreadTimes, after: ThreadTimes, seconds: float) -> list[float]:
    """Return the share of their time that threads had to wait, for each that took part in the computation.

    Args:
        before: Times at the beginning of an interval.
        after: Those at its end.
        seconds: How long it was.
    """
    shares = []
    for thread, (running, waiting) in after.items():
        earlier = before.get(thread, (0, 0))
        ran, waited = running - earlier[0], waiting - earlier[1]
        if ran + waited > ACTIVE * seconds * 1e9:
            shares.append(waited / (ran + waited))
    return shares


class ThreadPolicy:
    """Decides how many threads compute next, from how many of them had to wait.

    >>> policy = ThreadPolicy(8)
    >>> policy.decide(contended=1, seconds=1.0), policy.decide(contended=0, seconds=1.0)
    (7, 7)
    >>> policy.decide(contended=0, seconds=5.0)
    8
    """

    def __init__(self, most: int):
        self.most = most
        self.threads = most
        self.quiet = 0.0
        self.needed = QUIET
        self.has_just_grown = False

    def decide(self, contended: int, seconds: float) -> int:
        """Return the number of threads for the next interval, between 1 and `most`.

        Args:
            contended: How many threads waited for more than `CONTENDED` of their time in the last one.
            seconds: How long that was.
        """
        if contended:
            if self.has_just_grown:
                self.needed = min(2 * self.needed, LONGEST_QUIET)
            self.threads, self.quiet, self.has_just_grown = max(self.threads - contended, 1), 0.0, False
            return self.threads
        self.quiet += seconds
        if self.has_just_grown:  # and nothing waits: there was room
            self.needed, self.has_just_grown = QUIET, False
        if self.threads < self.most and self.quiet >= self.needed:
            self.threads, self.quiet, self.has_just_grown = min(2 * self.threads, self.most), 0.0, True
        return self.threads


class AdaptiveThreads:
    """Looks at the threads' times every `INTERVAL`, and sets how many compute; `look` after every step."""

    def __init__(
        self,
        read: Callable[[], ThreadTimes] = read_thread_times,
        now: Callable[[], float] = time.monotonic,
    ):
        self.read, self.now = read, now
        self.policy = ThreadPolicy(torch.get_num_threads())
        self.since, self.times = now(), read()

    def look(self) -> None:
        """Set the number of threads anew if an interval is over."""
        seconds = self.now() - self.since
        if seconds < INTERVAL:
            return
        times = self.read()
        shares = waiting_shares(self.times, times, seconds)
        self.since, self.times = self.now(), times
        threads = self.policy.decide(sum(share > CONTENDED for share in shares), seconds)
        if threads != torch.get_num_threads():
            torch.set_num_threads(threads)


def thread_adapter(is_wanted: bool) -> Callable[[], None]:
    """Return what a run calls after every step, so that its threads follow what the machine has room for."""
    return AdaptiveThreads().look if is_wanted and torch.get_num_threads() > 1 else lambda: None


class KeepsHeap(Protocol):
    """What a recipe says of memory on a CPU."""

    @property
    def retain_heap(self) -> bool:
        """Whether freed memory is kept for the next step."""
        ...


@contextmanager
def prepared_cpu(recipe: KeepsHeap, device: torch.device) -> Iterator[None]:
    """Make the CPU fast for a run on `device`, as a context.

    Number formats and threads are as before at the end; what memory a process keeps cannot be taken back.
    """
    bound_kernel_cache()
    if recipe.retain_heap and device.type == "cpu":
        retain_heap()
    threads = torch.get_num_threads()
    with fastest_float32_products(device):
        try:
            yield
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
