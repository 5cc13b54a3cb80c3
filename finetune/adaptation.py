"""Further pretraining: a model reads text of the task's domain before it learns the task.

Gururangan et al. (2020) call it domain-adaptive pretraining.
"""

from pathlib import Path
from typing import cast

from transformers import PreTrainedConfig

from ..modeling.saved.checkpoint import Checkpoint
from ..pretraining.recipe import ModelRecipe, PretrainingRecipe
from .recipe import AdaptationRecipe


def require_adaptable(recipe: AdaptationRecipe, config: PreTrainedConfig, path: str, folder: Path) -> None:
    """Make sure that an objective trains the model's member, and that the text is there.

    Raises:
        ValueError: The objective is another member's.
        FileNotFoundError: A file of the text does not exist.
    """
    from ..pretraining.text import open_texts

    classes = [cast(type[PreTrainedConfig], model.config_class) for model in recipe.objective.model_classes]
    if not isinstance(config, tuple(classes)):
        raise ValueError(
            f"adaptation.objective is {recipe.objective.kind}, which trains a "
            f"{' or a '.join(known.model_type for known in classes)}, but {path} is a {config.model_type}: "
            "choose another objective, or another model"
        )
    open_texts(further_pretraining(recipe, path, folder))


def adapt(model: Checkpoint, recipe: AdaptationRecipe, folder: Path) -> Path:
    """Go on with the pretraining of a model below a folder, and return the folder of the adapted one.

    A run that was interrupted is continued, and one that is finished is not repeated.

    Raises:
        ValueError: The objective is not the model's, or something is wrong with the text.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    from ..pretraining.run import pretrain

    return pretrain(further_pretraining(recipe, str(model.folder), folder / "run"), resume=True)


def further_pretraining(recipe: AdaptationRecipe, path: str, output: Path) -> PretrainingRecipe:
    """Return the recipe of the pretraining run that an adaptation is."""
    return PretrainingRecipe(
        model=ModelRecipe(path=path),
        corpus=recipe.corpus,
        objective=recipe.objective,
        training=recipe.training,
        output=str(output),
    )
