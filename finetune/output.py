"""The folder of a fine-tuning run: what lies in it, and when a run may write there.

recipe.yaml        what the run does            scores.json         all scores, of every seed
seed-0/            log.jsonl, checkpoints while it learns; then its scores, predictions and model
model/             the model of the best seed   evaluation.json     its scores, for `tercet push`
predictions.jsonl  its predictions of the last split that was measured
"""

from pathlib import Path

import yaml

from ..configs.recipe import recipe_data
from ..pretraining.output import (
    EVALUATION,
    MODEL,
    RECIPE,
    delete,
    is_replaced,
    make_folder,
    require_same_recipe,
    require_unused,
)
from ..training.disk import replace_text
from .recipe import FineTuningRecipe

SCORES = "scores.json"
PREDICTIONS = "predictions.jsonl"
SEED = "seed-"
"""What the name of a seed's folder begins with."""

WHAT_IS_LEARNED = (
    "model",
    "task",
    "data",
    *(f"training.{name}" for name in ("epochs", "batch_size", "seeds")),
)
"""Keys of a recipe that a resumed run may not change."""


def written(recipe: FineTuningRecipe) -> tuple[str, ...]:
    """Name everything that a run writes into its folder."""
    seeds = (f"{SEED}{seed}" for seed in recipe.training.seeds)
    return (RECIPE, MODEL, EVALUATION, SCORES, PREDICTIONS, *seeds)


def require_claimable(recipe: FineTuningRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make sure that `claim_output` may do as it is told; nothing is changed.

    Raises:
        ValueError: The folder is in use, or an earlier run there had another recipe.
    """
    replaced = is_replaced(recipe.folder, overwrite)
    require_unused(recipe.folder, allowed=written(recipe) if resume or replaced else ())
    if resume and not replaced:
        require_same_recipe(recipe.folder, recipe, WHAT_IS_LEARNED)


def claim_output(recipe: FineTuningRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make the run's folder and write the recipe into it.

    Raises:
        ValueError: As in `require_claimable`.
    """
    require_claimable(recipe, resume=resume, overwrite=overwrite)
    folder = recipe.folder
    if is_replaced(folder, overwrite):
        for name in written(recipe):
            delete(folder / name)
    make_folder(folder)
    replace_text(folder / RECIPE, yaml.safe_dump(recipe_data(recipe), sort_keys=False, allow_unicode=True))


def seed_folder(recipe: FineTuningRecipe, seed: int) -> Path:
    """Give the folder of one seed's run."""
    return recipe.folder / f"{SEED}{seed}"
