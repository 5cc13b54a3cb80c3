"""The recipe of a distillation, with a part for each step and one for the student.

student    architecture, initial weights      general    distill a pretrained teacher on raw text
report     comparisons in the report          task       distill a fine-tuned teacher on rows

A recipe has one of the two steps, or both; with both, the student of the first step continues with the
second. `general` is a recipe of pretraining and `task` one of fine-tuning, with a teacher: their classes are
in `general_recipe.py` and `task_recipe.py`.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PositiveInt

from ..configs.by_kind import OptionalPart
from ..configs.named_files import named_path
from .layers import LayerChoice


@dataclass(frozen=True)
class StudentRecipe:
    """The student's architecture and initial weights."""

    path: str | None = None
    """Folder or Hub id of an existing model, Tercet's or stock; by default, the student is made from the
    teacher with the other fields."""
    layers: LayerChoice = "every"
    """Layers to copy from the teacher: `every` k-th, `spread` from the first to the last, the `first`, the
    `last`, or a list of indices from 0. In a sequence-to-sequence model, those of the encoder."""
    num_layers: PositiveInt | None = None
    """Number of these layers; half of the teacher's by default."""
    decoder_layers: LayerChoice | None = None
    """The same for the decoder of a sequence-to-sequence model; `layers` and `num_layers` by default."""
    num_decoder_layers: PositiveInt | None = None
    """Number of decoder layers."""
    token_types: Literal["dropped", "kept"] = "dropped"
    """Whether an encoder keeps its token type embeddings; DistilBERT does not."""
    initialization: Literal["teacher", "random"] = "teacher"
    """Initial weights; `random` measures the effect of the teacher's weights."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Overrides of other configuration fields; a smaller `hidden_size` needs random weights."""

    def __post_init__(self):
        if self.path is not None and replace(self, path=None) != StudentRecipe():
            raise ValueError(f"path is {self.path}, the whole student: leave out the other keys")


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
    general: Annotated[Any, OptionalPart(__name__, "general_recipe.GeneralRecipe")] = None
    """The step on raw text."""
    task: Annotated[Any, OptionalPart(__name__, "task_recipe.TaskStepRecipe")] = None
    """The step on rows."""
    report: ReportRecipe = field(default_factory=ReportRecipe)
    """Comparisons in the report."""

    def __post_init__(self):
        if self.general is None and self.task is None:
            raise ValueError("the recipe has neither general nor task: set one of them, or both")

    @property
    def folder(self) -> Path:
        return named_path(self.output, "output")
