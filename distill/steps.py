"""What a distillation consists of, before it begins: its steps, and the students that take them.

recipe -> prepare -> general   pretraining with a teacher that reads along   (`general_step.py`)
             |       task      fine-tuning with a teacher's answers          (`task_step.py`)
             |
             +-----> students  the recipe's own one, and those that it is compared with

A step is imported when a recipe has it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from transformers import PreTrainedTokenizerBase

from ..configs.by_kind import ByKind
from ..configs.messages import in_part
from ..modeling import TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint, Opener, opening_once
from .output import GENERAL, RANDOM, STUDENT, TASK, WITHOUT_TEACHER
from .recipe import DistillationRecipe, StudentRecipe
from .teacher import require_same_vocabulary

if TYPE_CHECKING:
    from .general_step import GeneralStep
    from .task_step import TaskStep

STEPS = ByKind(__name__, {GENERAL: "general_step.GeneralStep", TASK: "task_step.TaskStep"})
"""The part of a recipe -> the step that it describes."""


@dataclass(frozen=True)
class Student:
    """One that learns."""

    name: str
    """Its folder, in that of the run."""
    recipe: StudentRecipe
    """What it begins with."""
    is_taught: bool = True
    """Whether it learns from the teachers, or from the text and the labels alone."""

    def going_on(self, model: Path) -> "Student":
        """Return the same student as it has learned so far."""
        return replace(self, recipe=StudentRecipe(path=str(model)))


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    """A run of pretraining or of fine-tuning with a teacher, as far as all students have it in common."""

    teacher: Checkpoint
    """The model to be imitated, on disk."""
    model: TercetPreTrainedModel
    """The same, loaded."""
    open_model: Opener
    """Finds further models by their names."""
    recipe: Any
    """The part of the recipe that describes it."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.teacher.required_tokenizer()

    @classmethod
    @abstractmethod
    def prepare(cls, recipe: Any, open_model: Opener = Checkpoint.open) -> Self:
        """Load the teacher and what it teaches of, and make sure that they fit each other.

        Nothing is written outside the cache.
        """

    @abstractmethod
    def require_learnable(self, student: Student, folder: Path) -> None:
        """Make sure that a run in a folder will find nothing wrong with its student; nothing is written."""

    @abstractmethod
    def learn(self, student: Student, folder: Path, *, resume: bool) -> None:
        """Let a student learn, and leave its model in a folder; a finished run is not repeated."""


@dataclass(frozen=True)
class Prepared:
    """The parts of a distillation."""

    general: "GeneralStep | None"
    """The step on raw text, if the recipe has one."""
    task: "TaskStep | None"
    """The step on rows, if the recipe has one."""
    students: Sequence[Student]
    """The recipe's own one, and those that it is compared with."""

    @property
    def steps(self) -> Mapping[str, Step]:
        found = {GENERAL: self.general, TASK: self.task}
        return {name: step for name, step in found.items() if step is not None}

    def require_fit(self, folder: Path) -> None:
        """Make sure that all students fit their teachers, before anything is written into a run's folder."""
        (name, first), *others = self.steps.items()
        for student in self.students:
            with in_part(name):
                first.require_learnable(student, folder / student.name / name)
        for _, step in others:
            require_same_vocabulary(step.tokenizer, first.tokenizer)


def prepare(recipe: DistillationRecipe) -> Prepared:
    """Load teachers, text and rows once; nothing is written outside the cache."""
    open_model, steps = opening_once(), dict[str, Any]()
    for name, part in ((GENERAL, recipe.general), (TASK, recipe.task)):
        if part is not None:
            with in_part(name):
                steps[name] = STEPS[name].prepare(part, open_model)
    return Prepared(steps.get(GENERAL), steps.get(TASK), students_of(recipe))


def students_of(recipe: DistillationRecipe) -> list[Student]:
    """List the students that learn: the recipe's, and those that it is compared with."""
    own, report = recipe.student, recipe.report
    students = [Student(STUDENT, own)]
    if report.without_teacher:
        students.append(Student(WITHOUT_TEACHER, own, is_taught=False))
    if report.random and own.path is None and own.initialization == "teacher":
        students.append(Student(RANDOM, replace(own, initialization="random")))
    return students
