"""What a run tells of itself: a block before its first step, lines or a progress bar, a log, and trackers.

    model        decoder-tiny: 1,970,880 parameters, vocabulary of 4,096 tokens
    text         2,905,153 tokens in 27,215 examples
    steps        500 of at most 2,048 tokens: 0.35 epochs
    device       cpu (AVX512), 2 threads, bf16 (AMX)
    time         is known after the first steps

How long the run will take is measured on its first steps, which no peak and no share of it can tell as well.

`log.jsonl` holds one JSON object per line: a record of every `log_every`-th step (means over the finite steps
since the one before it) and of every evaluation (its scores, under `evaluation/`). Time counts steps alone:
evaluation and checkpoints are left out of `seconds` and of every rate.

A full disk does not end a run for the sake of its log: records wait in memory until there is room.
"""

import json
import math
import os
import secrets
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import Any

import torch
from accelerate import Accelerator
from tqdm import tqdm

from ..configs.messages import counted
from ..data.files.atomic_writes import WriteError, explaining_a_full_disk, flush, replace_text
from .devices.environment import device_name
from .devices.precision import precision_in_words
from .devices.utilization import Utilization, measure_peak, peak_memory, wait_for
from .evaluation import TARGETS, without_targets
from .loop import Metrics, Progress, Training

PATIENCE = 1.0
"""Seconds of silence before it is said what a run waits for."""

STEPS, EVALUATIONS = 8, 4
"""Lines about steps and about evaluations."""


TIMED = 3
"""Steps on which it is measured how long a run will take; the one before them warms caches up."""

LEAST_EXPECTED = 10.0
"""Seconds that are worth being told beforehand."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say what a run waits for, as a context, if that takes longer than `PATIENCE`."""
    timer = Timer(PATIENCE, print, [f"waiting for {what}"], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tell_start(lines: Mapping[str, str]) -> None:
    print(as_block(lines), file=sys.stderr, flush=True)


def as_block(lines: Mapping[str, str]) -> str:
    return "\n".join(f"{name:<10} {line}" for name, line in lines.items())


def device_in_words(device: torch.device, precision: str, num_processes: int = 1) -> str:
    """Say what a run computes on, in which format, and why in that."""
    told = [device_name(device)]
    if device.type == "cpu":
        told.append(counted(torch.get_num_threads(), "thread"))
    if num_processes > 1:
        told.append(f"{num_processes} processes")
    return ", ".join([*told, precision_in_words(precision, device)])


class SparseLines:
    """Chooses `most` lines evenly over a run, and the first, which says how long the run will take."""

    def __init__(self, steps: int, most: int):
        self.steps, self.most, self.num_shown = steps, most, -1

    def is_due(self, step: int) -> bool:
        """Return whether a line of this step is to be shown; a run's first and last ones always are."""
        due = step * self.most // self.steps
        if due <= self.num_shown and step < self.steps:
            return False
        self.num_shown = due
        return True


LOG = "log.jsonl"
"""Name of the log in the run's folder."""

SHOWN = 3
"""Damaged lines of a log that are named."""

Record = dict[str, Any]
"""One line of the log."""


class Tracker:
    """Follows a run: `record_step` after every step, `record_evaluation` after every evaluation."""

    def __init__(
        self, training: Training, folder: Path, *, log_every: int, utilization: Utilization | None = None
    ):
        self.accelerator, self.steps = training.accelerator, training.num_steps
        self.progress, self.metrics = training.progress, training.metrics
        self.log = folder / LOG
        self.log_every = log_every
        self.utilization = utilization
        self.unwritten = b""
        self.since = time.perf_counter()
        self.first_step, self.timed_from = self.progress.step, 0.0
        self.bar = None
        self.shown_steps, self.shown_evaluations = (
            SparseLines(self.steps, most) for most in (STEPS, EVALUATIONS)
        )
        if self.accelerator.is_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            rewind(self.log, self.first_step)
            if sys.stderr.isatty():
                self.bar = tqdm(total=self.steps, initial=self.first_step, unit="step", dynamic_ncols=True)

    def record_step(self, metrics: Metrics) -> None:
        """Add one step's metrics up, and write a record if it is due; only then a GPU is waited for."""
        # Of the learning rate, the present value says more than a mean.
        averaged = {name: value for name, value in metrics.items() if name != "learning_rate"}
        self.metrics.add(averaged, self.accelerator.num_processes)
        if self.bar is not None:
            self.bar.update()
        self._tell_expected_time()
        if self.progress.step % self.log_every == 0 or self.progress.step == self.steps:
            self.write_step(float(metrics["learning_rate"]))

    def _tell_expected_time(self) -> None:
        taken = self.progress.step - self.first_step
        if taken not in (1, 1 + TIMED):
            return
        self._read_clock()
        if taken == 1:
            self.timed_from = self.progress.seconds
            return
        seconds = (self.progress.seconds - self.timed_from) / TIMED
        left = self.steps - self.progress.step
        if left * seconds >= LEAST_EXPECTED:
            time_left = timedelta(seconds=round(left * seconds))
            self.say(
                f"expected time: {time_left} for {left:,} more steps, as measured on {TIMED} of them "
                f"({seconds:.2g} s each); evaluations come on top"
            )

    def record_evaluation(self, scores: dict[str, float], *, is_last: bool = False) -> None:
        """Write the scores of an evaluation at the present step; the last one of a run is always shown."""
        record = {
            "step": self.progress.step,
            "tokens": self.progress.tokens,
            "seconds": self.progress.seconds,
        }
        self._write(record | {f"evaluation/{name}": value for name, value in scores.items()})
        shown = {name: value for name, value in scores.items() if not name.endswith(TARGETS)}
        if self.bar is not None or is_last or self.shown_evaluations.is_due(self.progress.step):
            values = ", ".join(f"{name} {value:.4g}" for name, value in shown.items())
            self.say(f"evaluation at step {self.progress.step}: {values}")
        if empty := without_targets(scores):
            self.say(
                f"the held-out data have no target of {' and '.join(empty)}: the loss is undefined (nan), "
                f"and there is no best checkpoint; hold out more or other data"
            )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock while something other than steps runs."""
        self._read_clock()
        try:
            yield
        finally:
            self.since = time.perf_counter()

    def say(self, message: str) -> None:
        """Show a line to whoever watches, once and not per process."""
        if self.bar is not None:
            self.bar.write(message, file=sys.stderr)
        elif self.accelerator.is_main_process:
            with suppress(OSError):  # a full disk or a closed terminal behind the stream ends no run
                print(message, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Bring all records to the disk, as a checkpoint expects whose run will not write them again."""
        if self.accelerator.is_main_process:
            self._append()
            flush(self.log)

    def close(self) -> None:
        """End the bar, and accelerate's trackers."""
        self._read_clock()
        if self.bar is not None:
            self.bar.close()
        for tracker in self.accelerator.trackers:
            tracker.finish()

    def write_step(self, learning_rate: float) -> None:
        """Write the means since the record before, and show the most important."""
        num_steps = self.progress.step - self.metrics.step
        means = self.metrics.means(self.accelerator)
        self._read_clock()
        seconds = self.progress.seconds - self.metrics.seconds
        speed = (self.progress.tokens - self.metrics.tokens) / max(seconds, 1e-9)
        record: Record = {
            "step": self.progress.step,
            "epoch": self.progress.epoch,
            "examples": self.progress.examples,
            "tokens": self.progress.tokens,
            **{f"tokens/{name}": tokens for name, tokens in self.progress.tokens_of.items()},
            "targets": self.progress.targets,
            "skipped": int(self.progress.skipped),
            "data": f"{self.progress.checksum:08x}",
            "learning_rate": learning_rate,
            "loss": means.pop("loss"),
            "grad_norm": means.pop("grad_norm"),
            **{f"{name}/loss": value for name, value in means.items()},
            "tokens_per_second": speed,
            "seconds": self.progress.seconds,
            "memory_mib": peak_memory(self.accelerator.device),
        }
        if self.utilization is not None:
            self._raise_peak(speed / self.accelerator.num_processes)
            record["utilization"] = self.utilization.share(speed / self.accelerator.num_processes)
            record["flops"] = self.utilization.flops_per_token * self.progress.tokens
        self._write(record)
        self._show(record, (self.steps - self.progress.step) * seconds / num_steps)
        self.metrics.begin(self.progress.step, self.progress.tokens, self.progress.seconds)

    def _raise_peak(self, speed: float) -> None:
        assert self.utilization is not None
        if self.utilization.share(speed) > 1:
            with self.paused():
                again = measure_peak(self.accelerator.device, self.accelerator.mixed_precision)
            self.utilization = self.utilization.raised(speed, again)

    def _read_clock(self) -> None:
        wait_for(self.accelerator.device)
        now = time.perf_counter()
        self.progress.seconds += now - self.since
        self.since = now

    def _show(self, record: Record, seconds_left: float) -> None:
        parts = [f"loss {record['loss']:.4f}"]
        terms = [name for name in record if name.endswith("/loss")]
        parts += [f"{name.removesuffix('/loss')} {record[name]:.4f}" for name in terms if len(terms) > 1]
        parts += [f"lr {record['learning_rate']:.2e}", f"{record['tokens_per_second']:,.0f} tokens/s"]
        if "utilization" in record:
            parts += [f"{record['utilization']:.0%} of peak"]
        if record["skipped"]:
            parts += [f"{record['skipped']} skipped"]
        if self.bar is not None:
            self.bar.set_postfix_str(", ".join(parts))
        elif self.shown_steps.is_due(record["step"]):
            left = timedelta(seconds=round(seconds_left))
            self.say(f"step {record['step']}/{self.steps}: {', '.join(parts)}, {left} left")

    def _write(self, record: Record) -> None:
        if self.accelerator.is_main_process:
            self.unwritten += json.dumps(as_json(record), allow_nan=False).encode() + b"\n"
            try:
                self._append()
            except WriteError as error:
                self.say(f"{error}; until then the log is kept in memory")
        numbers = {name: value for name, value in record.items() if name not in {"step", "data"}}
        self.accelerator.log(numbers, step=record["step"])

    def _append(self) -> None:
        # Whole lines or nothing.
        size = self.log.stat().st_size if self.log.exists() else 0
        with explaining_a_full_disk(self.log, len(self.unwritten)):
            try:
                with self.log.open("ab") as log:
                    log.write(self.unwritten)
            except OSError:
                os.truncate(self.log, size)
                raise
        self.unwritten = b""


def begin_trackers(accelerator: Accelerator, folder: Path, progress: Progress) -> None:
    """Begin the accelerator's trackers, or go on in them, in the place of the steps that are taken again."""
    progress.run_id = progress.run_id or secrets.token_hex(4)
    same_run = {"name": f"{folder.name}-{progress.run_id}", "resume": "allow"}
    goes_on = {
        "tensorboard": {"purge_step": progress.step + 1},
        "wandb": {"id": progress.run_id} | same_run,
        "trackio": same_run,
    }
    accelerator.init_trackers(folder.name, init_kwargs=goes_on)


def read_log(path: Path) -> list[Record]:
    """Read the records of a log; a cut last line is left out, and damaged ones are, with a warning."""
    *lines, _ = path.read_bytes().split(b"\n")
    records = [_parsed(line) for line in lines]
    damaged = [number for number, record in enumerate(records, start=1) if record is None]
    if damaged:
        numbers = ", ".join(map(str, damaged[:SHOWN])) + (", ..." if len(damaged) > SHOWN else "")
        warnings.warn(
            f"{path} is damaged: {len(damaged)} of its {len(lines)} lines are invalid (line {numbers}) and "
            f"are skipped; checkpoints do not depend on it",
            stacklevel=2,
        )
    return [record for record in records if record is not None]


def _parsed(line: bytes) -> Record | None:
    try:
        record = json.loads(line.decode())
        return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None
    except (ValueError, RecursionError):
        return None


def rewind(path: Path, step: int) -> None:
    """Drop the records after `step`, which a resumed run will write again, and what is damaged."""
    if path.exists():
        kept = [record for record in read_log(path) if record["step"] <= step]
        replace_text(path, "".join(json.dumps(record) + "\n" for record in kept))


def as_json(data: Any) -> Any:
    """Replace what is not finite in nested plain data by `null`: JSON has no other word for it."""
    if isinstance(data, dict):
        return {name: as_json(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [as_json(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def as_scores(data: dict[str, float | None]) -> dict[str, float]:
    """Read scores back that `as_json` has written: what was not finite is not a number now."""
    return {name: math.nan if value is None else value for name, value in data.items()}
