"""Data workers: what goes wrong in them is said in one line with its place, and nothing hangs."""

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tercet.data.steps.workers import (
    MOST_WORKERS,
    PrefetchLoader,
    WorkerDiedError,
    choose_workers,
    leaving_no_workers,
)

PLACES = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


class Numbers:
    """Items that are their places; at the place (1, 0) something goes wrong."""

    def __init__(self, accident=lambda: None):
        self.accident = accident

    def __getitem__(self, place) -> torch.Tensor:
        if place == (1, 0):
            self.accident()
        if place == (1, 1) and self.accident in FATAL:
            time.sleep(600)  # another worker is busy meanwhile, and deaf to polite signals
        return torch.tensor(place)

    def describe(self, place) -> str:
        return f"item {place[1]} of {place[0]}"


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


FATAL = {
    kill: "SIGKILL",
    crash: "SIGSEGV",
    leave: "exit code 3",
}


def blunder() -> None:
    raise KeyError("no such thing")


def refuse() -> None:
    raise ValueError("part.txt, line 3: broken")


def run_short() -> None:
    raise MemoryError


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
@pytest.mark.parametrize(
    ("device", "cores", "processes", "is_stream", "expected"),
    [
        ("cpu", 64, 1, False, 0),  # whose cores compute
        ("mps", 64, 1, False, 0),
        ("cuda", 64, 1, False, MOST_WORKERS),
        ("cuda", 3, 1, False, 2),
        ("cuda", 16, 8, False, 1),
        ("cuda", 4, 8, False, 0),
        ("cuda", 64, 1, True, 1),  # since others would read the same text
    ],
)
def test_workers_take_the_cores_that_are_free(device, cores, processes, is_stream, expected, monkeypatch):
    accelerator: Any = SimpleNamespace(device=torch.device(device), num_processes=2 * processes)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cores))
    assert choose_workers("auto", accelerator, is_stream=is_stream) == expected
    assert choose_workers(3, accelerator, is_stream=is_stream) == 3


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_items_come_in_their_order(num_workers):
    found = [
        tuple(item.tolist()) for item in PrefetchLoader(Numbers(), PLACES, num_workers, pin_memory=False)
    ]
    assert found == PLACES


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("accident", "kind", "message"),
    [
        (blunder, RuntimeError, "item 0 of 1 cannot be prepared: KeyError: 'no such thing'"),
        (refuse, ValueError, "item 0 of 1 cannot be prepared: part.txt, line 3: broken"),
        (run_short, RuntimeError, "item 0 of 1 cannot be prepared: MemoryError: "),
    ],
)
def test_what_is_raised_comes_with_its_place_and_leaves_its_traceback_in_a_note(
    num_workers, accident, kind, message
):
    deliveries = PrefetchLoader(Numbers(accident), PLACES, num_workers, pin_memory=False)
    assert [tuple(next(deliveries).tolist()) for _ in range(3)] == PLACES[:3]
    with pytest.raises(kind) as caught:
        next(deliveries)
    assert str(caught.value) == message
    assert f"in {accident.__name__}" in caught.value.__notes__[0]
    since = time.monotonic()
    del deliveries, caught
    assert time.monotonic() - since < 5, "workers end when nobody holds the deliveries"


@pytest.mark.parametrize("accident", FATAL, ids=lambda accident: accident.__name__)
def test_a_worker_that_dies_ends_the_run_at_once_with_what_it_was_at(accident):
    deliveries = PrefetchLoader(Numbers(accident), PLACES, 2, pin_memory=False)
    since = time.monotonic()
    message = rf"a data worker died \({FATAL[accident]}\) while it prepared item 0 of 1"
    # Torch tells of a death wherever the main process is, which may be between two deliveries.
    with pytest.raises(RuntimeError, match=message), deliveries.explained():
        list(deliveries)
    assert time.monotonic() - since < 60


class Unsendable:
    """What there is no memory for when it is to be sent."""

    def __reduce__(self):
        raise MemoryError


def test_an_item_that_cannot_be_sent_ends_the_run(capfd):
    """The thread that sends has nobody to tell: the main process would wait for ever."""
    numbers = Numbers()
    numbers.__class__ = type("Heavy", (Numbers,), {"__getitem__": lambda self, place: Unsendable()})
    deliveries = PrefetchLoader(numbers, PLACES, 1, pin_memory=False)
    signal.alarm(60)
    try:
        with pytest.raises(RuntimeError, match=r"died \(it had no memory to send"), deliveries.explained():
            next(deliveries)
    finally:
        signal.alarm(0)


def test_a_death_is_explained_wherever_the_main_process_is():
    deliveries = PrefetchLoader(Numbers(kill), PLACES, 2, pin_memory=False)
    with pytest.raises(RuntimeError, match="while it prepared item 0 of 1"), deliveries.explained():
        time.sleep(60)


def break_off(deliveries: PrefetchLoader) -> None:
    """Kill a worker, unnoticed by torch, and find its connection gone."""
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    deliveries.workers[0].kill()
    deliveries.workers[0].join()
    signal.signal(signal.SIGCHLD, handler)
    raise ConnectionResetError


def test_a_loader_closes_though_a_dead_worker_held_its_lock():
    deliveries = PrefetchLoader(Numbers(), PLACES, 1, pin_memory=False)
    assert deliveries.loader._workers_done_event._cond.acquire()  # as a worker that dies while it looks there
    with pytest.raises(RuntimeError, match=r"died \(SIGKILL\) while it"), deliveries.explained():
        break_off(deliveries)
    closing = threading.Thread(target=deliveries.loader._shutdown_workers, daemon=True)
    closing.start()
    closing.join(timeout=30)
    assert not closing.is_alive()


def test_a_death_of_another_loaders_worker_is_told_as_its_own():
    """A process that reads ahead for a run is of a loader that nobody waits for at the moment."""
    deliveries, other = (PrefetchLoader(Numbers(), PLACES, 1, pin_memory=False) for _ in range(2))
    message = r"a data worker died \(SIGKILL\) while it waited"
    with pytest.raises(WorkerDiedError, match=message), deliveries.explained():
        break_off(other)


def test_workers_that_a_run_has_ended_are_not_blamed_for_what_fails_in_the_next():
    with leaving_no_workers():
        earlier = PrefetchLoader(Numbers(), PLACES, 1, pin_memory=False)
    with (
        pytest.raises(RuntimeError, match=r"^out of memory$"),
        PrefetchLoader(Numbers(), [], 0, False).explained(),
    ):
        raise RuntimeError("out of memory")
    assert not earlier.workers


class Large(Numbers):
    """Items larger than what a pipe holds."""

    def __getitem__(self, place) -> Any:
        return b"x" * 10**7


def lose_a_worker(pipe: Connection) -> None:
    """Be killed when a worker has sent more than is read."""
    deliveries = PrefetchLoader(Large(), PLACES, 1, pin_memory=False)
    next(deliveries)
    pipe.send(deliveries.workers[0].pid)
    kill()


def test_no_worker_outlives_its_process():
    """It has copies of the connections to other processes, which would not see that its own is gone."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=lose_a_worker, args=(theirs,)).start()
    orphan, deadline = Path(f"/proc/{ours.recv()}/stat"), time.monotonic() + 30
    with suppress(FileNotFoundError):
        while orphan.read_text().rpartition(")")[2].split()[0] != "Z":  # ended, and nobody has asked
            assert time.monotonic() < deadline
            time.sleep(0.05)
