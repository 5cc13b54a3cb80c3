"""The recipe of a fine-tuning run, with a part for each component of the run.

model      from which weights it begins        task       what is learned (`task_recipes.py`)
data       from which rows                     training   how, how long, with which seeds
and optionally: lora (small additions learn), adaptation (in-domain text first), grid (what else to try)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ..configs.recipe import parse_recipe, recipe_data
from ..objectives.recipes import ObjectiveRecipe
from ..pretraining.recipe import CorpusRecipe
from ..text.paths import named_path
from ..training.recipe import Fraction, NonNegative, Positive, TrainingRecipe
from .task_recipes import TaskRecipe

VARIABLE = ("training.", "lora.", "model.overrides.")
"""What the keys of a grid begin with: what changes neither rows nor weights to begin with."""


@dataclass(frozen=True)
class PretrainedModelRecipe:
    """Which model is fine-tuned."""

    path: str
    """Folder or Hub id of a model, ours or a stock one that ours can be."""
    revision: str | None = None
    """Branch, tag or commit on the Hub."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Fields of its configuration that change what is no weight: `dropout`, `classifier_dropout`, ..."""
    from_scratch: bool = False
    """Whether only architecture and tokenizer are taken and all weights are drawn at random: what pretraining
    has brought shows beside such a run."""
    new_head: bool = False
    """Whether a head that the model has for another task, with other labels, is replaced."""


@dataclass(frozen=True)
class DataRecipe:
    """Which rows are learned from, and which are measured on."""

    train: str
    """File to learn from (.jsonl, .json, .csv, .tsv, .parquet, perhaps with .gz or .zst), or a split of
    `dataset`."""
    validation: str | None = None
    """File or split by which the best checkpoint is chosen; a share of `train` if left out."""
    test: str | None = None
    """File or split that is measured once, at the end."""
    validation_share: Fraction = 0.1
    """Which share of `train` is held out where there is no `validation`."""
    dataset: str | None = None
    """Id of a data set on the Hub; `train`, `validation` and `test` are its splits then."""
    subset: str | None = None
    """Its part, where it has several."""
    max_length: Positive | None = None
    """Tokens that are read of a row at most; as many as the model has positions if left out."""


@dataclass(frozen=True)
class FineTuningSchedule:
    """How the model learns: the values are those of Devlin et al., 2019, section A.3, where it gives any."""

    epochs: Annotated[float, Field(gt=0)] = 3.0
    """How often every row is seen."""
    batch_size: Positive = 32
    """Rows from which an optimizer step learns, on average: rows are cut into steps of as many tokens."""
    tokens_per_micro_batch: Positive | None = None
    """Tokens that pass through the model at once, at most: lower it when memory is short."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-5
    """Highest rate, that of the head and the last layer."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Rate of each layer over that of the layer above it (Howard and Ruder, 2018, section 3.2)."""
    frozen_layers: Annotated[int, Field(ge=-1)] = 0
    """How many of the lowest layers do not learn, nor do the embeddings if there are any; -1: none learns but
    the head, which then reads fixed features."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the rate falls."""
    warmup_ratio: Fraction = 0.1
    """Share of the run in which it rises before."""
    weight_decay: NonNegative = 0.01
    """How fast weight matrices shrink, relative to the rate."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients longer than this are shortened to it."""
    evaluations_per_epoch: Positive = 1
    """How often the model is measured, and a checkpoint written."""
    patience: Positive | None = None
    """Evaluations without a better score after which a run ends early; it goes to its end if left out."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of the products; weights stay in fp32."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)] = (0,)
    """One run for each: they differ in the new head, the order of rows and dropout."""
    num_workers: Annotated[int, Field(ge=0)] = 0
    """Processes that prepare batches ahead."""
    adaptive_threads: bool = False
    """Whether fewer threads compute while other programs hold the cores; see `TrainingRecipe`."""
    trackers: tuple[str, ...] = ()
    """Further places that receive the log, by `accelerate`'s names."""

    def __post_init__(self):
        if twice := {seed for seed in self.seeds if self.seeds.count(seed) > 1}:
            raise ValueError(
                f"training.seeds names {min(twice)} twice, which would be the same run: name each seed once"
            )


@dataclass(frozen=True)
class LoraRecipe:
    """Learn a small addition to each weight matrix instead of the matrix (Hu et al., 2022), by `peft`."""

    rank: Positive = 8
    """Rank of the addition."""
    alpha: Positive = 16
    """The addition counts alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout before it."""
    target_modules: tuple[str, ...] = tuple(
        f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")
    )
    """Names of the linear layers that get one, as far as the model has them."""


@dataclass(frozen=True)
class AdaptationRecipe:
    """Let the model read text of the task's domain before it learns the task (Gururangan et al., 2020)."""

    corpus: CorpusRecipe
    """Which text."""
    objective: ObjectiveRecipe
    """What is learned from it, the model's pretraining objective most often."""
    training: TrainingRecipe
    """How."""


@dataclass(frozen=True)
class FineTuningRecipe:
    """Everything that fine-tuning depends on, but the machine."""

    model: PretrainedModelRecipe
    """From which weights it begins."""
    task: TaskRecipe
    """What is learned."""
    data: DataRecipe
    """From which rows."""
    output: str
    """Folder of the run."""
    training: FineTuningSchedule = field(default_factory=FineTuningSchedule)
    """How."""
    lora: LoraRecipe | None = None
    """If given, only small additions to the weights learn, and the head."""
    adaptation: AdaptationRecipe | None = None
    """If given, the model goes on with pretraining before; the run is done without it, too, and compared."""
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys of `training`, `lora` or `model.overrides`, such as `training.learning_rate`, and values to try;
    every combination is tried with the first seed, and the best on the validation rows is taken."""

    @property
    def folder(self) -> Path:
        """The output folder as a path."""
        return named_path(self.output, "output")

    @property
    def model_folder(self) -> Path:
        """Where the finished model lies."""
        return self.folder / "model"


Combinations = list[tuple[dict[str, Any], FineTuningRecipe]]
"""Keys with the values that are tried together, and the recipe that has them."""


def combinations(recipe: FineTuningRecipe) -> Combinations:
    """List what is to be tried, each as values of keys and the recipe that has them; nothing without a grid.

    Raises:
        ValueError: A key is none that can be varied, or has no values, or an impossible one.
    """
    for key, values in recipe.grid.items():
        if not key.startswith(VARIABLE) or key == "training.seeds":
            raise ValueError(f"grid.{key}: a grid varies keys of {', '.join(VARIABLE)}; remove it")
        if not values:
            raise ValueError(f"grid.{key} has no values: give some, or remove it")
    if not recipe.grid:
        return []
    tried = (dict(zip(recipe.grid, values, strict=True)) for values in product(*recipe.grid.values()))
    return [(values, varied(recipe, values)) for values in tried]


def varied(recipe: FineTuningRecipe, values: Mapping[str, Any]) -> FineTuningRecipe:
    """Give a recipe other values.

    Raises:
        ValueError: A key is unknown, or a value impossible.
    """
    data = recipe_data(replace(recipe, grid={}))
    for key, value in values.items():
        *above, last = key.split(".")
        part = data
        for name in above:
            part[name] = part.get(name) or {}
            part = part[name]
        part[last] = value
    return parse_recipe(FineTuningRecipe, data)


def in_words(values: Mapping[str, Any]) -> Iterator[str]:
    """Say what was tried: `learning_rate=5e-05`."""
    for key, value in values.items():
        yield f"{key.rpartition('.')[2]}={value}"
