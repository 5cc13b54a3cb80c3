"""How long a demonstration will take, told after its first steps.

The encoder's steps took `SHARE_OF_FIRST` of the processor time of a measured demonstration. What a machine
needs for the first ones says how long the whole takes, if nothing else gets in its way.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from ..pretraining.recipe import PretrainingRecipe
from ..training.tracking import LOG, read_log

SHARE_OF_FIRST = 0.35
"""Share of the whole that the first member's steps take."""

LOOKING = 0.5
"""Seconds between two looks at the log."""


@contextmanager
def telling_expected_time(
    first: PretrainingRecipe, began: float, say: Callable[[str], None]
) -> Iterator[None]:
    """Tell once, while the first member learns, when the whole demonstration will be ready.

    Args:
        first: The recipe of that member.
        began: When the demonstration began, by `time.perf_counter`.
        say: Tells a line.
    """
    ended = Event()

    def watch() -> None:
        while not ended.wait(LOOKING):
            log = first.folder / LOG
            records = read_log(log) if log.exists() else []
            if steps := [record for record in records if "tokens_per_second" in record]:
                waited = time.perf_counter() - began - steps[0]["seconds"]
                say(expectation(waited, steps[0]["seconds"] / steps[0]["step"], first.training.steps))
                return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def expectation(waited: float, step: float, steps: int) -> str:
    """Say how long everything will take, in minutes.

    Args:
        waited: Seconds before the first step.
        step: Seconds of a step.
        steps: How many there are.

    >>> from tercet.demo.expected_time import SHARE_OF_FIRST, expectation
    >>> expectation(60, 0.3 * SHARE_OF_FIRST, 1000)
    'a step takes 0.10 seconds: about 6 minutes for the whole demo, on a machine as busy as now'
    """
    minutes = (waited + step * steps / SHARE_OF_FIRST) / 60
    return (
        f"a step takes {step:.2f} seconds: about {minutes:.0f} minutes for the whole demo, on a machine as "
        "busy as now"
    )
