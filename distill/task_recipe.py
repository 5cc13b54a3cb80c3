"""The part `task` of a distillation's recipe: fine-tuning, with a teacher's answers beside the labels.

data and training are those of `tercet finetune`; the model is the student, the task the teacher's.
"""

from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat

from ..finetune.output import MAY_CHANGE
from ..finetune.recipe import DataRecipe, FineTuningTraining

AboveZero = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class TaskStepRecipe:
    """Distill a fine-tuned teacher on rows."""

    teacher: str
    """Folder of the teacher, a model of `tercet finetune`."""
    data: DataRecipe
    """The rows."""
    training: FineTuningTraining = field(default_factory=FineTuningTraining)
    """Optimization."""
    unlabelled: str | None = None
    """File of further rows without labels, for the teacher's loss only."""
    soft_weight: AboveZero = 1.0
    """Weight of the loss on the teacher's outputs."""
    hard_weight: NonNegativeFloat = 1.0
    """Weight of the loss on the rows' labels."""
    temperature: AboveZero = 2.0
    """Temperature of the teacher's and the student's distributions."""

    WHAT_IS_LEARNED: ClassVar[tuple[str, ...]] = (
        *("teacher", "data", "unlabelled", "temperature", "soft_weight", "hard_weight"),
        *(f"training.{key.name}" for key in fields(FineTuningTraining) if key.name not in MAY_CHANGE),
    )
    """Keys that a resumed run may not change."""
