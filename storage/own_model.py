"""A model of ours in a folder or on the Hub, with the head that it was saved with."""

import json
from pathlib import Path

import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from ..ground.saved_weights import load_whole
from ..modeling.pretrained import NeuralPreTrainedModel, TercetPreTrainedModel
from .checkpoint import Checkpoint
from .kept_keys import keep_known, keys_of_configuration
from .model_folder import CONFIG, load_config
from .remote_code import save_code


def load_ours(source: str, model_class: type[NeuralPreTrainedModel] | None = None) -> NeuralPreTrainedModel:
    """Load a model of ours from a folder or the Hub, whatever member it is.

    Args:
        source: The folder or id.
        model_class: What it is loaded as; by default with its own head.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: As in `Checkpoint.ours`.
    """
    return Checkpoint.open(source).ours(model_class)


def load_transformer(
    source: str, model_class: type[TercetPreTrainedModel] | None = None
) -> TercetPreTrainedModel:
    """Load a model of ours as `load_ours` does, for what only Transformers can do.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: As in `load_ours`, or it is no Transformer.
    """
    return Checkpoint.open(source).transformer(model_class)


def require_sound(folder: Path) -> None:
    """Make sure that a saved model is whole and finite, ours or a stock one; other code than that is not run.

    Raises:
        ValueError: It is not, as in `load_whole`.
    """
    config = load_config(folder)
    loader = getattr(transformers, (config.architectures or [""])[0], None)
    if config.model_type.startswith("tercet"):
        load_ours(str(folder))
    elif isinstance(loader, type) and issubclass(loader, PreTrainedModel):
        load_whole(loader, folder, may_leave=lambda name: True)


def save_loadable(
    model: PreTrainedModel, folder: Path, weights: dict[str, Tensor] | None = None, *, with_code: bool = False
) -> None:
    """Write a model into a folder, without what its configuration has beside the fields of its class.

    Args:
        model: Ours or a stock one.
        folder: It is made, if need be.
        weights: By default the model's own.
        with_code: Write the code of a model of ours, too.
    """
    model.save_pretrained(folder, state_dict=weights)
    if with_code:
        save_code(folder)
    keep_known_fields(model.config, folder)


def keep_known_fields(config: PreTrainedConfig, folder: Path) -> None:
    """Take out of a configuration that has just been saved what it has beside the fields of its class."""
    file, kind = folder / CONFIG, type(config)
    known = keep_known(file, keys_of_configuration(kind), kind=kind.__name__)
    file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
