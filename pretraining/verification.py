"""Whether a recipe's run can be resumed exactly: tried out on its own text, with processes that are killed.

    straight   1  2  3  4  5  6  7  8  9 10 11 12
    resumed    1  2  3  4                           killed as soon as the checkpoint of step 4 is there
                           5  6  7  8  9            resumed; killed at a random moment after that of step 8
                                       9 10 11 12   resumed from step 8

Each line is a `tercet pretrain` in a process of its own, with the recipe's data, objective, precision and
workers. The recipe's number of steps stays, and with it the schedule, but nobody waits for the end.
"""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ..configs.documents import write_document
from ..configs.processes import start_python
from ..configs.recipe import recipe_data
from ..training.checkpoints.checkpoint import CHECKPOINTS, PREFIX, checkpoints
from ..training.ownership import mark
from ..training.recipe import TrainingRecipe
from ..training.tracking import LOG, Record, read_log
from .output import TOKENIZER
from .recipe import PretrainingRecipe

COMPARED = ("data", "loss", "grad_norm", "learning_rate", "targets", "skipped")
"""What the records of a step must agree in, by the log's names."""

WEIGHTS = "model.safetensors"
"""The file of a checkpoint that holds the weights."""

CLOCK = "seconds"
"""What the window of a checkpoint knows of time, in which no two runs agree."""

WRONG_USAGE = 2
"""Exit code of a command whose recipe cannot run."""

LOOK_EVERY = 0.005
"""Seconds between two looks at what a process has written."""


@dataclass(frozen=True)
class Kill:
    """The violent end of a process."""

    logged: int
    """The last step that it had logged."""
    saved: int
    """The last step that it had saved, from which the next process goes on."""


@dataclass(frozen=True)
class Trial:
    """A run up to some step: what it logged, and what it had saved by then."""

    records: list[Record]
    """The log's record of every step."""
    states: dict[str, Any]
    """The contents of that step's checkpoint, by file: weights, optimizer, generators."""
    kills: tuple[Kill, ...] = ()
    """How often it was killed on the way."""

    @property
    def fingerprints(self) -> dict[str, str]:
        return {name: fingerprint(state) for name, state in self.states.items()}

    def equals(self, other: "Trial") -> bool:
        """Return whether another run cannot be told from this one."""
        steps = zip(self.records, other.records, strict=True)
        return not any(differences(*step) for step in steps) and self.fingerprints == other.fingerprints

    def distance(self, other: "Trial") -> float:
        """Return the largest absolute difference between any two weights."""
        ours, theirs = self.states[WEIGHTS], other.states[WEIGHTS]
        return max(float((ours[name].double() - theirs[name].double()).abs().max()) for name in ours)


@dataclass(frozen=True)
class Verification:
    """An uninterrupted (straight) run beside one that was killed and resumed."""

    straight: Trial
    resumed: Trial
    repeated: Trial | None
    """A second uninterrupted run, made only where those two differ: does the machine repeat itself at all?"""

    @property
    def is_exact(self) -> bool:
        """Whether the resumed run cannot be told from the other."""
        return self.repeated is None


def verify_resume(
    recipe: PretrainingRecipe, *, steps: int = 12, say: Callable[[str], None] = lambda line: None
) -> Verification:
    """Run the first steps of a recipe straight, and again with two kills and resumptions.

    Nothing is written but into a temporary folder and the cache of tokenized text; trackers stay out.

    Args:
        recipe: What to try out.
        steps: How many, cut in three by checkpoints; what cannot be cut is left out.
        say: Told what happens.

    Raises:
        ValueError: There are fewer than three steps, or the recipe cannot run.
        RuntimeError: A process of the run failed by itself.
    """
    every = min(steps, recipe.training.steps) // 3
    if every < 1:
        raise ValueError(
            f"a run of {min(steps, recipe.training.steps)} steps cannot be split in three: use at least 3"
        )
    with tempfile.TemporaryDirectory(prefix="tercet-verify-resume-") as name:
        folder = Path(name)
        say(f"{3 * every} steps without interruption")
        tried = recipe_data(replace(recipe, training=shortened(recipe.training, every)))
        straight = try_out(tried, folder / "straight", every)
        say("the same, killed twice and resumed")
        third = straight.records[2 * every - 1]["seconds"] - straight.records[every - 1]["seconds"]
        delays = (0.0, random.random() * third)
        resumed = try_out(tried, folder / "resumed", every, delays, tokenizer=folder / "straight")
        if straight.equals(resumed):
            return Verification(straight, resumed, None)
        say("they differ: one more uninterrupted run, to check whether this machine is deterministic")
        repeated = try_out(tried, folder / "repeated", every, tokenizer=folder / "straight")
        return Verification(straight, resumed, repeated)


def shortened(training: TrainingRecipe, every: int) -> TrainingRecipe:
    """Leave out what a trial needs not, and log and keep what it compares."""
    return replace(
        training,
        log_every=1,
        checkpoint_every=every,
        keep_checkpoints=10**6,
        evaluate_every=None,
        patience=None,
        revisions=None,
        push_revisions=None,
        average_checkpoints=None,  # at the end of a run, which is not reached
        final_weights=None,
        measure_utilization=False,
        trackers=(),
    )


def try_out(
    tried: dict[str, Any],
    folder: Path,
    every: int,
    delays: tuple[float, ...] = (),
    tokenizer: Path | None = None,
) -> Trial:
    """Run three thirds of `every` steps in a folder, as many processes after each other as it takes.

    Args:
        tried: A recipe as plain data.
        folder: Where it runs.
        every: Steps between checkpoints.
        delays: Seconds that a process still lives after the checkpoint at the end of its third.
        tokenizer: Folder of a run whose tokenizer to use, if it trained one.
    """
    if tokenizer is not None and (tokenizer / TOKENIZER).exists():
        shutil.copytree(tokenizer / TOKENIZER, folder / TOKENIZER)
        mark(folder)  # so that the run takes it for what it was prepared with
    file = folder.with_suffix(".yaml")
    file.write_text(write_document(tried | {"output": str(folder)}), encoding="utf-8")
    kills = [run_until(file, folder, every * part, delay) for part, delay in enumerate(delays, start=1)]
    run_until(file, folder, 3 * every, 0.0)
    states = read_states(folder / CHECKPOINTS / f"{PREFIX}{3 * every:08d}")
    return Trial(records_of(folder)[: 3 * every], states, tuple(kills))


def run_until(file: Path, folder: Path, step: int, delay: float) -> Kill:
    """Begin or resume a run in a process; kill it `delay` seconds after the checkpoint of `step` is made."""
    command = ["-m", "tercet", "pretrain", str(file), "--resume"]
    with tempfile.TemporaryFile("w+") as said:
        process = start_python(command, stdout=said, stderr=said, start_new_session=True)
        try:
            checkpoint = folder / CHECKPOINTS / f"{PREFIX}{step:08d}"
            while not checkpoint.exists():
                if process.poll() is not None:
                    said.seek(0)
                    error = ValueError if process.returncode == WRONG_USAGE else RuntimeError
                    last = (said.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
                    raise error(f"the run ended before it was killed: {last}")
                time.sleep(LOOK_EVERY)
            time.sleep(delay)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its data workers
                process.wait()
    newest = checkpoints(folder / CHECKPOINTS)[-1].name
    return Kill(records_of(folder)[-1]["step"], int(newest.removeprefix(PREFIX)))


def records_of(folder: Path) -> list[Record]:
    """Read the records of steps in a run's log."""
    return [record for record in read_log(folder / LOG) if "loss" in record]


def read_states(checkpoint: Path) -> dict[str, Any]:
    """Read what two equal runs have in common of a checkpoint: all files of tensors, but no time."""
    states = {path.name: load_file(path) for path in sorted(checkpoint.glob("*.safetensors"))}
    states |= {path.name: torch.load(path, "cpu") for path in sorted(checkpoint.glob("*.pt"))}
    for path in checkpoint.glob("window-*.pt"):
        del states[path.name][CLOCK]
    return states


def differences(record: Record, other: Record) -> list[str]:
    """Name what two records of a step differ in."""
    return [name for name in ("step", *COMPARED) if record[name] != other[name]]


def fingerprint(state: Any) -> str:
    """Return a checksum of nested plain data and tensors: SHA-256, shortened to 16 digits."""
    checksum = sha256()
    for part in flattened(state):
        checksum.update(part)
    return checksum.hexdigest()[:16]


def flattened(state: Any) -> Iterator[Any]:
    """Yield the bytes of everything in nested plain data, in a fixed order."""
    if isinstance(state, torch.Tensor):
        yield f"{state.dtype}{tuple(state.shape)}".encode()
        yield state.reshape(-1).contiguous().view(torch.uint8).numpy()
    elif isinstance(state, dict):
        for name in sorted(state, key=str):
            yield str(name).encode()
            yield from flattened(state[name])
    elif isinstance(state, list | tuple):
        for part in state:
            yield from flattened(part)
    else:
        yield repr(state).encode()


RULE = "-" * 70


def report(verification: Verification) -> str:
    """Lay a verification out: every step, the states after the last one, and the verdict."""
    return "\n".join(
        [*step_lines(verification), RULE, *state_lines(verification), RULE, *verdict(verification)]
    )


def step_lines(verification: Verification) -> Iterator[str]:
    """List both runs' losses, the checksum of what was read so far, and what differs; and the kills."""
    straight, resumed = verification.straight, verification.resumed
    yield row("step", "uninterrupted", "resumed", "data so far", "")
    yield RULE
    for ours, theirs in zip(straight.records, resumed.records, strict=True):
        told = differences(ours, theirs)
        mark = f"≠ {', '.join(told)}" if told else "="
        yield row(ours["step"], number(ours["loss"]), number(theirs["loss"]), theirs["data"], mark)
        for kill in resumed.kills:
            if kill.saved == ours["step"]:
                yield f"      killed after step {kill.logged}, resumed after step {kill.saved}"


def row(step: int | str, straight: str, resumed: str, data: str, mark: str) -> str:
    """Align a line of the steps' table."""
    return f"{step:>4}  {straight:>16}  {resumed:>16}  {data:>12}  {mark}".rstrip()


def state_lines(verification: Verification) -> Iterator[str]:
    """List the checksums of both last checkpoints, file by file, and how far apart the weights are."""
    straight, resumed = verification.straight, verification.resumed
    theirs = resumed.fingerprints
    last = f"after step {straight.records[-1]['step']}"
    yield f"{last:<20}{'uninterrupted':<18}resumed"
    for name, ours in straight.fingerprints.items():
        yield f"{name:<20}{ours:<18}{theirs[name]:<18}{'=' if theirs[name] == ours else '≠'}"
    of_losses, of_weights = largest_loss_difference(verification), straight.distance(resumed)
    yield f"largest difference: {of_losses:g} of losses, {of_weights:g} of weights"


def largest_loss_difference(verification: Verification) -> float:
    """Return the largest difference of two losses of a step; one that is not finite differs from none."""
    pairs = zip(verification.straight.records, verification.resumed.records, strict=True)
    return max(abs((ours["loss"] or 0) - (theirs["loss"] or 0)) for ours, theirs in pairs)


def verdict(verification: Verification) -> Iterator[str]:
    """Yield whether resuming is exact, and if not, whose fault that is."""
    if verification.repeated is None:
        yield "exact: the resumed run equals the uninterrupted one, bit for bit"
        return
    yield "not exact: the resumed run differs from the uninterrupted one"
    if verification.straight.equals(verification.repeated):
        yield "  a second uninterrupted run equals the first: resuming is at fault, please report it"
    else:
        yield "  a second uninterrupted run differs from the first, too: the machine is not deterministic"


def number(loss: float | None) -> str:
    """Write a loss with all the digits that float32 has."""
    return "not finite" if loss is None else f"{loss:.9g}"
