"""What a distillation consists of, before it begins: every part is built once, and checked on the way.

recipe -> prepare -> general step, task step   teachers with their text or rows
             |
             +-----> students                  the recipe's own one, and those that it is compared with
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..modeling.saved.checkpoint import opening_once
from .general_prepared import PreparedGeneralStep, prepare_general, require_learnable
from .output import GENERAL, RANDOM, STUDENT, WITHOUT_TEACHER
from .recipe import DistillationRecipe
from .task_step import PreparedTaskStep, prepare_task, require_student
from .teacher import require_same_vocabulary


@dataclass(frozen=True)
class Prepared:
    """The parts of a distillation."""

    general: PreparedGeneralStep | None
    """The step on raw text, if the recipe has one."""
    task: PreparedTaskStep | None
    """The step on rows, if the recipe has one."""
    students: Mapping[str, DistillationRecipe]
    """Name -> how it learns; the recipe's own student is the first."""

    @property
    def last(self) -> PreparedGeneralStep | PreparedTaskStep:
        """The step that makes the finished student."""
        step = self.general if self.task is None else self.task
        assert step is not None
        return step


def prepare(recipe: DistillationRecipe) -> Prepared:
    """Load teachers, text and rows once; nothing is written outside the cache.

    Raises:
        FileNotFoundError: A file or model is not there.
        ValueError: Teachers, text or rows do not fit what is to be learned.
    """
    open_model = opening_once()
    general = None if recipe.general is None else prepare_general(recipe.general, recipe.folder, open_model)
    task = None if recipe.task is None else prepare_task(recipe.task, open_model)
    return Prepared(general, task, variants(recipe))


def require_fit(prepared: Prepared) -> None:
    """Make sure that every student fits its teachers, before anything is written.

    Raises:
        ValueError: One does not.
    """
    general, task = prepared.general, prepared.task
    for name, recipe in prepared.students.items():
        if general is not None and recipe.general is not None:
            require_learnable(general, recipe.student, recipe.general, recipe.folder / name / GENERAL)
        if task is not None and general is None:
            require_student(task, recipe.student)
        if task is not None and general is not None:
            require_same_vocabulary(task.tokenizer, general.tokenizer)


def variants(recipe: DistillationRecipe) -> Mapping[str, DistillationRecipe]:
    """Return the students that learn: the recipe's, and those that it is compared with."""
    wanted: dict[str, tuple[bool, Callable[[DistillationRecipe], DistillationRecipe]]] = {
        STUDENT: (True, lambda recipe: recipe),
        WITHOUT_TEACHER: (recipe.report.without_teacher, without_teacher),
        RANDOM: (
            recipe.report.random
            and recipe.student.path is None
            and recipe.student.initialization == "teacher",
            from_random_weights,
        ),
    }
    return {name: vary(recipe) for name, (is_wanted, vary) in wanted.items() if is_wanted}


def without_teacher(recipe: DistillationRecipe) -> DistillationRecipe:
    """Let the same student learn from the text alone, from the same copies of it as of a cached teacher."""
    if recipe.general is None:
        return recipe
    plain = replace(recipe.general, losses=(), objective_weight=1.0, sequences=None, on_policy=None)
    return replace(recipe, general=plain)


def from_random_weights(recipe: DistillationRecipe) -> DistillationRecipe:
    """Let the same student begin with random weights."""
    return replace(recipe, student=replace(recipe.student, initialization="random"))
