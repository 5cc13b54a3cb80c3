"""A whole run of the engine, from a recipe: everything around the loop, put together once for every member.

recipe -> optimizer, schedule, steps -> train() -> log, evaluations and checkpoints on the way
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..configs.recipe import recipe_data
from .batches import Step, StepDataset, endless_steps, one_pass
from .checkpoint import RunState, latest, load_checkpoint, prune, read_state, save_checkpoint
from .evaluation import evaluate, evaluation_mode, micro_batches, undisturbed_randomness
from .examples import ExampleSource
from .heap import bound_kernel_cache, retain_heap
from .interruption import Interruption, listening
from .loop import Progress, train
from .objective import Objective
from .optimizers import build_optimizer
from .precision import fastest_float32_products
from .recipe import TrainingRecipe
from .schedules import build_schedule
from .tracking import Tracker, Utilization
from .utilization import count_flops_per_token, measure_peak

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in the run's folder."""

ASK_EVERY = 10
"""Steps after which several processes ask each other whether one of them was told to stop."""


@dataclass(frozen=True)
class HeldOut:
    """What a run is measured on."""

    source: ExampleSource
    """Its epoch 0 is scored, the same way every time."""
    num_bytes: Mapping[str, int] = field(default_factory=dict)
    """UTF-8 bytes that a term's targets cover, by the term's name, for bits per byte."""
    measure: Callable[[nn.Module], dict[str, float]] = lambda model: {}
    """Further scores of the bare model, such as BLEU; called on every process, the main one's are kept."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    progress: Progress
    """Where it stands."""
    scores: dict[str, float]
    """The last evaluation's, as `evaluate` names them; empty if there was none."""
    checkpoint: Path
    """The newest checkpoint."""
    interrupted_by: str | None
    """The signal that ended it before its last step."""


def fit(
    model: nn.Module,
    objective: Objective,
    source: ExampleSource,
    recipe: TrainingRecipe,
    folder: Path,
    accelerator: Accelerator,
    *,
    width: int,
    held_out: HeldOut | None = None,
    about: dict[str, Any] | None = None,
    resume: bool = False,
) -> Outcome:
    """Train a model as a recipe says, in place.

    Args:
        model: With the weights to begin from; on return with those at the end, on the accelerator's device.
        objective: What is learned.
        source: What from.
        recipe: How.
        folder: Receives `log.jsonl` and `checkpoints/`.
        accelerator: From `build_accelerator`, with the same recipe.
        width: The model's width, from which the Noam schedule derives the rate.
        held_out: What it is measured on.
        about: The whole recipe as plain data, kept with the checkpoints.
        resume: Whether to continue from the newest checkpoint in the folder, if there is one.

    Raises:
        ValueError: The recipe does not fit the corpus, the machine or the checkpoint.
        FloatingPointError: Too many steps in a row had no finite gradient.
    """
    bound_kernel_cache()
    if recipe.retain_heap and accelerator.device.type == "cpu":
        retain_heap()
    with listening() as interruption, fastest_float32_products(accelerator.device):
        run = _Run(
            model, objective, source, recipe, folder, accelerator, interruption, width, held_out, about
        )
        if resume and (checkpoint := latest(folder / CHECKPOINTS)) is not None:
            run.continue_from(checkpoint)
        return run.carry_out()


def steps_of(
    source: ExampleSource,
    objective: Objective,
    recipe: TrainingRecipe,
    accelerator: Accelerator,
    *,
    is_training: bool,
) -> StepDataset:
    """Cut a source into steps for this process; what is held out keeps its order and may be small."""
    size = recipe.tokens_per_step
    return StepDataset(
        source,
        objective,
        tokens_per_step=size if is_training else min(size, int(source.epoch(0).lengths.sum())),
        tokens_per_micro_batch=recipe.tokens_per_micro_batch or size,
        seed=recipe.seed,
        shuffle=is_training,
        num_processes=accelerator.num_processes,
        process_index=accelerator.process_index,
    )


class _Run:
    """The parts of a run, and what happens after each of its steps."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        source: ExampleSource,
        recipe: TrainingRecipe,
        folder: Path,
        accelerator: Accelerator,
        interruption: Interruption,
        width: int,
        held_out: HeldOut | None,
        about: dict[str, Any] | None,
    ):
        self.objective = objective
        self.recipe = recipe
        self.folder = folder
        self.accelerator = accelerator
        self.interruption = interruption
        self.held_out = held_out
        self.about = (about or {}) | {"training": recipe_data(recipe)}
        self.scores: dict[str, float] = {}
        self.scored_step = -1

        torch.manual_seed(recipe.seed + accelerator.process_index)  # dropout; the weights are drawn already
        bare = model
        self.model = accelerator.prepare(model)
        sets_rate = recipe.schedule.kind == "noam"
        optimizer = build_optimizer(bare, recipe.optimizer, sets_learning_rate=sets_rate)
        self.schedule = build_schedule(optimizer, recipe.schedule, steps=recipe.steps, width=width)
        self.optimizer = accelerator.prepare(optimizer)
        self.progress = Progress()
        self.steps = steps_of(source, objective, recipe, accelerator, is_training=True)
        self.held_out_steps = (
            steps_of(held_out.source, objective, recipe, accelerator, is_training=False) if held_out else None
        )

    @property
    def state(self) -> RunState:
        """What a checkpoint holds."""
        return RunState(self.model, self.optimizer, self.schedule, self.progress, self.accelerator)

    def continue_from(self, checkpoint: Path) -> None:
        """Go on where a checkpoint ends.

        Raises:
            ValueError: The recipe orders the data otherwise, so that the place in them would mean nothing.
        """
        earlier, present = read_state(checkpoint)["recipe"]["training"], self.about["training"]
        for key in ("seed", "tokens_per_step"):
            if earlier[key] != present[key]:
                raise ValueError(
                    f"training.{key} = {present[key]}, but {checkpoint} was made with {earlier[key]}: resume "
                    "with that, or begin anew in another folder"
                )
        load_checkpoint(checkpoint, self.state)

    def carry_out(self) -> Outcome:
        """Train to the end or an interruption; evaluate and save what is not yet."""
        batches = endless_steps(
            self.steps,
            self.progress.place,
            num_workers=self.recipe.num_workers,
            pin_memory=self.accelerator.device.type == "cuda",
        )
        first = next(batches)
        if self.recipe.trackers:
            self.accelerator.init_trackers(self.folder.name)
        utilization = self._measure_utilization(first) if self.recipe.measure_utilization else None
        self.tracker = Tracker(
            self.accelerator,
            self.folder,
            self.progress,
            steps=self.recipe.steps,
            log_every=self.recipe.log_every,
            utilization=utilization,
        )
        self.model.train()
        with batches.explained():
            train(
                self.model,
                self.objective,
                chain([first], batches),
                self.optimizer,
                self.schedule,
                self.accelerator,
                self.progress,
                steps=self.recipe.steps,
                max_grad_norm=self.recipe.max_grad_norm,
                max_skipped_steps=self.recipe.max_skipped_steps,
                after_step=self._after_step,
                should_stop=self._should_stop,
            )
        return self._finish()

    def _after_step(self, progress: Progress, metrics: dict[str, Tensor]) -> None:
        self.tracker.record_step(metrics)
        if _is_due(self.recipe.evaluate_every, progress.step):
            self._evaluate()
        if _is_due(self.recipe.checkpoint_every, progress.step):
            self._save()

    def _finish(self) -> Outcome:
        is_finished = self.progress.step >= self.recipe.steps
        if is_finished and self.scored_step != self.progress.step:
            self._evaluate()
        newest = latest(self.folder / CHECKPOINTS)
        if newest is None or read_state(newest)["progress"]["step"] != self.progress.step:
            newest = self._save()
        self.tracker.close()
        for tracker in self.accelerator.trackers:
            tracker.finish()
        if is_finished:
            return Outcome(self.progress, self.scores, newest, None)
        signal = self.interruption.name or "a signal to another process"
        self.tracker.say(
            f"{signal}: stopped after step {self.progress.step} of {self.recipe.steps}; resume from {newest}"
        )
        return Outcome(self.progress, self.scores, newest, signal)

    def _evaluate(self) -> None:
        if self.held_out is None or self.held_out_steps is None:
            return
        with self.tracker.paused():
            batches = micro_batches(one_pass(self.held_out_steps), self.accelerator.device)
            scores = evaluate(
                self.model, self.objective, batches, self.accelerator, num_bytes=self.held_out.num_bytes
            )
            bare = self.accelerator.unwrap_model(self.model)
            with undisturbed_randomness(self.accelerator.device), evaluation_mode(bare):
                self.scores = scores | self.held_out.measure(bare)
            self.scored_step = self.progress.step
        self.tracker.record_evaluation(self.scores)

    def _save(self) -> Path:
        with self.tracker.paused():
            score = self.scores["loss"] if self.scored_step == self.progress.step else None
            checkpoint = save_checkpoint(
                self.folder / CHECKPOINTS, self.state, recipe=self.about, score=score
            )
            if self.accelerator.is_main_process:
                prune(self.folder / CHECKPOINTS, self.recipe.keep_checkpoints)
        return checkpoint

    def _should_stop(self) -> bool:
        """Tell whether any process was told to stop, in the same step on all of them."""
        is_asked = self.interruption.name is not None
        if self.accelerator.num_processes == 1:
            return is_asked
        if self.progress.step % ASK_EVERY:
            return False
        asked = torch.tensor(float(is_asked), device=self.accelerator.device)
        return bool(cast(Tensor, self.accelerator.reduce(asked)) > 0)

    def _measure_utilization(self, step: Step) -> Utilization:
        per_token = count_flops_per_token(self.model, self.objective, step, self.accelerator)
        peak = self.recipe.peak_flops or measure_peak(
            self.accelerator.device, self.accelerator.mixed_precision
        )
        return Utilization(per_token, peak)


def _is_due(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0
