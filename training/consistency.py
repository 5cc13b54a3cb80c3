"""Checks of the `training` part of a recipe by itself, before any text is read."""

from .evaluation import require_evaluations
from .optimizers import require_used_constants
from .recipe import TrainingRecipe
from .schedules import warmup_updates
from .stages import require_time


def require_consistent(recipe: TrainingRecipe) -> None:
    """Make sure that the parts of a recipe fit each other; it needs no model and no text.

    Raises:
        ValueError: The warm-up does not fit the run, the optimizer does not use a constant that is named,
            patience has nothing to wear it out, or stages last as long as the run.
    """
    warmup_updates(recipe.schedule, recipe.steps)
    require_used_constants(recipe.optimizer, recipe.schedule.kind == "noam")
    require_evaluations(recipe)
    require_time(recipe)
