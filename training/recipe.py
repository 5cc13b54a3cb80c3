"""The `training` part of a recipe: how a run optimizes, whatever its objective."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

Positive = Annotated[int, Field(gt=0)]
"""An integer of at least 1."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""A number between 0 and 1."""

NonNegative = Annotated[float, Field(ge=0)]
"""A number of at least 0."""


@dataclass(frozen=True)
class OptimizerRecipe:
    """Which optimizer, and its constants; what is left out takes the value its paper gives."""

    kind: Literal["adamw", "adam", "muon"] = "adamw"
    """`adamw` decays weights beside the gradient; `adam` is the Transformer paper's and decays nothing;
    `muon` orthogonalizes the updates of the matrices inside the blocks and leaves all else to `adamw`."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Highest rate of the run; 5e-4 if left out, as it must be with `noam`, which sets the rate itself."""
    matrix_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Highest rate of the matrices that `muon` orthogonalizes; `learning_rate` if left out: their updates are
    scaled to be as long as those of `adamw`."""
    betas: tuple[Fraction, Fraction] | None = None
    """Decay of the gradient's running mean and running square; (0.9, 0.98) if left out."""
    epsilon: Annotated[float, Field(gt=0)] | None = None
    """Added to the root of the running square; 1e-6, but 1e-9 for `adam`, if left out."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Rate of each layer over that of the layer above it, for `adamw`; the embeddings are the lowest layer
    (Howard and Ruder, 2018, section 3.2; Clark et al., 2020, appendix B)."""
    weight_decay: NonNegative | None = None
    """How fast weight matrices shrink, relative to the learning rate; 0.01 for `adamw` and 0.1 for `muon` if
    left out."""


@dataclass(frozen=True)
class ScheduleRecipe:
    """How the learning rate rises and falls over the run."""

    kind: Literal["linear", "cosine", "constant", "inverse_square_root", "noam", "warmup_stable_decay"] = (
        "linear"
    )
    """Shape of the curve after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """Steps in which the rate rises from 0 to its highest value."""
    warmup_ratio: Fraction | None = None
    """The same as a share of the run; 0.06 if neither is given. Give at most one of the two."""
    final_ratio: Fraction = 0.0
    """Rate at the end over the highest one, for `linear`, `cosine` and `warmup_stable_decay`."""
    decay_ratio: Fraction = 0.2
    """Share of the run in which `warmup_stable_decay` falls."""
    factor: Annotated[float, Field(gt=0)] = 1.0
    """Multiplies the rate that `noam` derives from the model's width."""


@dataclass(frozen=True)
class StageRecipe:
    """What some steps at the beginning of a run do otherwise; what is left out is as in the rest of it."""

    steps: Positive
    """Optimizer steps of the stage."""
    tokens_per_step: Positive | None = None
    """Tokens from which one of them learns at most."""
    sequence_length: Positive | None = None
    """Tokens of a sequence at most, special tokens included."""


@dataclass(frozen=True)
class TrainingRecipe:
    """How long, how fast and on what a run trains, and what it records on the way."""

    steps: Positive
    """Optimizer steps of the whole run."""
    stages: tuple[StageRecipe, ...] = ()
    """What the first steps do otherwise, one stage after another: smaller steps, shorter sequences. They are
    steps of the run like all others, so that the learning rate does not know of them."""
    tokens_per_step: Positive = 16_384
    """Tokens from which one optimizer step learns at most, over all processes; it comes near to them."""
    tokens_per_micro_batch: Positive | None = None
    """Tokens that pass through the model at once, at most: lower it when memory is short, nothing else
    changes. As many as a step has if left out."""
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    """Which optimizer, and its constants."""
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    """How the learning rate rises and falls."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients longer than this are shortened to it."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of the products; weights stay in fp32. `auto`: bf16 where the machine computes in it."""
    compile: bool = False
    """Whether to run the model through `torch.compile`. Nothing may then depend on the data: packed attention
    costs the square of a micro-batch, and every position reaches the vocabulary. For small ones only."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seeds the weights, the order of examples and every random choice of the objective."""
    evaluate_every: Positive | None = None
    """Steps between evaluations; only at the end if left out."""
    patience: Positive | None = None
    """Evaluations without a better criterion after which the run ends early; never if left out."""
    checkpoint_every: Positive | None = None
    """Steps between checkpoints; only at the end if left out."""
    keep_checkpoints: Positive = 2
    """How many of the newest checkpoints stay; the best one stays besides."""
    log_every: Positive = 10
    """Steps between records in the log."""
    trackers: tuple[str, ...] = ()
    """Further places that receive the log, by `accelerate`'s names: `tensorboard`, `wandb`, ..."""
    measure_utilization: bool = True
    """Whether to log which part of the machine's peak the model reaches; measuring takes a second or so."""
    peak_flops: Annotated[float, Field(gt=0)] | None = None
    """The machine's peak in floating-point operations per second, all processes' devices being alike;
    measured if left out."""
    num_workers: Annotated[int, Field(ge=0)] = 0
    """Processes that prepare batches ahead; 0 prepares them in the main process, best on few cores."""
    max_skipped_steps: Positive = 10
    """Steps in a row without a finite gradient after which the run is given up."""
    adaptive_threads: bool = False
    """Whether a run on a CPU takes fewer threads while other programs hold the cores, which is faster then
    (Linux). Sums are then rounded by how busy the machine was: the same run twice differs in last bits."""
    retain_heap: bool = True
    """Whether freed memory is kept for the next step instead of going back to the system (Linux)."""
