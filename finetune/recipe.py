"""The recipe of a fine-tuning run, with a part for each component of the run.

model      the pretrained model                task       the task (`tasks/recipes.py`)
data       the rows                            training   optimization, epochs, seeds
and optionally: lora (low-rank adapters), adaptation (pretraining on in-domain text), grid (grid search)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from ..configs.by_kind import OptionalPart
from ..configs.named_files import named_path
from ..configs.recipe import parse_recipe, recipe_data
from ..data.files.bad_rows import OnBadRow
from ..training.recipe import Fraction, Trackers, Workers
from .tasks.recipes import TaskRecipe

VARIABLE = ("training.", "lora.", "model.overrides.")
"""What the keys of a grid begin with: what changes neither rows nor weights to begin with."""

OF_LABELS = ("id2label", "label2id", "num_labels", "problem_type")
"""Fields of a model's configuration that tell of the task's labels."""


@dataclass(frozen=True)
class TaggerRecipe:
    """A BiLSTM-CRF tagger on frozen word vectors (Akbik et al., 2018): static ones, or those of a character
    model or ELMo.
    """

    beside: tuple[str, ...] = ()
    """Folders of further models, whose vectors of a word lie beside those of `model.path` (stacked
    embeddings)."""


@dataclass(frozen=True)
class PretrainedModelRecipe:
    """The model to fine-tune."""

    path: str
    """Folder or Hub id of a Tercet model, or of a stock model that Tercet can import."""
    revision: str | None = None
    """Branch, tag or commit on the Hub."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Overrides of configuration fields that do not change weights: `dropout`, `classifier_dropout`, ..."""
    from_scratch: bool = False
    """Whether to initialize all weights randomly, and take only the architecture and the tokenizer. Such a
    run measures the effect of pretraining."""
    new_head: bool = False
    """Whether to replace a head that the model has for another task, with other labels."""
    tagger: TaggerRecipe | None = None
    """If set, a tagger reads the model's word vectors, and the model does not learn along; `overrides` are
    then fields of the tagger's configuration: `hidden_size`, `projection_size`, ..."""

    def __post_init__(self):
        for name in OF_LABELS:
            if name in self.overrides:
                raise ValueError(
                    f"overrides.{name}: the task sets the labels, and saves them with the model; "
                    "remove it, and name labels in task.label_names"
                )


@dataclass(frozen=True)
class DataRecipe:
    """The training, validation and test rows."""

    train: str
    """Training file (.jsonl, .json, .csv, .tsv, .parquet, optionally with .gz or .zst), or a split of
    `dataset`."""
    validation: str | None = None
    """File or split that selects the best checkpoint; by default, a share of `train`."""
    test: str | None = None
    """File or split that is evaluated once, at the end."""
    validation_share: Fraction = 0.1
    """Share of `train` that is held out if there is no `validation`, at random; in classification, so that it
    has the labels in proportion."""
    group: str | None = None
    """Column of which no value is on both sides of that division, such as the document that rows are from."""
    dataset: str | None = None
    """Id of a data set on the Hub; `train`, `validation` and `test` are then its splits."""
    subset: str | None = None
    """Subset (configuration) of the data set, if it has several."""
    on_bad_row: OnBadRow = "stop"
    """What is done about rows that cannot be used: `stop` at the first; `skip` them, counted by the reason;
    `repair` what needs no guess (tags that are not valid IOB2), and stop at others."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens in a row; by default, the number of the model's positions."""

    def __post_init__(self):
        if self.group is not None and self.validation is not None:
            raise ValueError(
                f"group is {self.group}, which divides train, but validation names others: remove one of them"
            )


@dataclass(frozen=True)
class FineTuningTraining:
    """Optimization. Batch size, epochs, warm-up and weight decay are by default those of Devlin et al., 2019,
    section A.3; the learning rate is chosen by the size of the model.
    """

    epochs: Annotated[float, Field(gt=0)] = 3.0
    """Number of passes over the training rows."""
    batch_size: PositiveInt = 32
    """Number of rows in an optimizer step; the last one of an epoch has what is left."""
    tokens_per_micro_batch: PositiveInt | None = None
    """Maximum number of tokens in a forward pass; by default, 1.5 times that of `batch_size` rows on
    average. Lower it if memory is short; the result does not change."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate, that of the head and the last layer. By default the run chooses it by the number of
    the model's parameters, says so, and writes it into its recipe; see docs/finetuning.md."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Learning rate of each layer relative to that of the layer above (Howard and Ruder, 2018, section
    3.2)."""
    frozen_layers: Annotated[int, Field(ge=-1)] = 0
    """Number of lowest layers to freeze; if it is not 0, the embeddings are frozen as well. -1 freezes
    everything but the head."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Shape of the learning rate schedule after the warm-up."""
    warmup_ratio: Fraction = 0.1
    """Fraction of the run in which the learning rate increases."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of matrices, relative to the learning rate."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Maximum norm of the gradient (gradient clipping)."""
    evaluations_per_epoch: PositiveInt = 1
    """Number of evaluations in an epoch; each also writes a checkpoint."""
    patience: PositiveInt | None = None
    """Early stopping: number of evaluations without a better score after which a run ends; off by default.
    With it or without, the finished model has the weights of the best evaluation."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision of matrix products; weights stay in fp32."""
    compile: bool | Literal["auto"] = "auto"
    """Whether layers are compiled; see `TrainingRecipe`."""
    gradient_checkpointing: bool = False
    """Whether layers are computed again in the backward pass, to save memory; see `TrainingRecipe`."""
    cpu_offload: bool = False
    """Whether weights, gradients and the optimizer's state rest on the CPU; see `TrainingRecipe`."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)] = (0,)
    """One run per seed; runs differ in the new head, the order of rows and dropout."""
    num_workers: Workers = "auto"
    """Processes that prepare batches in advance; see `TrainingRecipe`."""
    save_code: bool = True
    """Whether to write the code of the finished model beside its weights; see `TrainingRecipe`."""
    trackers: Trackers = ()

    def __post_init__(self):
        if twice := {seed for seed in self.seeds if self.seeds.count(seed) > 1}:
            raise ValueError(
                f"seeds names {min(twice)} twice, which would be the same run: name each seed once"
            )


@dataclass(frozen=True)
class LoraRecipe:
    """Train low-rank adapters instead of the weight matrices (Hu et al., 2022), with `peft`."""

    rank: PositiveInt = 8
    """Rank of the adapters."""
    alpha: PositiveInt = 16
    """The adapters are scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout before the adapters."""
    target_modules: tuple[str, ...] = tuple(
        f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")
    )
    """Names of the linear layers with adapters; names that the model does not have are ignored."""


@dataclass(frozen=True)
class FineTuningRecipe:
    """All settings of a fine-tuning run."""

    model: PretrainedModelRecipe
    """The pretrained model."""
    task: TaskRecipe
    """The task."""
    data: DataRecipe
    """The rows."""
    output: str
    """Folder of the run."""
    training: FineTuningTraining = field(default_factory=FineTuningTraining)
    """Optimization."""
    lora: LoraRecipe | None = None
    """If set, only low-rank adapters and a task's head are trained, not a language model's head."""
    adaptation: Annotated[Any, OptionalPart(__name__, "adaptation.AdaptationRecipe")] = None
    """If set, the model is first pretrained further; the task is also trained without it, for comparison."""
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Grid search: keys of `training`, `lora` or `model.overrides`, such as `training.learning_rate`, and
    their values. Every combination is tried with the first seed, and the best on the validation rows is
    selected."""
    trust_remote_code: bool = False
    """Whether the code of modules in `task.metrics` is run that are not `evaluate`'s own: folders, scripts
    and repositories of others."""

    def __post_init__(self):
        if self.training.frozen_layers and self.model.tagger:
            raise ValueError(
                f"training.frozen_layers is {self.training.frozen_layers}, but model.tagger freezes the word "
                "vectors that it reads by itself, and all its layers are new: remove training.frozen_layers"
            )
        if self.training.layer_decay < 1 and self.model.tagger:
            raise ValueError(
                f"training.layer_decay is {self.training.layer_decay}, but the layers of model.tagger are "
                "all new and learn with one rate: remove training.layer_decay"
            )

    @property
    def folder(self) -> Path:
        return named_path(self.output, "output")


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """List which values of a grid's keys are tried together; without a grid, one set of none."""
    for key, values in grid.items():
        if not key.startswith(VARIABLE) or key == "training.seeds":
            raise ValueError(f"grid.{key}: a grid varies keys of {', '.join(VARIABLE)}; remove it")
        if not values:
            raise ValueError(f"grid.{key} has no values: list some, or remove it")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def varied(recipe: FineTuningRecipe, values: Mapping[str, Any]) -> FineTuningRecipe:
    """Return a recipe with other values of some keys."""
    if not values:
        return recipe
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
    """Write what was tried: `learning_rate=5e-05`."""
    for key, value in values.items():
        yield f"{key.rpartition('.')[2]}={value}"
