"""The folder of a fine-tuning run: what lies in it, and when a run may write there.

recipe.yaml        what the run does            scores.json         all scores, of every seed
seed-0/            log.jsonl, checkpoints while it learns; then its scores, predictions and model
model/             the model of the best seed   evaluation.json     its scores, for `tercet push`
predictions.jsonl  its predictions of the last split that was measured
report.md, report.html, curves.png, confusions.png                  what there is to see
grid/, grid.json   what a grid tried            texts.json          names, sizes and hashes of the rows
adaptation/        further pretraining          before/             the runs without it
"""

from dataclasses import fields
from pathlib import Path

from ..pretraining.output import (
    CURVES,
    EVALUATION,
    MODEL,
    RECIPE,
    TEXTS,
    delete,
    is_replaced,
    make_folder,
    require_elsewhere,
    require_same_recipe,
    require_unused,
    write_recipe,
)
from .recipe import FineTuningRecipe, FineTuningSchedule

SCORES = "scores.json"
PREDICTIONS = "predictions.jsonl"
MARKDOWN = "report.md"
PAGE = "report.html"
CONFUSIONS = "confusions.png"
SEED = "seed-"
"""What the name of a seed's folder begins with."""
ADAPTER = "adapter"
"""Folder of what LoRA learned, in that of a seed."""
GRID = "grid"
GRID_SCORES = "grid.json"
ADAPTED = "adaptation"
BEFORE = "before"

WRITTEN = (
    *(RECIPE, MODEL, EVALUATION, TEXTS, SCORES, PREDICTIONS, MARKDOWN, PAGE, CURVES, CONFUSIONS),
    *(GRID, GRID_SCORES, ADAPTED, BEFORE),
)
"""Everything that a run writes into its folder, beside the seeds' folders."""

MAY_CHANGE = {"seeds", "evaluations_per_epoch", "tokens_per_micro_batch", "num_workers", "trackers"}
"""Keys of `training` that a resumed run may change: others change what the finished seeds have learned."""

WHAT_IS_LEARNED = (
    *("model", "task", "data", "lora", "adaptation", "grid"),
    *(f"training.{key.name}" for key in fields(FineTuningSchedule) if key.name not in MAY_CHANGE),
)
"""Keys of a recipe that a resumed run may not change."""


def names_of(recipe: FineTuningRecipe) -> tuple[str, ...]:
    """Name everything that a run writes into its folder."""
    return (*WRITTEN, *(path.name for path in recipe.folder.glob(f"{SEED}*")))


def require_claimable(recipe: FineTuningRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make sure that `claim_output` may do as it is told; nothing is changed.

    Raises:
        ValueError: The folder is in use, or an earlier run there had another recipe.
    """
    replaced = is_replaced(recipe.folder, overwrite)
    own = names_of(recipe)
    require_unused(recipe.folder, allowed=own if resume or replaced else (), written=own)
    if replaced:
        require_elsewhere(recipe.folder, {"model.path": recipe.model.path})
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
        for name in names_of(recipe):
            delete(folder / name)
    make_folder(folder)
    write_recipe(recipe, folder)


def seed_folder(folder: Path, seed: int) -> Path:
    """Give the folder of one seed's run, below that of a run."""
    return folder / f"{SEED}{seed}"
