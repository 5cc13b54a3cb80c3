"""The recipe of a distillation, with a part for each step and one for the student.

student    with what it begins           general    learn from raw text what a pretrained teacher expects
report     what is compared              task       learn from rows what a fine-tuned teacher answers

One of both steps, or both: then the student that the first one has made goes on with the second.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ..finetune.recipe import DataRecipe, FineTuningSchedule
from ..objectives.base_recipe import Share
from ..objectives.recipes import ObjectiveRecipe
from ..pretraining.recipe import CorpusRecipe
from ..text.paths import named_path
from ..training.recipe import NonNegative, Positive, TrainingRecipe
from .layers import LayerChoice
from .signal_recipes import PUBLISHED, SignalRecipe, Temperature


@dataclass(frozen=True)
class StudentRecipe:
    """What the student is, and with what it begins."""

    path: str | None = None
    """Folder or Hub id of a model that is the student, ours or a stock one; if left out, it is made of the
    teacher, as the other fields say."""
    layers: LayerChoice = "every"
    """Which of the teacher's layers: `every` k-th, `spread` from the first to the last, the `first`, the
    `last`, or a list of their numbers, counted from 0. Of the encoder where there are two stacks."""
    num_layers: Positive | None = None
    """How many of them; half if left out."""
    decoder_layers: LayerChoice | None = None
    """The same of the decoder, where there are two stacks; as `layers` and `num_layers` say if left out."""
    num_decoder_layers: Positive | None = None
    """How many of these."""
    token_types: Literal["dropped", "kept"] = "dropped"
    """Whether an encoder still tells first and second text apart; DistilBERT does not."""
    initialization: Literal["teacher", "random"] = "teacher"
    """Where the first weights are from; random ones show what the teacher's were worth."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Further fields of the configuration: a smaller `hidden_size` needs random weights."""

    def __post_init__(self):
        if self.path is not None and replace(self, path=None) != StudentRecipe():
            raise ValueError(
                f"student.path is {self.path}, the whole student: leave out the other keys of student"
            )


@dataclass(frozen=True)
class CacheRecipe:
    """Let the teacher read the corpus once, and keep what it expects."""

    top_k: Positive | None = 64
    """Likeliest tokens of which the probabilities are kept; all if null."""
    copies: Positive = 1
    """How many differently masked copies of the text are read; epochs take turns with them."""
    precision: Literal["fp16", "fp32"] = "fp16"
    """Number format of what is kept."""
    folder: str | None = None
    """Where it is kept; beside the tokenized corpus if left out."""


@dataclass(frozen=True)
class OnPolicyRecipe:
    """Let the student write what both are compared on (Agarwal et al., 2024, algorithm 1)."""

    probability: Share = 0.5
    """How many of the steps are written by the student, the paper's lambda; the others read given text."""
    temperature: Temperature = 1.0
    """Of the distribution that it writes from."""
    beginning: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Share of a text that a decoder is given and continues, a token at least."""


@dataclass(frozen=True)
class GeneralRecipe:
    """Learn from raw text what a pretrained teacher expects."""

    teacher: str
    """Folder or Hub id of the teacher, ours or a stock model that ours can be, with its tokenizer."""
    corpus: CorpusRecipe
    """Which text is read."""
    objective: ObjectiveRecipe
    """What is learned from the text itself."""
    training: TrainingRecipe
    """How."""
    signals: tuple[SignalRecipe, ...] = PUBLISHED
    """What is learned from the teacher."""
    objective_weight: NonNegative = 2.0
    """What the objective counts beside the signals; 0: the teacher alone is learned from."""
    cache: CacheRecipe | None = None
    """If given, the teacher reads the corpus once; otherwise it reads along."""
    sequences: Positive | None = None
    """If given, targets are what the teacher writes for the sources by so many beams, once (Kim and Rush,
    2016, section 3.2); for translation."""
    on_policy: OnPolicyRecipe | None = None
    """If given, targets of some steps are what the student writes; for decoders and sequence to sequence."""


@dataclass(frozen=True)
class TaskStepRecipe:
    """Learn from rows what a fine-tuned teacher answers."""

    teacher: str
    """Folder of the teacher, that `tercet finetune` made."""
    data: DataRecipe
    """From which rows."""
    training: FineTuningSchedule = field(default_factory=FineTuningSchedule)
    """How."""
    unlabelled: str | None = None
    """File of further rows, of which only the teacher says what is right."""
    soft_weight: Annotated[float, Field(gt=0)] = 1.0
    """What the teacher's answers count."""
    hard_weight: NonNegative = 1.0
    """What the rows' labels count."""
    temperature: Temperature = 2.0
    """Of the teacher's answers and the student's."""


@dataclass(frozen=True)
class ReportRecipe:
    """What the student is compared with."""

    without_teacher: bool = True
    """Whether the same student learns the same without a teacher, for comparison."""
    random: bool = True
    """Whether a student that begins with random weights learns the same from the teacher."""
    speed: bool = True
    """Whether latency, throughput and memory are measured; the machine should rest meanwhile."""


@dataclass(frozen=True)
class DistillationRecipe:
    """Everything that distillation depends on, but the machine."""

    output: str
    """Folder of the run."""
    student: StudentRecipe = field(default_factory=StudentRecipe)
    """With what the student begins."""
    general: GeneralRecipe | None = None
    """The step on raw text."""
    task: TaskStepRecipe | None = None
    """The step on rows."""
    report: ReportRecipe = field(default_factory=ReportRecipe)
    """What the student is compared with."""

    def __post_init__(self):
        if self.general is None and self.task is None:
            raise ValueError("neither general nor task says what is learned: give one of them, or both")

    @property
    def folder(self) -> Path:
        """The output folder as a path."""
        return named_path(self.output, "output")

    @property
    def model_folder(self) -> Path:
        """Where the finished student lies."""
        return self.folder / "model"
