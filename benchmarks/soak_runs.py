"""`tercet pretrain` in processes of its own: watched, and killed at random moments (Linux)."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tercet.training.checkpoint import latest, read_state
from tercet.training.fit import CHECKPOINTS
from tercet.training.tracking import LOG

SECONDS_BETWEEN_SAMPLES = 0.2

GRACE = 120.0
"""Seconds in which a run must end after SIGTERM."""

TAIL = 4096
"""Bytes at the end of a log that hold its last record."""

LATEST_FIRST_KILL = 0.75
"""Share of a run's steps in which its first kill falls: before its end, whatever else the machine does."""

STATUSES = (0, 130, -signal.SIGKILL, -signal.SIGTERM)
"""How a run may end: done, by a signal that it heard, by SIGKILL, or by SIGTERM before it listened."""


@dataclass
class Life:
    """A process from its start to its end."""

    began_at_step: int
    """The step of the checkpoint that it began with."""
    status: int = 0
    """Its exit status, or minus the signal that ended it."""
    seconds: float = 0.0
    """How long it lived."""
    samples: list[tuple[float, int, float]] = field(default_factory=list)
    """Seconds since the start, the last step in the log, and MiB of resident memory."""

    @property
    def last_step(self) -> int:
        """The last step that was seen in the log."""
        return self.samples[-1][1] if self.samples else self.began_at_step

    @property
    def seconds_to_begin(self) -> float:
        """Seconds until its first step was in the log; its whole life if there was none."""
        return next((at for at, step, _ in self.samples if step > self.began_at_step), self.seconds)


@dataclass(frozen=True)
class Run:
    """A recipe and where it is run."""

    recipe: Path
    folder: Path
    steps: int

    def live(
        self, is_over: Callable[[Life], bool] = lambda life: False, number: int = signal.SIGKILL
    ) -> Life:
        """Start or resume it, and wait for its end, or send a signal once its life `is_over`.

        Raises:
            RuntimeError: It ended otherwise than by itself or by the signal.
            TimeoutExpired: The signal did not end it.
        """
        life, start = Life(self.saved_step()), time.monotonic()
        command = [sys.executable, "-m", "tercet", "pretrain", str(self.recipe), "--resume"]
        command += [f"output={self.folder}", f"training.steps={self.steps}"]
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".stderr").open("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                while process.poll() is None:
                    life.seconds = time.monotonic() - start
                    life.samples.append((life.seconds, self.logged_step(), resident_memory(process.pid)))
                    if is_over(life):
                        process.send_signal(number)
                        process.wait(GRACE)
                    else:
                        time.sleep(SECONDS_BETWEEN_SAMPLES)
            finally:
                process.kill()
            life.status = process.returncode
            errors.seek(0)
            if life.status not in STATUSES:
                raise RuntimeError(f"{self.folder.name} ended with {life.status}: {errors.read()[-TAIL:]}")
        return life

    def live_dangerously(self, mean_life: float, ends: float, draw: random.Random) -> Iterator[Life]:
        """Resume it until it is done; kill it at a random step, and then at random moments.

        The first kill is bound to a step, not to a time: however fast the machine becomes, it comes before
        the end. Up to the time `ends`, further lives have random lengths of such a mean.
        """
        first = draw.uniform(0, LATEST_FIRST_KILL * self.steps)
        life = self.live(lambda life: life.last_step > first, _any_signal(draw))
        yield life
        while life.status != 0:
            longest = draw.expovariate(1 / mean_life) if time.monotonic() < ends else math.inf
            life = self.live(lambda life, longest=longest: life.seconds >= longest, _any_signal(draw))
            yield life

    def saved_step(self) -> int:
        """Look up the step of the newest checkpoint."""
        newest = latest(self.folder / CHECKPOINTS)
        return read_state(newest)["progress"]["step"] if newest else 0

    def logged_step(self) -> int:
        """Look up the step of the last record that is complete."""
        path = self.folder / LOG
        if not path.exists():
            return 0
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL))
            *lines, _ = log.read().split(b"\n")
        return json.loads(lines[-1])["step"] if lines else 0


def _any_signal(draw: random.Random) -> int:
    return draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])


def resident_memory(process: int) -> float:
    """Add up the resident memory of a process and its data workers, in MiB; 0 if it has just ended."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in [process, *children])
    except FileNotFoundError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
