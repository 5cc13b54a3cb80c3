"""How a model writes, `generation_config.json`, goes from a model of ours to the one that is made of it."""

import warnings
from copy import deepcopy
from tempfile import TemporaryDirectory
from typing import Any

from transformers import GenerationConfig

from ..ground.messages import quietly
from ..modeling.pretrained_neural import NeuralPreTrainedModel

SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
"""Fields that the configuration of a model and its generation defaults have in common."""


def inherit_writing(model: NeuralPreTrainedModel, source: NeuralPreTrainedModel) -> None:
    """Give a model the generation defaults of the one that it comes from, if both write.

    Ids of special tokens that its configuration has changed are changed there, too.

    Warns:
        UserWarning: Some were.

    Raises:
        ValueError: They contradict themselves.
    """
    if not (model.can_generate() and source.can_generate()):
        return
    defaults: Any = deepcopy(source.generation_config)
    for name in SPECIAL_IDS:
        before, now = (getattr(each.config, name, None) for each in (source, model))
        default = getattr(defaults, name)
        if now not in (None, before, default):
            setattr(defaults, name, now)
            if default is not None:
                warnings.warn(
                    f"generation_config.json: {name} is now {now}, as in the model's configuration; it was "
                    f"{default}",
                    stacklevel=2,
                )
    require_savable(defaults)
    model.generation_config = defaults


def require_savable(defaults: GenerationConfig) -> None:
    """Raise a `ValueError` if transformers will not save generation defaults, before a run, not after it."""
    try:
        with TemporaryDirectory() as folder, quietly():
            defaults.save_pretrained(folder)
    except ValueError as error:
        raise ValueError(
            f"generation_config.json cannot be saved with the model ({' '.join(str(error).split())}): "
            f"correct it where the model is from"
        ) from error
