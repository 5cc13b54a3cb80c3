"""The `training` part of a recipe: optimization, independent of the objective."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveInt

DecayRate = Annotated[float, Field(ge=0, lt=1)]
"""What a mean keeps of itself with every new number: with 1 it would take up none."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""A number between 0 and 1."""

Workers = Annotated[int, Field(ge=0)] | Literal["auto"]
"""A number of data workers, or that the device decides."""


def as_tuple(value: Any) -> Any:
    """Put a single name into a tuple, and names of a list; leave all else to the check that follows.

    >>> as_tuple("wandb"), as_tuple(["wandb", "trackio"])
    (('wandb',), ('wandb', 'trackio'))
    """
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


WARMUP_RATIO = 0.06
"""Share of the run that warms up where the recipe says nothing (Liu et al., 2019, section 3.1: 6 %)."""

USED_BY = {
    "final_ratio": (("linear", "cosine", "warmup_stable_decay"), "does not fall to a final learning rate"),
    "decay_ratio": (("warmup_stable_decay",), "has no decay of its own length"),
    "decay_shape": (("warmup_stable_decay",), "has a shape of its own"),
    "factor": (("noam",), "does not derive the learning rate from the hidden size"),
}
"""Key of a schedule -> the kinds that use it, and why the others do not."""

LAST, EMA, MEAN = "last", "ema", "mean"
"""Kinds of weights that a run may have in the end."""

Tracker = Literal[
    "aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "tensorboard", "trackio", "wandb"
]
"""An experiment tracker, by `accelerate`'s name, which is that of its package."""

Trackers = Annotated[
    tuple[Tracker, ...], BeforeValidator(as_tuple, json_schema_input_type=Tracker | tuple[Tracker, ...])
]
"""Experiment trackers that receive the log, by `accelerate`'s names: `tensorboard`, `wandb`, ...; a single
name may stand alone."""


@dataclass(frozen=True)
class OptimizerRecipe:
    """The optimizer and its hyperparameters; the defaults are the values of its paper."""

    kind: Literal["adamw", "adam", "muon", "normuon"] = "adamw"
    """`adamw` has decoupled weight decay; `adam` is the Transformer paper's, without weight decay; `muon`
    orthogonalizes the updates of the matrices inside the blocks, and uses `adamw` for all other weights;
    `normuon` is `muon` whose updates are normalized for each neuron (Li et al., 2025)."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate; 5e-4 by default. Must be omitted with `noam`, which sets the learning rate
    itself."""
    matrix_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate of the matrices that `muon` and `normuon` orthogonalize; by default `learning_rate`,
    because their updates are scaled to the size of those of `adamw`."""
    betas: tuple[DecayRate, DecayRate] | None = None
    """Decay rates of the first and second moment; (0.9, 0.98) by default. With `muon` and `normuon` they are
    those of all other weights; the momentum of the matrices is 0.95."""
    neuron_beta: DecayRate | None = None
    """Decay rate of the second moment of each neuron, for `normuon`; 0.95 by default."""
    epsilon: Annotated[float, Field(gt=0)] | None = None
    """Added to the root of the second moment; by default 1e-6, and 1e-9 for `adam`."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Layer-wise learning rate decay, for `adamw`: the learning rate of each layer relative to that of the
    layer above; the embeddings are the lowest layer (Howard and Ruder, 2018, section 3.2; Clark et al., 2020,
    appendix B)."""
    weight_decay: NonNegativeFloat | None = None
    """Weight decay of matrices, relative to the learning rate; by default 0.01 for `adamw` and 0.1 for
    `muon` and `normuon`."""

    def __post_init__(self):
        if self.kind == "adam" and self.weight_decay:
            raise ValueError(f"weight_decay = {self.weight_decay}: adam has no weight decay; choose adamw")
        if self.kind != "adamw" and self.layer_decay < 1:
            raise ValueError(
                f"layer_decay = {self.layer_decay}: {self.kind} has one learning rate for all layers; remove "
                "it, or choose kind adamw"
            )
        if self.kind not in ("muon", "normuon") and self.matrix_learning_rate is not None:
            raise ValueError(
                f"matrix_learning_rate = {self.matrix_learning_rate}: {self.kind} has one learning rate for "
                "all weights; remove it, or choose kind muon or normuon"
            )
        if self.kind != "normuon" and self.neuron_beta is not None:
            raise ValueError(
                f"neuron_beta = {self.neuron_beta}: {self.kind} does not normalize neurons; remove it, or "
                "choose kind normuon"
            )


@dataclass(frozen=True)
class ScheduleRecipe:
    """The learning rate schedule."""

    kind: Literal["linear", "cosine", "constant", "inverse_square_root", "noam", "warmup_stable_decay"] = (
        "linear"
    )
    """Shape of the schedule after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """Number of steps in which the learning rate increases from 0 to its peak."""
    warmup_ratio: Fraction | None = None
    """The same as a fraction of the run; the default is 0.06. A recipe sets one of the two, and an override
    of one, as in `training.schedule.warmup_steps=100`, replaces the other."""
    final_ratio: Fraction = 0.0
    """Final learning rate relative to the peak, for `linear`, `cosine` and `warmup_stable_decay`."""
    decay_ratio: Fraction = 0.2
    """Fraction of the run in which `warmup_stable_decay` decays."""
    decay_shape: Literal["sqrt", "linear"] = "sqrt"
    """Shape of that decay: 1 - sqrt(x) or 1 - x, where x is the part of it that is over."""
    factor: Annotated[float, Field(gt=0)] = 1.0
    """Multiplier of the learning rate that `noam` derives from the hidden size."""

    def __post_init__(self):
        if self.warmup_steps is not None and self.warmup_ratio is not None:
            raise ValueError(
                f"warmup_steps = {self.warmup_steps} and warmup_ratio = {self.warmup_ratio}: give only one "
                "of the two, and set the other to null"
            )
        for key, (kinds, problem) in USED_BY.items():  # whose defaults are no choice
            value = getattr(self, key)
            if self.kind not in kinds and value != getattr(ScheduleRecipe, key):
                raise ValueError(
                    f"{key} = {value}: the {self.kind} schedule {problem}; remove it, or choose kind "
                    f"{' or '.join(kinds)}"
                )

    def warmup_updates(self, steps: int) -> int:
        """Count the updates of the warm-up."""
        ratio = WARMUP_RATIO if self.warmup_ratio is None else self.warmup_ratio
        return round(ratio * steps) if self.warmup_steps is None else self.warmup_steps


@dataclass(frozen=True)
class StageRecipe:
    """Other settings for a number of steps at the start of a run; omitted settings do not change."""

    steps: PositiveInt
    """Optimizer steps of the stage."""
    tokens_per_step: PositiveInt | None = None
    """Maximum number of tokens in a step."""
    sequence_length: PositiveInt | None = None
    """Maximum length of a sequence in tokens, including special tokens."""
    shares: dict[str, NonNegativeFloat] | None = None
    """Share of the tokens of each text, by its name, where `corpus.train` lists texts with shares; a text
    that is not named has none."""


@dataclass(frozen=True)
class TrainingRecipe:
    """Optimization, precision, evaluation, checkpoints and logs of a run."""

    steps: PositiveInt
    """Optimizer steps of the whole run."""
    stages: tuple[StageRecipe, ...] = ()
    """Settings that differ at the start of the run, one stage after another: smaller steps, shorter
    sequences. Their steps count as steps of the run, and do not affect the learning rate schedule."""
    tokens_per_step: PositiveInt = 16_384
    """Maximum number of tokens in an optimizer step, over all processes; steps are filled nearly up to it."""
    tokens_per_micro_batch: PositiveInt | None = None
    """Maximum number of tokens in a forward pass; by default, that of a step. Lower it if memory is short;
    the result does not change."""
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    """The optimizer and its hyperparameters."""
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    """The learning rate schedule."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Maximum norm of the gradient (gradient clipping)."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision of matrix products; weights stay in fp32. `auto`: bf16 where the
    device is faster in it."""
    compile: bool | Literal["auto"] = "auto"
    """Whether layers and the loss are compiled (`torch.compile`). `auto`: on CUDA, if the
    machine can. On CUDA, and where they are compiled, all micro-batches have one size, filled up where they
    are smaller; it may be larger than `tokens_per_micro_batch`, by 64 tokens and 1 %, or by a tenth if an
    encoder's and a decoder's shares of the tokens vary."""
    cuda_graphs: bool = True
    """Whether compiled micro-batches of one size are recorded and replayed as CUDA graphs, on one GPU, unless
    their loss or gradients are others then: a step is launched at once, which small models need. It takes
    memory beside that of evaluations."""
    gradient_checkpointing: bool = False
    """Whether layers are computed again in the backward pass, instead of keeping what they have computed
    (activation checkpointing): less memory, about a third more time, the same result."""
    cpu_offload: bool = False
    """Whether weights, gradients and the optimizer's state rest on the CPU, for models that are sharded
    (FSDP2, HSDP): less memory of the device, more time."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the weights, the order of examples and all random choices of the objective."""
    evaluate_every: PositiveInt | Annotated[float, Field(ge=1)] | None = None
    """Steps between evaluations; by default only at the end."""
    patience: PositiveInt | None = None
    """Early stopping: number of evaluations without improvement after which the run ends; off by default. The
    finished model has the weights of that end (or `final_weights`), not those of the best evaluation: with
    `revisions` at the steps of `evaluate_every`, these are kept, too."""
    checkpoint_every: PositiveInt | Annotated[float, Field(ge=1)] | None = None
    """Steps between checkpoints; by default only at the end."""
    keep_checkpoints: PositiveInt = 2
    """Number of newest checkpoints to keep, in addition to the best one."""
    async_checkpoints: bool = True
    """Whether the run goes on while a checkpoint is written. The weights and the optimizer's state are copied
    for that, which takes their size in memory (with AdamW 12 bytes per parameter) while it is written."""
    revisions: PositiveInt | Literal["babylm"] | None = None
    """Steps between intermediate models, which `tercet pretrain` keeps as folders for `from_pretrained`:
    `revisions/step-1000`. `babylm`: by words read, as the BabyLM challenge asks, `revisions/chck_7M`: after
    each million up to 10 million, each 10 million up to 100, and each 100 million up to 1,000 million."""
    push_revisions: str | None = None
    """Repository on the Hub, `owner/name`, to which each of the `revisions` is pushed during the run, as a
    revision of its name; created as a private one if it does not exist."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay rate of a moving average of the weights, such as 0.999; off by default. The average begins
    without bias, is evaluated beside the weights, with scores under `ema/`, and becomes the finished
    model."""
    average_checkpoints: Annotated[int, Field(ge=2)] | None = None
    """Number of last checkpoints, the end of the run included, whose mean becomes the finished model (Vaswani
    et al., 2017, section 6.1); off by default. Its scores are under `mean/`."""
    final_weights: Literal["last", "ema", "mean"] | None = None
    """Which weights become the finished model: those of the last step, their moving average, or the mean of
    checkpoints. By default the average, if there is one; the others are saved beside it."""
    save_code: bool = True
    """Whether to write the code of a finished model beside its weights. With `trust_remote_code=True`,
    transformers then loads it where Tercet is not installed."""
    log_every: PositiveInt = 10
    """Steps between records in the log."""
    trackers: Trackers = ()
    measure_utilization: bool = True
    """Whether to log the share of the machine's peak FLOPs that the model reaches (MFU); measuring the peak
    takes about a second."""
    peak_flops: Annotated[float, Field(gt=0)] | None = None
    """Peak floating-point operations per second of a device, if all devices are of the same kind; measured by
    default."""
    num_workers: Workers = "auto"
    """Processes that prepare batches in advance; 0 prepares them in the main process. `auto`: none on a CPU;
    on CUDA one for each free core, at most 4, and with `corpus.streaming` at most 1, beside a process that
    reads ahead."""
    timeout: PositiveInt = 1800
    """Seconds that a process waits for the others in an exchange before the run ends (the timeout of
    torch.distributed's process group). Waiting while one process tokenizes or reports does not count."""
    max_skipped_steps: PositiveInt = 10
    """Number of consecutive steps without a finite gradient after which the run fails."""
    retain_heap: bool = True
    """Whether freed memory is kept for the next step instead of being returned to the system (Linux)."""

    def __post_init__(self):
        optimizer, schedule = self.optimizer, self.schedule
        for name in ("learning_rate", "matrix_learning_rate"):
            if schedule.kind == "noam" and (rate := getattr(optimizer, name)) is not None:
                raise ValueError(
                    f"optimizer.{name} = {rate}: the noam schedule derives the learning rate from the hidden "
                    "size; remove it, and scale the learning rate with schedule.factor"
                )
        if (warmup := schedule.warmup_updates(self.steps)) > self.steps:
            raise ValueError(
                f"schedule.warmup_steps = {warmup} exceeds steps = {self.steps}: set it to "
                f"{round(WARMUP_RATIO * self.steps)}, say"
            )
        if schedule.kind in ("noam", "inverse_square_root") and warmup == 0:
            raise ValueError(
                f"schedule.kind = {schedule.kind} is infinite at the first step without a warm-up: set "
                "schedule.warmup_steps to 1 or more"
            )
        if (taken := sum(stage.steps for stage in self.stages)) >= self.steps:
            raise ValueError(
                f"stages last {taken} steps, but steps = {self.steps}: shorten them, or set stages=[]"
            )
        if self.patience is not None and self.evaluate_every is None:
            raise ValueError(
                f"patience = {self.patience}, but there is no evaluation before the end: set evaluate_every, "
                "or leave patience out"
            )
        self.require_averages()
        self.require_revisions()

    def require_revisions(self) -> None:
        """Make sure that intermediate models that are to be pushed are kept."""
        if (repo := self.push_revisions) is None:
            return
        owner, _, name = repo.partition("/")
        if not (owner and name) or "/" in name:
            raise ValueError(f"push_revisions is {repo!r}, but a repository is named owner/name")
        if self.revisions is None:
            raise ValueError(
                f"push_revisions is {repo}, but the run keeps no intermediate models to push: set "
                "revisions to a number of steps, or to babylm"
            )

    @property
    def final_kind(self) -> str:
        """Which weights become the finished model: those that are named, or the average."""
        if self.final_weights is not None:
            return self.final_weights
        if self.ema_decay is not None:
            return EMA
        return LAST if self.average_checkpoints is None else MEAN

    @property
    def kinds_of_weights(self) -> list[str]:
        """The kinds of weights that a run has in the end, the final one last."""
        made = {LAST: True, EMA: self.ema_decay is not None, MEAN: self.average_checkpoints is not None}
        return sorted((kind for kind in made if made[kind]), key=lambda kind: kind == self.final_kind)

    @property
    def judged_kind(self) -> str:
        """The weights that a run evaluates: the final ones, where they exist before the end."""
        return EMA if self.final_kind == EMA else LAST

    def tokens_asked(self, steps: int) -> int:
        """Add up the tokens that the first steps are to hold."""
        total, left = 0, steps
        for stage in self.stages:
            total += min(stage.steps, left) * (stage.tokens_per_step or self.tokens_per_step)
            left -= min(stage.steps, left)
        return total + left * self.tokens_per_step

    def require_averages(self) -> None:
        """Make sure that the averages that are asked for can be made."""
        number, every = self.average_checkpoints, self.checkpoint_every
        missing = {EMA: self.ema_decay is None, MEAN: number is None}
        if missing.get(self.final_weights or LAST):
            key = "ema_decay" if self.final_weights == EMA else "average_checkpoints"
            raise ValueError(
                f"final_weights = {self.final_weights}, but there is no such average: set {key}, or leave "
                "final_weights out"
            )
        if self.final_weights is None and not any(missing.values()):
            raise ValueError(
                "ema_decay and average_checkpoints are both set: say with final_weights = ema, mean or last "
                "which weights become the finished model"
            )
        if number is None:
            return
        there = 1 if every is None else (self.steps - 1) // every + 1
        if there < number:
            raise ValueError(
                f"average_checkpoints = {number}, but a run of {self.steps} steps has {there} with "
                f"checkpoint_every = {every}: lower that, or average fewer"
            )
        if self.keep_checkpoints < number:
            raise ValueError(
                f"average_checkpoints = {number}, but keep_checkpoints = {self.keep_checkpoints}: keep at "
                "least as many as are averaged"
            )
