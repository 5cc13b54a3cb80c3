"""A model learns, as every kind of run lets it: everything around the loop, put together once.

Session, Parts -> Training -> train() -> Outcome
                             |
                             +-> log, evaluations, intermediate models and checkpoints on the way
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..configs.recipe import recipe_data
from ..data.steps.batches import Step
from ..data.steps.exchange import explaining_lost_processes
from ..data.steps.interruption import BrokenOff, Interruption, listening
from ..data.steps.objective import Objective
from ..data.steps.workers import choose_workers, leaving_no_workers
from .checkpoints.checkpoint import CHECKPOINTS, latest, load_checkpoint, read_state
from .checkpoints.checkpoint_writer import CheckpointSeries
from .checkpoints.final_weights import EMA, FILES, scores_of
from .checkpoints.recovery import precision_kept, require_resumable, starting_point
from .devices.cpu import prepared_cpu
from .devices.environment import attention_of, tell_of_resuming
from .devices.precision import build_accelerator, products_of_few_digits
from .devices.sharding import computes_again, prepare_model, processes_of, settle
from .devices.utilization import measure_utilization
from .loop import Metrics, Progress, Training, train
from .optimizers.optimizers import build_optimizer
from .optimizers.row_updates import gradients_by_rows
from .optimizers.schedules import build_schedule
from .recipe import TrainingRecipe
from .skipping import NonFiniteError
from .stages import StagedSteps, TrainingData
from .tracking import Tracker, begin_trackers
from .weight_scores import WeightScores

if TYPE_CHECKING:
    from .checkpoints.revisions import RevisionSeries


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    progress: Progress
    """Where it stands."""
    scores: dict[str, float]
    """The last evaluation's, as `WeightScores` names them; empty if there was none."""
    checkpoint: Path
    """The newest checkpoint."""
    interrupted_by: str | None
    """The signal that ended it before its last step."""


class Interrupted(KeyboardInterrupt):
    """A signal has ended a run before its last step; the checkpoint is written."""

    def __init__(self, outcome: Outcome):
        super().__init__(f"stopped by {outcome.interrupted_by}; continue with --resume")
        self.outcome = outcome


@dataclass(frozen=True)
class Session:
    """Where a model learns: pretraining has one session, fine-tuning one for each seed."""

    folder: Path
    """Receives `log.jsonl` and `checkpoints/`."""
    accelerator: Accelerator
    """Owns devices, precision and processes."""
    recipe: TrainingRecipe
    """How it learns."""
    resume: bool = False
    """Whether to continue from the newest whole checkpoint in the folder, if there is one."""

    @classmethod
    def begin(cls, folder: Path, recipe: TrainingRecipe, *, resume: bool) -> Self:
        """Take hold of the devices; where the recipe leaves the precision open, an earlier part's is kept."""
        kept = precision_kept(folder / CHECKPOINTS) if resume else None
        return cls(folder, build_accelerator(recipe, folder, kept_precision=kept), recipe, resume)

    @property
    def goes_on(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return self.resume and latest(self.folder / CHECKPOINTS) is not None


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What learns, and from what: built and checked before the first step."""

    model: nn.Module
    """With the weights to begin from; in the end with those of the last step, on the accelerator's device.
    Averages are in the last checkpoint: see `checkpoints/final_weights.py`."""
    objective: Objective
    """What is learned."""
    data: TrainingData
    """What from, and what it is measured on: from `prepare_data`, with the session's recipe."""
    width: int
    """The model's, from which the Noam schedule derives the rate."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The whole recipe as plain data, kept with the checkpoints."""
    is_trained: bool = False
    """Whether the weights to begin from are scored, too, as those of step 0."""


def learn(session: Session, parts: Parts, revisions: "RevisionSeries | None" = None) -> Outcome:
    """Train a model, in place; `revisions` keeps the intermediate models that the recipe asks for.

    Raises:
        Interrupted: A signal stopped the run; its checkpoint is written.
    """
    recipe, accelerator, folder = session.recipe, session.accelerator, session.folder / CHECKPOINTS
    if recipe.revisions is not None and revisions is None:
        raise ValueError("training.revisions is for `tercet pretrain` alone: leave it out")
    about = {**parts.about, "training": recipe_data(recipe)}
    with (
        listening() as interruption,
        leaving_no_workers(),
        prepared_cpu(accelerator.device, retains_heap=recipe.retain_heap),
        explaining_lost_processes(),
    ):
        training = build_training(session, parts)
        if start := starting_point(folder, accelerator, resume=session.resume):
            continue_from(start, training, about)
        if recipe.trackers:
            begin_trackers(accelerator, session.folder, training.progress)
        tracker = Tracker(training, session.folder, log_every=recipe.log_every)
        scores = WeightScores(training, parts.data, recipe, tracker)
        saved = CheckpointSeries(folder, training, recipe, about, scores, tracker, start)
        observers = list_observers(training, recipe.ema_decay, tracker, scores, saved, revisions)
        loader = load_steps(training, parts.data, recipe.num_workers, tracker)
        if start is not None:
            scores.recall(read_state(start))
        elif parts.is_trained:
            scores.evaluate_first()
        with saved.writer:
            try:
                halfway = (lambda: parts.data.halfway) if recipe.measure_utilization else None
                take_steps(training, loader, observers, interruption, tracker, halfway, recipe.peak_flops)
            except NonFiniteError as error:
                saved.settle()
                raise inspected(error, training, session.folder, about, saved.newest) from None
            if training.is_finished and scores.step != training.progress.step:
                scores.evaluate()
            checkpoint = saved.save_the_end()
        tracker.close()
        loader.close()  # not before all is saved: a worker that waits for data takes seconds to end
        signal = None if training.is_finished else interruption.name or "a signal to another process"
        tell_of_the_end(training, checkpoint, signal, tracker)
    outcome = Outcome(training.progress, scores.values, checkpoint, signal)
    if signal is not None:
        raise Interrupted(outcome)
    return outcome


def build_training(session: Session, parts: Parts) -> Training:
    """Prepare a model on its devices, with what its first step needs."""
    recipe, accelerator, model, objective = session.recipe, session.accelerator, parts.model, parts.objective
    set_seed(recipe.seed, device_specific=True)  # for dropout: the weights are drawn already
    if computes_again(recipe.gradient_checkpointing, accelerator):
        from .devices.gradient_checkpointing import enable_gradient_checkpointing

        enable_gradient_checkpointing(model)
    prepared = prepare_model(model, accelerator, cpu_offload=recipe.cpu_offload)
    graphs = None
    if parts.data.has_fixed_sizes:
        from .devices.compiling import compiled_blocks

        graphs = compiled_blocks(
            recipe.compile, model, objective, parts.data, accelerator, records=recipe.cuda_graphs
        )
    optimizer = build_optimizer(
        model,
        recipe.optimizer,
        sets_learning_rate=recipe.schedule.kind == "noam",
        products=products_of_few_digits(accelerator),
        copies=processes_of(accelerator) if isinstance(prepared, DistributedDataParallel) else None,
    )
    averages = {}
    if recipe.ema_decay is not None:
        from .optimizers.averaging import WeightAverage

        averages[EMA] = WeightAverage(model)
    return Training(
        prepared,
        objective,
        schedule=build_schedule(optimizer, recipe.schedule, steps=recipe.steps, width=parts.width),
        optimizer=accelerator.prepare_optimizer(optimizer),
        accelerator=accelerator,
        num_steps=recipe.steps,
        patience=recipe.patience,
        averages=averages,
        graphs=graphs,
        max_grad_norm=recipe.max_grad_norm,
        max_skipped_steps=recipe.max_skipped_steps,
    )


def continue_from(checkpoint: Path, training: Training, about: dict[str, Any]) -> None:
    require_resumable(checkpoint, about["training"])
    load_checkpoint(checkpoint, training)
    tell_of_resuming(checkpoint, read_state(checkpoint), training.model, training.accelerator, about)


def list_observers(
    training: Training,
    ema_decay: float | None,
    tracker: Tracker,
    scores: WeightScores,
    saved: CheckpointSeries,
    revisions: "RevisionSeries | None",
) -> list[Callable[[Metrics], None]]:
    """List what happens after a step, in its order."""
    observers = [tracker.record_step, scores.after_step, saved.after_step]
    if ema_decay is not None:
        observers.insert(0, partial(move_average, training, ema_decay))
    if revisions is not None:  # before the checkpoint, behind which one would be missed
        revisions.tokens = training.progress.tokens
        observers.insert(-1, partial(keep_revisions, revisions, training, scores, tracker))
    return observers


def load_steps(
    training: Training, data: TrainingData, num_workers: int | Literal["auto"], tracker: Tracker
) -> StagedSteps:
    """Prepare to read a run's data from where it stands."""
    accelerator = training.accelerator
    return StagedSteps(
        data.stages,
        training.progress.step,
        training.progress.cursor,
        num_workers=choose_workers(num_workers, accelerator, is_stream=data.is_stream),
        pin_memory=accelerator.device.type == "cuda",
        tell=tracker.say,
    )


def take_steps(
    training: Training,
    loader: StagedSteps,
    observers: Sequence[Callable[[Metrics], None]],
    interruption: Interruption,
    tracker: Tracker,
    halfway: Callable[[], Step] | None,
    peak_flops: float | None,
) -> None:
    """Get the devices ready with the first of the steps that are left; take them, unless a signal comes."""
    if training.is_finished:
        return
    model, accelerator, graphs = training.model, training.accelerator, training.graphs
    is_alone = accelerator.num_processes == 1  # several can only stop together, after a step
    steps = interruption.waiting_for(loader) if is_alone else loader
    by_rows = gradients_by_rows(model, training.optimizer, accelerator)
    with by_rows, suppress(BrokenOff):  # between two steps: all that was learned can be saved
        with tracker.paused():
            first = next(steps)
            if halfway is not None:
                tracker.utilization = measure_utilization(training, halfway(), peak_flops)
        if attention := attention_of(model, accelerator):
            tracker.say(f"attention: {attention}")
        if graphs is not None and graphs.unrecorded:
            tracker.say(f"CUDA graphs: none, because of {graphs.unrecorded}")
        model.train()
        with nullcontext() if graphs is None else graphs.in_use():
            settle(model, training.objective, first, accelerator)
        with loader.explained():
            train(
                training,
                chain([first], steps),
                observers,
                lambda: interruption.is_heard(accelerator, training.progress.step),
            )


def inspected(
    error: NonFiniteError, training: Training, folder: Path, about: dict[str, Any], newest: Path | None
) -> FloatingPointError:
    """Keep what broke a run for inspection, and return the error that says where."""
    from .non_finite import say_what_is_kept  # which other runs do without

    return FloatingPointError(f"{error}; {say_what_is_kept(folder, error, training, about, newest)}")


def move_average(training: Training, decay: float, metrics: Metrics) -> None:
    progress = training.progress
    training.averages[EMA].move(decay, progress.step, progress.skipped, progress.skipped_in_a_row)


def keep_revisions(
    revisions: "RevisionSeries",
    training: Training,
    scores: WeightScores,
    tracker: Tracker,
    metrics: Metrics,
) -> None:
    """Keep the intermediate models that are due after a step, with the scores of an evaluation in it."""
    if names := revisions.due(training.progress):
        kind, is_scored = scores.recipe.judged_kind, scores.step == training.progress.step
        with tracker.paused():
            own = scores_of(kind, scores.values) if is_scored else {}
            revisions.keep_due(names, training, FILES[kind], own)


def tell_of_the_end(training: Training, checkpoint: Path, signal: str | None, tracker: Tracker) -> None:
    """Say how a run has ended, unless all steps are taken; after an early end, also when it is resumed."""
    progress, steps = training.progress, training.num_steps
    if progress.is_skipping:
        tracker.say("the last steps were skipped: only the final checkpoint includes them")
    if signal is not None:
        tracker.say(f"{signal}: stopped after step {progress.step} of {steps}; resume from {checkpoint}")
    elif progress.step < steps:
        best = progress.best_step
        than = "an earlier one" if best is None else f"that after step {best}"
        remedy = ""
        if tracker.first_step == progress.step:
            remedy = "; no step was taken: raise training.patience, or set it to null, to go on"
        tracker.say(
            f"early stopping after step {progress.step} of {steps}: training.patience = {training.patience}, "
            f"and no later evaluation was better than {than}{remedy}"
        )


def tell_of_amount(
    run: str, what: str, done: int, asked: float, progress: Progress, *, tolerance: float
) -> None:
    """Print how much a run has learned from, if its recipe asks for another amount or steps had no effect."""
    skipped = int(progress.skipped)
    if abs(done - asked) < tolerance and not skipped:
        return
    steps = "1 step" if skipped == 1 else f"{skipped:,} steps"
    without = f"; {steps} had no effect, since the gradient was not finite" if skipped else ""
    tell(f"{run} has learned from {done:,} {what}, and its recipe asks for {asked:,.0f}{without}")


def tell_of_weights(run: str, scored: Mapping[str, str], saved: Mapping[str, str]) -> None:
    """Print which kinds of weights were saved with other numbers than those that were scored."""
    for kind in sorted(kind for kind in scored.keys() & saved.keys() if scored[kind] != saved[kind]):
        tell(f"{run}: the scores of the weights {kind!r} are of other numbers than those that are saved")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
