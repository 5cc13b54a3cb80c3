"""Domain-adaptive pretraining: the model reads text of the task's domain first (Gururangan et al., 2020)."""

from pathlib import Path

from ..interop.conversion import from_stock
from ..interop.messages import quietly
from ..interop.model_folder import find_folder, load_config, load_tokenizer
from ..pretraining.recipe import ModelRecipe, PretrainingRecipe
from ..pretraining.run import pretrain
from .output import ADAPTED
from .recipe import FineTuningRecipe

IMPORTED = "imported"
"""Folder of a stock model as one of ours, in that of its further pretraining."""


def adapt(recipe: FineTuningRecipe) -> Path:
    """Go on with the pretraining of a recipe's model, and return the folder of the adapted one.

    A run that was interrupted is continued, and one that is finished is not repeated.

    Raises:
        ValueError: The objective is not the model's, or something is wrong with the text.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    assert recipe.adaptation is not None
    folder = recipe.folder / ADAPTED
    pretraining = PretrainingRecipe(
        model=ModelRecipe(path=str(as_ours(recipe, folder))),
        corpus=recipe.adaptation.corpus,
        objective=recipe.adaptation.objective,
        training=recipe.adaptation.training,
        output=str(folder / "run"),
    )
    return pretrain(pretraining, resume=True)


def as_ours(recipe: FineTuningRecipe, folder: Path) -> Path:
    """Find the model that a recipe begins with, or bring it into a folder if it is a stock one."""
    source = find_folder(recipe.model.path, recipe.model.revision)
    if load_config(source).model_type.startswith("tercet"):
        return source
    tokenizer = load_tokenizer(source)
    imported = folder / IMPORTED
    if tokenizer is not None and not imported.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with quietly():
            from_stock(str(source)).save_pretrained(imported)
            tokenizer.save_pretrained(imported)
    return imported
