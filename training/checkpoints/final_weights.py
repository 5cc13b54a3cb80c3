"""Which weights a finished run hands over: the last step's, their moving average, or a mean of checkpoints.

All that a recipe asks for are measured and kept in the last checkpoint, a file each. One kind becomes the
finished model; the others are saved beside it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors.torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..devices.sharding import load_whole_weights, whole_weights
from ..recipe import TrainingRecipe

LAST, EMA, MEAN = "last", "ema", "mean"
FILES = {LAST: "model.safetensors", EMA: "ema.safetensors", MEAN: "mean.safetensors"}
"""Kinds of weights, and their files in the checkpoint at the end."""


def kinds_of(recipe: TrainingRecipe) -> list[str]:
    """List the kinds of weights that a run has in the end, the final one last."""
    is_there = {LAST: True, EMA: recipe.ema_decay is not None, MEAN: recipe.average_checkpoints is not None}
    kinds = [kind for kind in FILES if is_there[kind]]
    return sorted(kinds, key=lambda kind: kind == final_kind(recipe))


def final_kind(recipe: TrainingRecipe) -> str:
    """Return which weights become the finished model: those that the recipe names, or its average."""
    if recipe.final_weights is not None:
        return recipe.final_weights
    if recipe.ema_decay is not None:
        return EMA
    return LAST if recipe.average_checkpoints is None else MEAN


def folder_of(name: str, kind: str, recipe: TrainingRecipe) -> str:
    """Name the folder of a model with one kind of weights: the final one has the name itself."""
    return name if kind == final_kind(recipe) else f"{name}-{kind}"


def judged_kind(recipe: TrainingRecipe) -> str:
    """Return the weights that a run evaluates: the final ones, where they exist before the end."""
    return EMA if final_kind(recipe) == EMA else LAST


def scores_of(kind: str, scores: Mapping[str, float]) -> dict[str, float]:
    """Take the scores of one kind of weights: those of the last step have no prefix."""
    if kind != LAST:
        prefix = f"{kind}/"
        return {name.removeprefix(prefix): v for name, v in scores.items() if name.startswith(prefix)}
    return {name: v for name, v in scores.items() if not name.startswith((f"{EMA}/", f"{MEAN}/"))}


def each_kind(
    model: nn.Module, recipe: TrainingRecipe, checkpoint: Path, accelerator: Accelerator
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Load one kind of weights after another into a model, the final one last, and yield their names.

    Every process calls this; as in `whole_weights`, only the main one gets weights, and they are the model's
    own: use them before the next ones come.

    Args:
        model: Trained.
        recipe: Of the run.
        checkpoint: The one at its end.
        accelerator: Of the run.
    """
    kinds = kinds_of(recipe)
    for kind in kinds:
        if len(kinds) > 1:  # a model has the last weights until it takes others
            weights = safetensors.torch.load_file(checkpoint / FILES[kind])
            load_whole_weights(accelerator.unwrap_model(model), weights)
        yield kind, whole_weights(model, accelerator)


def require_averages(recipe: TrainingRecipe) -> None:
    """Make sure that the averages that a recipe asks for can be made.

    Raises:
        ValueError: It names final weights that it does not make, or does not say which of two kinds, or a run
            has or keeps fewer checkpoints than are to be averaged.
    """
    number, every = recipe.average_checkpoints, recipe.checkpoint_every
    missing = {EMA: recipe.ema_decay is None, MEAN: number is None}
    if missing.get(recipe.final_weights or LAST):
        key = "ema_decay" if recipe.final_weights == EMA else "average_checkpoints"
        raise ValueError(
            f"training.final_weights = {recipe.final_weights}, but there is no such average: set "
            f"training.{key}, or leave final_weights out"
        )
    if recipe.final_weights is None and not any(missing.values()):
        raise ValueError(
            "training.ema_decay and training.average_checkpoints are both set: say with "
            "training.final_weights = ema, mean or last which weights become the finished model"
        )
    if number is None:
        return
    there = 1 if every is None else (recipe.steps - 1) // every + 1
    if there < number:
        raise ValueError(
            f"training.average_checkpoints = {number}, but a run of {recipe.steps} steps has {there} with "
            f"training.checkpoint_every = {every}: lower that, or average fewer"
        )
    if recipe.keep_checkpoints < number:
        raise ValueError(
            f"training.average_checkpoints = {number}, but training.keep_checkpoints = "
            f"{recipe.keep_checkpoints}: keep at least as many as are averaged"
        )
