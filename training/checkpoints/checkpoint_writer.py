"""The checkpoints of a run: when one is saved, how it is written, and which ones stay.

    step        18   19   20   21   22   23 ...
    gradient    ok   ok   ok   ok   inf  inf
    checkpoint  18                                 due at 18 and 22, with checkpoint_every = 4
    pruned           by 19, which has shown that 18 can be learned from

While steps are skipped, since their gradient is not finite, nothing is saved and nothing deleted: what was
kept before is all that there is to go on from, and the weights of a new checkpoint might be the broken ones.
One that came due meanwhile is saved after the next finite step, and so are the scores of an evaluation. A
checkpoint pushes others out only once a step after it was finite.

They are written while the run goes on: one at a time, in a thread.

    run      step 4 | snapshot | step 5 | step 6 | step 7 | step 8 | waits, snapshot | step 9 ...
    thread                     | writes, flushes, hashes, renames |                  | writes ...

The thread works on copies, and talks to those of other processes in a group of its own. What it cannot write
ends the run after the present step.
"""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Self

import torch
from torch import Tensor

from ...data.files.atomic_writes import WriteError
from ..loop import Metrics, Training
from ..recipe import TrainingRecipe
from ..tracking import Tracker
from ..weight_scores import WeightScores
from .checkpoint import Snapshot, holds_mean, is_due, prune, take_snapshot
from .recovery import newest_due


@dataclass
class CheckpointSeries:
    """Saves a run's checkpoints when the recipe says so, and at its end."""

    folder: Path
    """Folder of the checkpoints."""
    training: Training
    """What is saved."""
    recipe: TrainingRecipe
    """Says how often checkpoints are due, and how many stay."""
    about: dict[str, Any]
    """The whole recipe as plain data, kept with each."""
    scores: WeightScores
    """Scores of the run's weights, kept with those that they are of."""
    tracker: Tracker
    """Its clock stops while something is saved."""
    newest: Path | None = None
    """The newest checkpoint; at first, the one from which the run goes on, if it does."""
    saved_step: int = -1
    """The step that it was saved after."""
    is_owed: bool = False
    """Whether one was due since the newest one."""
    is_unproved: bool = False
    """Whether the checkpoints before the newest one are still kept."""
    is_proved: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.bool))
    """Whether a step after the newest checkpoint was finite."""

    def __post_init__(self):
        self.writer = CheckpointWriter(in_background=self.recipe.async_checkpoints)
        if self.newest is not None:
            self.saved_step = self.training.progress.step

    def after_step(self, metrics: Metrics) -> None:
        """Delete what a step allows to, and save after it if that is due or the run ends.

        A GPU is waited for only where something depends on the answer. An evaluation comes before, so that a
        resumed run never repeats one.
        """
        progress, grad_norm = self.training.progress, metrics["grad_norm"]
        self.writer.check()
        if self.is_unproved:
            self.is_proved = self.is_proved.to(grad_norm.device) | grad_norm.isfinite()
            if not self.writer.is_writing():
                self.prune()
        self.is_owed = self.is_owed or is_due(self.recipe.checkpoint_every, progress.step)
        if (self.is_owed and not progress.is_skipping) or self.training.is_finished:
            self.save()

    def save_the_end(self) -> Path:
        """Save where the run ends unless it is saved, or its last steps were skipped; return the newest."""
        progress = self.training.progress
        is_worth_it = self.training.is_finished or self.newest is None or not progress.is_skipping
        if (self.saved_step != progress.step or self._lacks_mean) and is_worth_it:
            self.save()
        self.settle()
        assert self.newest is not None
        return self.newest

    def save(self) -> None:
        """Save a checkpoint, or begin to; at the end of the run, with the mean of the last ones."""
        if self._lacks_mean:
            self._average(self.recipe.average_checkpoints or 0)
        with self.tracker.paused():
            self.tracker.flush()  # a run that resumes here does not write these records again
            is_scored = self.scores.step == self.training.progress.step
            self.settle()  # there is room for one copy, and on the disk for one more checkpoint
            snapshot = take_snapshot(
                self.folder,
                self.training,
                recipe=self.about,
                scores=self.scores.values if is_scored else {},
                criterion=self.scores.criterion if is_scored else None,
                is_due=self.is_owed,
                copies=self.recipe.async_checkpoints,
            )
            self.newest = snapshot.final
            self.writer.write(snapshot)
            self.saved_step = self.training.progress.step
        self.is_owed, self.is_unproved = False, True
        self.is_proved = torch.zeros((), dtype=torch.bool)

    def settle(self) -> None:
        """Wait until the newest checkpoint is on the disk, and delete those that are not needed any more."""
        self.writer.wait()
        self.prune()

    def prune(self) -> None:
        """Delete all but the newest, which must be on the disk, unless only skipped steps followed."""
        if self.is_unproved and (not self.training.progress.is_skipping or bool(self.is_proved)):
            self.is_unproved = False
            if self.training.accelerator.is_main_process:
                prune(self.folder, self.recipe.keep_checkpoints, self.recipe.average_checkpoints or 0)

    @property
    def _lacks_mean(self) -> bool:
        number, progress = self.recipe.average_checkpoints, self.training.progress
        if number is None or not self.training.is_finished:
            return False
        saved = self.newest if self.saved_step == progress.step else None
        self.writer.wait()
        return saved is None or not holds_mean(saved, number)

    def _average(self, number: int) -> None:
        self.writer.wait()
        progress, accelerator = self.training.progress, self.training.accelerator
        self.scores.evaluate_mean(newest_due(self.folder, number - 1, progress.step, accelerator))


class CheckpointWriter:
    """Writes snapshots, `in_background` or at once, as a context at whose end nothing is left to write."""

    def __init__(self, *, in_background: bool):
        self.in_background = in_background
        self.thread: Thread | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.wait()
        except WriteError:
            raise
        except Exception:
            if kind is None:
                raise  # else what has ended the run, such as a lost process, has ended the thread as well

    def write(self, snapshot: Snapshot) -> None:
        """Write a snapshot, or begin to, once the one before is on the disk."""
        self.wait()
        if not self.in_background:
            snapshot.write()
            return
        self.thread = Thread(target=self._write, args=[snapshot], name="checkpoint", daemon=True)
        self.thread.start()

    def is_writing(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def check(self) -> None:
        """Raise what has kept the latest snapshot from being written, if that is known already."""
        if not self.is_writing():
            self.wait()

    def wait(self) -> None:
        """Wait until the latest snapshot is on the disk."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _write(self, snapshot: Snapshot) -> None:
        try:
            snapshot.write()
        except BaseException as error:
            self.error = error
