"""A whole run of the engine, from a recipe: everything around the loop, put together once for every member.

recipe -> optimizer, schedule, steps -> train() -> log, evaluations and checkpoints on the way
"""

from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..configs.recipe import recipe_data
from .averaging import WeightAverage, moving_share
from .checkpoint import (
    CheckpointRetention,
    RunState,
    holds_mean,
    is_due,
    load_checkpoint,
    read_state,
    take_snapshot,
)
from .checkpoint_writer import CheckpointWriter
from .compiling import compiled_blocks
from .cpu import prepared_cpu
from .environment import attention_of, tell_of_resuming
from .exchange import explaining_lost_processes
from .final_weights import EMA, FILES, LAST, judged_kind, scores_of
from .finite_json import as_scores
from .gradient_checkpointing import computes_again, enable_gradient_checkpointing
from .inspection import say_what_is_kept
from .interruption import BrokenOff, Interruption, listening
from .loop import Progress, train
from .metric_accumulator import MetricAccumulator
from .objective import Objective
from .optimizers import build_optimizer
from .precision import products_of_few_digits
from .recipe import TrainingRecipe
from .recovery import newest_due, require_resumable, starting_point
from .revisions import RevisionSeries
from .schedules import build_schedule
from .sharding import prepare_model, processes_of, settle
from .skipping import NonFiniteError
from .stages import StagedSteps, TrainingData
from .tracking import Tracker, begin_trackers
from .utilization import measure_utilization
from .weight_scores import WeightScores
from .workers import choose_workers, leaving_no_workers

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in the run's folder."""


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
    with (
        listening() as interruption,
        leaving_no_workers(),
        prepared_cpu(recipe, accelerator.device),
        explaining_lost_processes(),
    ):
        run = _Run(model, objective, data, recipe, folder, accelerator, interruption, width, about)
        run.revisions = revisions
        if checkpoint := starting_point(folder / CHECKPOINTS, accelerator, resume=resume):
            run.continue_from(checkpoint)
        return run.carry_out(evaluates_first=evaluates_first and checkpoint is None)


class _Run:
    """The parts of a run, and what happens after each of its steps."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        data: TrainingData,
        recipe: TrainingRecipe,
        folder: Path,
        accelerator: Accelerator,
        interruption: Interruption,
        width: int,
        about: dict[str, Any] | None,
    ):
        self.objective = objective
        self.recipe = recipe
        self.folder = folder
        self.accelerator = accelerator
        self.interruption = interruption
        self.data = data
        self.about = (about or {}) | {"training": recipe_data(recipe)}
        self.revisions: RevisionSeries | None = None
        self.saved_step = -1
        self.owes_evaluation = False
        self.checkpoint: Path | None = None
        self.metrics = MetricAccumulator()
        self.writer = CheckpointWriter(in_background=recipe.async_checkpoints)
        self.retention = CheckpointRetention(
            folder / CHECKPOINTS, recipe, accelerator.is_main_process, is_writing=self.writer.is_writing
        )

        set_seed(recipe.seed, device_specific=True)  # for dropout: the weights are drawn already
        if computes_again(recipe.gradient_checkpointing, accelerator):
            enable_gradient_checkpointing(model)
        self.model = prepare_model(model, accelerator, cpu_offload=recipe.cpu_offload)
        self.graphs = compiled_blocks(
            recipe.compile, model, objective, data, accelerator, records=recipe.cuda_graphs
        )
        sets_rate = recipe.schedule.kind == "noam"
        copies = processes_of(accelerator) if isinstance(self.model, DistributedDataParallel) else None
        optimizer = build_optimizer(
            model,
            recipe.optimizer,
            sets_learning_rate=sets_rate,
            products=products_of_few_digits(accelerator),
            copies=copies,
        )
        self.schedule = build_schedule(optimizer, recipe.schedule, steps=recipe.steps, width=width)
        self.optimizer = accelerator.prepare_optimizer(optimizer)
        self.progress = Progress()
        self.averages = {} if recipe.ema_decay is None else {EMA: WeightAverage(model)}
        self.scores = WeightScores(self.model, objective, data, recipe, accelerator, self.averages)

    @property
    def state(self) -> RunState:
        """What a checkpoint holds."""
        parts = self.model, self.optimizer, self.schedule, self.progress, self.accelerator, self.metrics
        return RunState(*parts, self.averages)

    def continue_from(self, checkpoint: Path) -> None:
        """Go on where a checkpoint ends.

        Raises:
            ValueError: The recipe is one that the checkpoint cannot be continued with.
        """
        require_resumable(checkpoint, self.about["training"])
        load_checkpoint(checkpoint, self.state)
        state = read_state(checkpoint)
        tell_of_resuming(checkpoint, state, self.model, self.accelerator, self.about)
        self.saved_step = self.progress.step
        self.checkpoint = checkpoint
        self.scores.values = as_scores(state["scores"])
        self.scores.step = self.progress.step if self.scores.values else -1

    def carry_out(self, *, evaluates_first: bool) -> Outcome:
        """Train to the end or an interruption; evaluate and save what is not yet."""
        if self.recipe.trackers:
            begin_trackers(self.accelerator, self.folder, self.progress)
        self.tracker = Tracker(
            self.accelerator,
            self.folder,
            self.progress,
            steps=self.recipe.steps,
            log_every=self.recipe.log_every,
            metrics=self.metrics,
        )
        self.loader = StagedSteps(
            self.data.stages,
            self.progress.step,
            self.progress.cursor,
            num_workers=choose_workers(
                self.recipe.num_workers, self.accelerator, is_stream=self.data.is_stream
            ),
            pin_memory=self.accelerator.device.type == "cuda",
            tell=self.tracker.say,
        )
        if self.revisions is not None:
            self.revisions.tokens = self.progress.tokens
        if evaluates_first and (scores := self.scores.measure(LAST)):
            self.tracker.record_evaluation(scores)
        with self.writer:
            try:
                if not self.is_finished:
                    self._train()
            except BrokenOff:
                pass  # between two steps: all that was learned can be saved
            except NonFiniteError as error:
                self.writer.wait()
                self.retention.prune()
                kept = say_what_is_kept(self.folder, error, self.state, self.about, self.checkpoint)
                raise FloatingPointError(f"{error}; {kept}") from None
            outcome = self._finish()
        self.loader.close()  # not before all is saved: a worker that waits for data takes seconds to end
        return outcome

    def _train(self) -> None:
        is_alone = self.accelerator.num_processes == 1  # several can only stop together, after a step
        batches = self.interruption.waiting_for(self.loader) if is_alone else self.loader
        with self.tracker.paused():
            first = next(batches)
            if self.recipe.measure_utilization:
                self.tracker.utilization = measure_utilization(
                    self.model, self.data.halfway, self.accelerator, self.progress, self.recipe.peak_flops
                )
        if attention := attention_of(self.model, self.accelerator):
            self.tracker.say(f"attention: {attention}")
        if self.graphs is not None and self.graphs.unrecorded:
            self.tracker.say(f"CUDA graphs: none, because of {self.graphs.unrecorded}")
        self.model.train()
        with nullcontext() if self.graphs is None else self.graphs.in_use():
            settle(self.model, self.objective, first, self.accelerator)
        with self.loader.explained():
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
                graphs=self.graphs,
            )

    def _after_step(self, progress: Progress, metrics: dict[str, Tensor]) -> None:
        if self.recipe.ema_decay is not None:
            counts = progress.step, progress.skipped, progress.skipped_in_a_row
            self.averages[EMA].add(moving_share(self.recipe.ema_decay, *counts))
        self.writer.check()
        self.tracker.record_step(metrics)
        is_to_save = self.retention.is_to_save(progress.step, metrics["grad_norm"])
        self.owes_evaluation |= is_due(self.recipe.evaluate_every, progress.step)
        # As checkpoints, evaluations wait for a finite step: the one that is the best has its checkpoint.
        if progress.step == self.recipe.steps or (self.owes_evaluation and not self.retention.is_skipping):
            self._evaluate()
        if self.is_finished and self.metrics.step < progress.step:  # an early end between two records
            self.tracker.write_step(float(metrics["learning_rate"]))
        if self.revisions is not None and (names := self.revisions.due(progress)):
            self._keep_revision(
                self.revisions, names
            )  # before the checkpoint, behind which it would be missed
        if is_to_save or self.is_finished:
            self._save()  # after the evaluation, so that a resumed run never repeats one

    def _keep_revision(self, revisions: RevisionSeries, names: list[str]) -> None:
        kind, is_scored = judged_kind(self.recipe), self.scores.step == self.progress.step
        scores = scores_of(kind, self.scores.values) if is_scored else {}
        with self.tracker.paused():
            revisions.keep_due(names, self.state, FILES[kind], scores)

    @property
    def is_finished(self) -> bool:
        """Whether all steps are taken, or no further ones would help."""
        return self.progress.step >= self.recipe.steps or self.progress.is_stuck(self.recipe.patience)

    def _should_stop(self) -> bool:
        return self.is_finished or self.interruption.is_heard(self.accelerator, self.progress.step)

    def _finish(self) -> Outcome:
        is_finished = self.is_finished
        if is_finished and self.scores.step != self.progress.step:
            self._evaluate()
        is_worth_it = self.retention.is_worth_saving(is_finished, self.checkpoint is not None)
        if (self.saved_step != self.progress.step or self._lacks_mean) and is_worth_it:
            self._save()
        self.writer.wait()
        self.retention.prune()
        self.tracker.close()
        for tracker in self.accelerator.trackers:
            tracker.finish()
        assert self.checkpoint is not None
        if self.retention.is_skipping:
            self.tracker.say("the last steps were skipped: only the final checkpoint includes them")
        if is_finished:
            self._tell_of_early_end()
            return Outcome(self.progress, self.scores.values, self.checkpoint, None)
        signal = self.interruption.name or "a signal to another process"
        self.tracker.say(
            f"{signal}: stopped after step {self.progress.step} of {self.recipe.steps}; resume from "
            f"{self.checkpoint}"
        )
        return Outcome(self.progress, self.scores.values, self.checkpoint, signal)

    def _tell_of_early_end(self) -> None:
        """Say that patience has ended the run, or, of a run resumed after that, why it takes no step."""
        step, steps, patience = self.progress.step, self.recipe.steps, self.recipe.patience
        if step >= steps:
            return
        best = self.progress.best_step
        than = "an earlier one" if best is None else f"that after step {best}"
        stopped = (
            f"early stopping after step {step} of {steps}: training.patience = {patience}, and no later "
            f"evaluation was better than {than}"
        )
        remedy = "; no step was taken: raise training.patience, or set it to null, to go on"
        self.tracker.say(stopped + remedy * (self.tracker.first_step == step))

    def _evaluate(self) -> None:
        self.owes_evaluation = False
        if self.data.held_out is None:
            return
        with self.tracker.paused():
            self.scores.measure_all(self.progress.step)
            self.progress.judge(self.scores.criterion)
            if self.is_finished:
                self.progress.scored = self.scores.hashes()
        self.tracker.record_evaluation(self.scores.values, is_last=self.is_finished)

    @property
    def _lacks_mean(self) -> bool:
        """Whether the run has ended, and the mean of its last checkpoints is wanted and not saved."""
        if not self.is_finished or self.recipe.average_checkpoints is None:
            return False
        saved = self.checkpoint if self.saved_step == self.progress.step else None
        self.writer.wait()
        return saved is None or not holds_mean(saved, self.recipe.average_checkpoints)

    def _average_checkpoints(self, number: int) -> None:
        """Average the weights at the end with those of the checkpoints before, and score the mean."""
        self.writer.wait()
        earlier = newest_due(self.folder / CHECKPOINTS, number - 1, self.progress.step, self.accelerator)
        with self.tracker.paused():
            scores = self.scores.measure_mean(self.state.bare_model, earlier)
            if scores:
                self.progress.scored = self.scores.hashes()
        if scores:
            self.tracker.record_evaluation(scores, is_last=True)

    def _save(self) -> None:
        if self._lacks_mean:
            self._average_checkpoints(self.recipe.average_checkpoints or 0)
        with self.tracker.paused():
            self.tracker.flush()  # a run that resumes here does not write these records again
            is_scored = self.scores.step == self.progress.step
            self.writer.wait()  # there is room for one copy, and on the disk for one more checkpoint
            self.retention.prune()
            snapshot = take_snapshot(
                self.folder / CHECKPOINTS,
                self.state,
                recipe=self.about,
                scores=self.scores.values if is_scored else {},
                criterion=self.scores.criterion if is_scored else None,
                is_due=self.retention.is_due,
                copies=self.recipe.async_checkpoints,
            )
            self.checkpoint = snapshot.final
            self.writer.write(snapshot)
            self.saved_step = self.progress.step
            self.retention.note_saved()
