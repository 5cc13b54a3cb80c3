"""A whole run of the engine, from a recipe: everything around the loop, put together once for every member.

recipe -> optimizer, schedule, steps -> train() -> log, evaluations and checkpoints on the way
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..configs.recipe import recipe_data
from .averaging import WeightAverage, moving_share
from .checkpoint import CHECKPOINTS, load_checkpoint, read_state
from .checkpoint_series import CheckpointSeries
from .compiling import compiled_blocks
from .cpu import prepared_cpu
from .environment import attention_of, tell_of_resuming
from .exchange import explaining_lost_processes
from .final_weights import EMA, FILES, judged_kind, scores_of
from .gradient_checkpointing import computes_again, enable_gradient_checkpointing
from .inspection import say_what_is_kept
from .interruption import BrokenOff, Interruption, listening
from .loop import Metrics, Progress, Training, train
from .objective import Objective
from .optimizers import build_optimizer
from .precision import products_of_few_digits
from .recipe import TrainingRecipe
from .recovery import require_resumable, starting_point
from .revisions import RevisionSeries
from .row_updates import gradients_by_rows
from .schedules import build_schedule
from .sharding import prepare_model, processes_of, settle
from .skipping import NonFiniteError
from .stages import StagedSteps, TrainingData
from .tracking import Tracker, begin_trackers
from .utilization import Utilization, measure_utilization
from .weight_scores import WeightScores
from .workers import choose_workers, leaving_no_workers


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


def fit(
    model: nn.Module,
    objective: Objective,
    data: TrainingData,
    recipe: TrainingRecipe,
    folder: Path,
    accelerator: Accelerator,
    *,
    width: int,
    about: dict[str, Any] | None = None,
    resume: bool = False,
    evaluates_first: bool = False,
    revisions: RevisionSeries | None = None,
) -> Outcome:
    """Train a model as a recipe says, in place.

    Args:
        model: With the weights to begin from; on return with those of the last step, on the accelerator's
            device. Averages are in the last checkpoint: see `final_weights.py`.
        objective: What is learned.
        data: What from, and what it is measured on: from `prepare_data`, with the same recipe.
        recipe: How.
        folder: Receives `log.jsonl` and `checkpoints/`.
        accelerator: From `build_accelerator`, with the same recipe.
        width: The model's width, from which the Noam schedule derives the rate.
        about: The whole recipe as plain data, kept with the checkpoints.
        resume: Whether to continue from the newest whole checkpoint in the folder, if there is one.
        evaluates_first: Whether the weights to begin from are scored, too, as those of step 0.
        revisions: Keeps the intermediate models that the recipe asks for.

    Raises:
        ValueError: The recipe does not fit machine or checkpoint; or there is one, not to be resumed; or it
            asks for intermediate models that nobody keeps.
        FloatingPointError: Too many steps in a row had no finite gradient; the message says what was kept.
        WriteError: There is no room for a checkpoint; the earlier ones are intact.
        DamagedCheckpointError: There are checkpoints, and none is as it was written.
    """
    if recipe.revisions is not None and revisions is None:
        raise ValueError("training.revisions is for `tercet pretrain` alone: leave it out")
    about = (about or {}) | {"training": recipe_data(recipe)}
    with (
        listening() as interruption,
        leaving_no_workers(),
        prepared_cpu(recipe, accelerator.device),
        explaining_lost_processes(),
    ):
        training = begin(model, objective, data, recipe, accelerator, width)
        progress = training.progress
        if start := starting_point(folder / CHECKPOINTS, accelerator, resume=resume):
            continue_from(start, training, about)
        if recipe.trackers:
            begin_trackers(accelerator, folder, progress)
        tracker = Tracker(training, folder, log_every=recipe.log_every)
        scores = WeightScores(training, data, recipe, tracker)
        saved = CheckpointSeries(folder / CHECKPOINTS, training, recipe, about, scores, tracker, start)
        num_workers = choose_workers(recipe.num_workers, accelerator, is_stream=data.is_stream)
        loader = load_steps(training, data, num_workers, tracker)
        observers = [tracker.record_step, scores.after_step, saved.after_step]
        if recipe.ema_decay is not None:
            observers.insert(0, partial(move_average, training, recipe.ema_decay))
        if revisions is not None:  # before the checkpoint, behind which one would be missed
            revisions.tokens = progress.tokens
            observers.insert(-1, partial(keep_revisions, revisions, training, scores, tracker))

        def measure() -> Utilization | None:
            wanted = recipe.measure_utilization
            return measure_utilization(training, data.halfway, recipe.peak_flops) if wanted else None

        if start is not None:
            scores.recall(read_state(start))
        elif evaluates_first:
            scores.evaluate_first()

        with saved.writer:
            try:
                take_steps(training, loader, observers, interruption, tracker, measure)
            except NonFiniteError as error:
                saved.settle()
                kept = say_what_is_kept(folder, error, training, about, saved.newest)
                raise FloatingPointError(f"{error}; {kept}") from None
            if training.is_finished and scores.step != progress.step:
                scores.evaluate()
            checkpoint = saved.save_the_end()
        tracker.close()
        loader.close()  # not before all is saved: a worker that waits for data takes seconds to end
        signal = None if training.is_finished else interruption.name or "a signal to another process"
        tell_of_the_end(training, checkpoint, signal, tracker)
        return Outcome(progress, scores.values, checkpoint, signal)


def begin(
    model: nn.Module,
    objective: Objective,
    data: TrainingData,
    recipe: TrainingRecipe,
    accelerator: Accelerator,
    width: int,
) -> Training:
    """Prepare a model on its devices, with what its first step needs; the arguments are those of `fit`."""
    set_seed(recipe.seed, device_specific=True)  # for dropout: the weights are drawn already
    if computes_again(recipe.gradient_checkpointing, accelerator):
        enable_gradient_checkpointing(model)
    prepared = prepare_model(model, accelerator, cpu_offload=recipe.cpu_offload)
    graphs = compiled_blocks(recipe.compile, model, objective, data, accelerator, records=recipe.cuda_graphs)
    optimizer = build_optimizer(
        model,
        recipe.optimizer,
        sets_learning_rate=recipe.schedule.kind == "noam",
        products=products_of_few_digits(accelerator),
        copies=processes_of(accelerator) if isinstance(prepared, DistributedDataParallel) else None,
    )
    return Training(
        prepared,
        objective,
        schedule=build_schedule(optimizer, recipe.schedule, steps=recipe.steps, width=width),
        optimizer=accelerator.prepare_optimizer(optimizer),
        accelerator=accelerator,
        num_steps=recipe.steps,
        patience=recipe.patience,
        averages={} if recipe.ema_decay is None else {EMA: WeightAverage(model)},
        graphs=graphs,
        max_grad_norm=recipe.max_grad_norm,
        max_skipped_steps=recipe.max_skipped_steps,
    )


def continue_from(checkpoint: Path, training: Training, about: dict[str, Any]) -> None:
    """Go on where a checkpoint ends.

    Raises:
        ValueError: The recipe is one that the checkpoint cannot be continued with.
    """
    require_resumable(checkpoint, about["training"])
    load_checkpoint(checkpoint, training)
    tell_of_resuming(checkpoint, read_state(checkpoint), training.model, training.accelerator, about)


def load_steps(training: Training, data: TrainingData, num_workers: int, tracker: Tracker) -> StagedSteps:
    """Prepare to read a run's data from where it stands."""
    return StagedSteps(
        data.stages,
        training.progress.step,
        training.progress.cursor,
        num_workers=num_workers,
        pin_memory=training.accelerator.device.type == "cuda",
        tell=tracker.say,
    )


def take_steps(
    training: Training,
    loader: StagedSteps,
    observers: Sequence[Callable[[Metrics], None]],
    interruption: Interruption,
    tracker: Tracker,
    measure: Callable[[], Utilization | None],
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
            tracker.utilization = measure()
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


def move_average(training: Training, decay: float, metrics: Metrics) -> None:
    """Move the average of the weights towards them after a step."""
    progress = training.progress
    share = moving_share(decay, progress.step, progress.skipped, progress.skipped_in_a_row)
    training.averages[EMA].add(share)


def keep_revisions(
    revisions: RevisionSeries,
    training: Training,
    scores: WeightScores,
    tracker: Tracker,
    metrics: Metrics,
) -> None:
    """Keep the intermediate models that are due after a step, with the scores of an evaluation in it."""
    if names := revisions.due(training.progress):
        kind, is_scored = judged_kind(scores.recipe), scores.step == training.progress.step
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
        remedy = "; no step was taken: raise training.patience, or set it to null, to go on"
        tracker.say(
            f"early stopping after step {progress.step} of {steps}: training.patience = {training.patience}, "
            f"and no later evaluation was better than {than}" + remedy * (tracker.first_step == progress.step)
        )
