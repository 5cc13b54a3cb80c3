"""The training loop: the one place where weights change.

    step's batches -> objective -> gradients -> optimizer -> schedule, and again

It knows nothing of text, tasks or devices: the objective and `accelerate` do.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..data.steps.batches import Step
from ..data.steps.objective import Batch, Objective
from ..data.steps.workers import DataCursor
from .checkpoints.final_weights import FILES, LAST
from .devices.sharding import exchange_among_replicas, is_sharded, no_gradient
from .optimizers.optimizers import clip_gradients
from .skipping import NonFiniteSteps

if TYPE_CHECKING:
    from .devices.compiling import CompiledBlocks
    from .devices.recording import Recorder
    from .optimizers.averaging import WeightAverage


@dataclass
class Progress:
    """Where a run stands, saved with every checkpoint so that a resumed run continues."""

    step: int = 0
    """Optimizer steps taken, those skipped for a non-finite gradient included."""
    examples: int = 0
    """Examples seen, over all processes."""
    examples_of_epochs: list[int] = field(default_factory=list)
    """Examples seen in each epoch."""
    tokens: int = 0
    """Tokens seen, over all processes."""
    targets: int = 0
    """Targets of all terms scored, over all processes."""
    epoch: int = 0
    """Epoch of the next step."""
    step_in_epoch: int = 0
    """Steps of that epoch that are done."""
    skipped: int | Tensor = 0
    """Steps whose gradient was not finite, so that no weight moved; in a run it stays on the device."""
    skipped_in_a_row: int | Tensor = 0
    """How many of the latest steps those were; like `skipped`."""
    checksum: int = 0
    """CRC-32 of everything read so far, in its order: runs with the same one have read the same."""
    best: float | None = None
    """The lowest criterion that an evaluation has given; see `HeldOut.criterion`."""
    evaluations_since: int = 0
    """Evaluations since then."""
    best_step: int | None = None
    """Step of the evaluation that gave `best`."""
    seconds: float = 0.0
    """Time spent in steps, evaluation and checkpoints left out; advanced by whoever keeps the clock."""

    flops_per_token: float | None = None
    """Operations of a token, once they are counted: a resumed run would count them in another batch."""

    tokens_of: dict[str, int] = field(default_factory=dict)
    """Tokens seen of each text that has a share of the run."""

    targets_of: dict[str, int] = field(default_factory=dict)
    """Targets of each term that the loss has summed, over all processes."""

    scored: dict[str, str] = field(default_factory=dict)
    """Hash of the weights that the scores at the end are of, by their kind; only of the main process."""

    words: float = 0.0
    """Words seen, where models are kept by them; see `RevisionSeries`."""

    run_id: str | None = None
    """By which experiment trackers know the run again, once one was begun."""

    @property
    def cursor(self) -> DataCursor:
        return DataCursor(self.epoch, self.step_in_epoch, self.step)

    def advance(self, step: Step, skipped: int | Tensor = 0, in_a_row: int | Tensor = 0) -> None:
        """Count one more step, and note how many have been skipped."""
        self.step += 1
        self.skipped, self.skipped_in_a_row = skipped, in_a_row
        self.examples += step.examples
        later = step.cursor.epoch + 1 - len(self.examples_of_epochs)
        self.examples_of_epochs += [0] * later
        self.examples_of_epochs[step.cursor.epoch] += step.examples
        self.tokens += step.tokens
        self.targets += sum(step.targets.values())
        for counts, more in ((self.tokens_of, step.tokens_of), (self.targets_of, step.targets)):
            for name, number in more.items():
                counts[name] = counts.get(name, 0) + number
        self.epoch, self.step_in_epoch = step.cursor.epoch, step.cursor.step_in_epoch + 1
        self.checksum = crc32(step.fingerprint.to_bytes(8), self.checksum)

    def judge(self, criterion: float) -> None:
        """Note what an evaluation has given; what is not a number is never better."""
        if criterion < (math.inf if self.best is None else self.best):
            self.best, self.best_step, self.evaluations_since = criterion, self.step, 0
        else:
            self.evaluations_since += 1

    @property
    def is_skipping(self) -> bool:
        """Whether the latest step was skipped; a GPU is waited for."""
        return bool(self.skipped_in_a_row)

    def state_dict(self) -> dict[str, Any]:
        counts = {"skipped": int(self.skipped), "skipped_in_a_row": int(self.skipped_in_a_row)}
        return asdict(self) | counts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


COMMON = "grad_norm"
"""The metric that every process knows; of the others each holds a share."""

FINITE = "finite_steps"
"""Under this name the sums count the steps that are in them."""


@dataclass
class MetricAccumulator:
    """What is added up between two records of the log: every step's metrics, and where they begin.

    Steps that are not finite are left out, or one of them would make the mean of all not a number. The sums
    stay on the device, and a checkpoint keeps them: a resumed run writes the records of an uninterrupted one.
    """

    step: int = 0
    """Progress of the run at the record."""
    tokens: int = 0
    """Tokens seen until then."""
    seconds: float = 0.0
    """Seconds taken until then."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """This process's shares, added up by name."""

    def add(self, metrics: dict[str, Tensor], num_processes: int) -> None:
        """Add one step's metrics, unless its gradient is not finite; no GPU is waited for."""
        is_finite = metrics[COMMON].isfinite()
        common = {COMMON: metrics[COMMON] / num_processes, FINITE: is_finite / num_processes}
        values = torch.stack([value.float() for value in (metrics | common).values()])
        taken = torch.where(is_finite, values, 0)
        for name, value in zip(metrics | common, taken.unbind(), strict=True):
            self.sums[name] = self.sums[name].to(value.device) + value if name in self.sums else value

    def means(self, accelerator: Accelerator) -> dict[str, float]:
        """Average each metric over the finite steps and all processes; not a number if there are none."""
        totals = cast(Tensor, accelerator.reduce(torch.stack(list(self.sums.values())))).tolist()
        named = dict(zip(self.sums, totals, strict=True))
        count = named.pop(FINITE)
        return {name: total / count if count else math.nan for name, total in named.items()}

    def begin(self, step: int, tokens: int, seconds: float) -> None:
        self.step, self.tokens, self.seconds, self.sums = step, tokens, seconds, {}

    def state_dict(self) -> dict[str, Any]:
        sums = {name: value.cpu().clone() for name, value in self.sums.items()}
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds, "sums": sums}

    def load_state_dicts(self, states: Sequence[dict[str, Any]], index: int, num_processes: int) -> None:
        """Continue from the states of all processes; where there are fewer now, each takes over several."""
        self.begin(states[0]["step"], states[0]["tokens"], states[0]["seconds"])
        for state in states[index::num_processes]:
            for name, value in state["sums"].items():
                self.sums[name] = self.sums[name] + value if name in self.sums else value


@dataclass
class Training:
    """A model that learns, with all that its steps change: what `train` moves on and a checkpoint holds."""

    model: nn.Module
    """Prepared by the accelerator; in training mode while it learns."""
    objective: Objective
    """Scores the model's answers."""
    optimizer: Optimizer
    """Prepared by the accelerator."""
    schedule: LambdaLR
    """Schedule of the learning rate; stepped once per optimizer step, whatever the number of processes."""
    accelerator: Accelerator
    """Owns devices, precision and processes."""
    num_steps: int
    """Steps of the whole run, those of its earlier parts included."""
    patience: int | None = None
    """Evaluations without anything better after which it ends earlier."""
    progress: Progress = field(default_factory=Progress)
    metrics: MetricAccumulator = field(default_factory=MetricAccumulator)
    """Sums over the steps since the log's latest record."""
    averages: dict[str, "WeightAverage"] = field(default_factory=dict)
    """Averages of the weights, by their kind."""
    graphs: "CompiledBlocks | None" = None
    """Compiled blocks of the model, which compute in place of its own."""
    max_grad_norm: float = 1.0
    """Longer gradients are shortened to it."""
    max_skipped_steps: int = 10
    """Consecutive skipped steps after which the run is given up."""

    @property
    def is_finished(self) -> bool:
        """Whether all steps are taken, or no further ones would help."""
        has_patience = self.patience is None or self.progress.evaluations_since < self.patience
        return self.progress.step >= self.num_steps or not has_patience

    @property
    def bare_model(self) -> nn.Module:
        """The model itself, without what compiles it or keeps its copies equal."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    @property
    def kinds_of_weights(self) -> Mapping[str, AbstractContextManager[None]]:
        """Contexts in which the model has its own weights, or those of an average, by their files."""
        averages = {FILES[kind]: average.in_place() for kind, average in self.averages.items()}
        return {FILES[LAST]: nullcontext()} | averages


Metrics = dict[str, Tensor]
"""What a step came to: on the device means of terms and `loss`, both of this process, and `grad_norm`; on the
CPU the step's `learning_rate`."""


def train(
    training: Training,
    steps: Iterator[Step],
    observers: Sequence[Callable[[Metrics], None]] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Take optimizer steps until the training is finished, or is to stop.

    A step's loss is divided by its targets over all micro-batches and processes, so that neither changes what
    is learned. A step without a finite loss and gradient leaves the weights alone and is counted.

    Args:
        training: What learns, changed in place.
        steps: Endless, from the progress's cursor on: this process's share of the data of every step.
        observers: Called one after another after every step. They alone log, evaluate, save, and wait.
        should_stop: Asked after every step; once it is true, the loop returns.

    Raises:
        NonFiniteError: `max_skipped_steps` steps in a row had no finite gradient.
    """
    model, optimizer, schedule = training.model, training.optimizer, training.schedule
    accelerator, progress, graphs = training.accelerator, training.progress, training.graphs
    skips = NonFiniteSteps(
        training.max_skipped_steps, accelerator.device, progress.skipped, progress.skipped_in_a_row
    )
    while not training.is_finished:
        step = next(steps).whole(accelerator)
        with nullcontext() if graphs is None else graphs.in_use():
            recorder = graphs and graphs.recorder
            metrics = accumulate_gradients(model, training.objective, step, accelerator, recorder)
        grad_norm = clip_gradients(model, training.optimizer, accelerator, training.max_grad_norm)
        skips.step_unless_broken(optimizer, grad_norm)
        learning_rate = torch.tensor(optimizer.param_groups[0]["lr"])
        schedule.step()
        optimizer.zero_grad()
        progress.advance(step, skips.skipped, skips.in_a_row)
        metrics |= {"grad_norm": grad_norm.detach().to(accelerator.device), "learning_rate": learning_rate}
        skips.require_fewer(progress.step, step, metrics, is_last=progress.step == training.num_steps)
        for observe in observers:
            observe(metrics)
        if training.is_finished or should_stop():
            skips.require_fewer(progress.step, step, metrics, is_last=True)
            return


def accumulate_gradients(
    model: nn.Module,
    objective: Objective,
    step: Step,
    accelerator: Accelerator,
    recorder: "Recorder | None" = None,
) -> Metrics:
    """Add up the gradients of a step's micro-batches; return this process's part of its metrics."""
    names = [*objective.weights, "loss"]
    metrics = {name: torch.zeros((), device=accelerator.device) for name in names}
    factors = {name: 0.0 if step.is_idle else 1 / max(number, 1) for name, number in step.targets.items()}
    micro_batches = step.micro_batches(accelerator.device)
    compute = partial(add_gradients, model, objective, accelerator)
    exchanges_once = accelerator.num_processes > 1 and not is_sharded(model)
    for index, batch in enumerate(micro_batches):
        is_last = index == len(micro_batches) - 1
        # Processes exchange gradients once per step, during its last backward pass; those of a model in
        # pieces at once, since no process has room for all of them, and its replicas once per step.
        exchange_among_replicas(model, objective, is_last=is_last)
        if recorder is not None:
            found = recorder.compute(batch, factors, compute)
        else:
            with accelerator.no_sync(model) if exchanges_once and not is_last else nullcontext():
                reaches_all = is_last and exchanges_once and not objective.uses_all_parameters
                found = compute(batch, factors, reaches_all=reaches_all)
        for name, value in found.items():
            metrics[name] += value
    return metrics


def add_gradients(
    model: nn.Module,
    objective: Objective,
    accelerator: Accelerator,
    batch: Batch,
    factors: Mapping[str, Any],
    *,
    reaches_all: bool = False,
) -> dict[str, Tensor]:
    """Add a micro-batch's gradients to the parameters'; return its part of each term's mean, and of the loss.

    Args:
        accelerator: Scales the loss, where its precision needs it.
        factors: By what the sum of each term is multiplied: one over the step's targets.
        reaches_all: Whether every parameter gets a gradient, if only of zero.
    """
    means = {name: total * factors[name] for name, total in objective.losses(model, batch).items()}
    loss = torch.stack([objective.weights[name] * mean for name, mean in means.items()]).sum()
    # Processes average gradients, but each holds only its part of the step's sum.
    scaled = poisoned_if_not_finite(loss) * accelerator.num_processes
    accelerator.backward(scaled + no_gradient(model) if reaches_all else scaled)
    return {name: value.detach() for name, value in (means | {"loss": loss}).items()}


def poisoned_if_not_finite(loss: Tensor) -> Tensor:
    """Make the gradient of an infinite loss not a number, and leave a finite loss as it is.

    An infinite loss can have a finite gradient. Poisoned, it shows in the gradient's norm, which every
    process sees.
    """
    return loss * (loss.detach() * 0 + 1)
