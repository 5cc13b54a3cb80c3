"""The recipe of a distillation, with a part for each step and one for the student.

student    architecture, initial weights      general    distill a pretrained teacher on raw text
report     comparisons in the report          task       distill a fine-tuned teacher on rows

A recipe has one of the two steps, or both; with both, the student of the first step continues with the
second.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ..configs.numbers import NonNegative, Positive
from ..data.files.paths import named_path
from ..finetune.recipe import DataRecipe, FineTuningSchedule
from ..pretraining.objectives.base_recipe import Share
from ..pretraining.objectives.recipes import SingleObjectiveRecipe
from ..pretraining.recipe import CorpusRecipe, texts_of
from ..training.recipe import TrainingRecipe
from .layers import LayerChoice
from .losses import PUBLISHED, Loss, Temperature


@dataclass(frozen=True)
class StudentRecipe:
    """The student's architecture and initial weights."""

    path: str | None = None
    """Folder or Hub id of an existing model, Tercet's or stock; by default, the student is made from the
    teacher with the other fields."""
    layers: LayerChoice = "every"
    """Layers to copy from the teacher: `every` k-th, `spread` from the first to the last, the `first`, the
    `last`, or a list of indices from 0. In a sequence-to-sequence model, those of the encoder."""
    num_layers: Positive | None = None
    """Number of these layers; half of the teacher's by default."""
    decoder_layers: LayerChoice | None = None
    """The same for the decoder of a sequence-to-sequence model; `layers` and `num_layers` by default."""
    num_decoder_layers: Positive | None = None
    """Number of decoder layers."""
    token_types: Literal["dropped", "kept"] = "dropped"
    """Whether an encoder keeps its token type embeddings; DistilBERT does not."""
    initialization: Literal["teacher", "random"] = "teacher"
    """Initial weights; `random` measures the effect of the teacher's weights."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Overrides of other configuration fields; a smaller `hidden_size` needs random weights."""

    def __post_init__(self):
        if self.path is not None and replace(self, path=None) != StudentRecipe():
            raise ValueError(
                f"student.path is {self.path}, the whole student: leave out the other keys of student"
            )


@dataclass(frozen=True)
class CacheRecipe:
    """Cache the teacher's outputs: it processes the corpus once."""

    top_k: Positive | None = 64
    """Number of likeliest tokens whose probabilities are stored; null stores all."""
    copies: Positive = 1
    """Number of differently masked copies of the text; epochs alternate between them."""
    precision: Literal["fp16", "fp32"] = "fp16"
    """Precision of the stored values."""
    folder: str | None = None
    """Folder of the cache; by default, in the cache of the tokenized corpus."""


@dataclass(frozen=True)
class OnPolicyRecipe:
    """On-policy distillation, on texts that the student generates (Agarwal et al., 2024, algorithm 1)."""

    probability: Share = 0.5
    """Share of the steps with texts of the student, the paper's lambda; the other steps use the corpus."""
    temperature: Temperature = 1.0
    """Temperature of the student's sampling."""
    beginning: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Share of a text that serves as a decoder's prompt, at least one token."""


@dataclass(frozen=True)
class GeneralRecipe:
    """Distill a pretrained teacher on raw text."""

    teacher: str
    """Folder or Hub id of the teacher with its tokenizer: a Tercet model, or a stock one that Tercet can
    import."""
    corpus: CorpusRecipe
    """The text."""
    objective: SingleObjectiveRecipe
    """The training objective on the text itself."""
    training: TrainingRecipe
    """Optimization."""
    losses: tuple[Loss, ...] = PUBLISHED
    """What is learned from the teacher."""
    objective_weight: NonNegative = 2.0
    """Weight of the objective's loss; 0 trains with the teacher's losses only."""
    cache: CacheRecipe | None = None
    """If set, the teacher's outputs are cached; otherwise the teacher computes every batch."""
    sequences: Positive | None = None
    """If set, sequence-level distillation: the teacher generates the targets once, with this number of beams
    (Kim and Rush, 2016, section 3.2); for translation."""
    on_policy: OnPolicyRecipe | None = None
    """If set, the student generates the targets of some steps; for decoders and sequence-to-sequence
    models."""


@dataclass(frozen=True)
class TaskStepRecipe:
    """Distill a fine-tuned teacher on rows."""

    teacher: str
    """Folder of the teacher, a model of `tercet finetune`."""
    data: DataRecipe
    """The rows."""
    training: FineTuningSchedule = field(default_factory=FineTuningSchedule)
    """Optimization."""
    unlabelled: str | None = None
    """File of further rows without labels, for the teacher's loss only."""
    soft_weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of the loss on the teacher's outputs."""
    hard_weight: NonNegative = 1.0
    """Weight of the loss on the rows' labels."""
    temperature: Temperature = 2.0
    """Temperature of the teacher's and the student's distributions."""


@dataclass(frozen=True)
class ReportRecipe:
    """Comparisons in the report."""

    without_teacher: bool = True
    """Whether to train the same student without a teacher, for comparison."""
    random: bool = True
    """Whether to train the same student from random weights, for comparison."""
    speed: bool = True
    """Whether to measure latency, throughput and memory; run no other programs meanwhile."""


@dataclass(frozen=True)
class DistillationRecipe:
    """All settings of a distillation."""

    output: str
    """Folder of the run."""
    student: StudentRecipe = field(default_factory=StudentRecipe)
    """The student."""
    general: GeneralRecipe | None = None
    """The step on raw text."""
    task: TaskStepRecipe | None = None
    """The step on rows."""
    report: ReportRecipe = field(default_factory=ReportRecipe)
    """Comparisons in the report."""

    def __post_init__(self):
        if self.general is not None and texts_of(self.general.corpus.train):
            raise ValueError(
                "general.corpus.train lists texts with shares, which distillation does not support: name one "
                "text, or a list of files"
            )
        if self.general is None and self.task is None:
            raise ValueError("the recipe has neither general nor task: set one of them, or both")

    @property
    def folder(self) -> Path:
        """The output folder as a path."""
        return named_path(self.output, "output")

    @property
    def model_folder(self) -> Path:
        """Where the finished student lies."""
        return self.folder / "model"
