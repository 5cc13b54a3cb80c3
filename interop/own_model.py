"""A model of ours in a folder or on the Hub, with the head that it was saved with."""

from typing import cast

from transformers import AutoModel

from .. import modeling
from ..modeling.pretrained_neural import NeuralPreTrainedModel
from ..modeling.pretrained_tercet import TercetPreTrainedModel
from .messages import quietly
from .model_folder import find_folder, load_config, require_transformer
from .stored_weights import inspect_weights


def load_ours(source: str, model_class: type[NeuralPreTrainedModel] | None = None) -> NeuralPreTrainedModel:
    """Load a model of ours from a folder or the Hub, whatever member it is.

    Args:
        source: The folder or id.
        model_class: What it is loaded as; by default with its own head.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: It is none of ours, or its weights are damaged, incomplete or pickled.
    """
    folder = find_folder(source)
    config = load_config(folder)
    if not config.model_type.startswith("tercet"):
        raise ValueError(f"{source} is a {config.model_type}: import it with tercet import first")
    name = (config.architectures or [""])[0]
    loader = model_class or getattr(modeling, name, AutoModel)
    inspect_weights(folder)
    with quietly():
        return loader.from_pretrained(folder, use_safetensors=True).eval()


def load_transformer(
    source: str, model_class: type[TercetPreTrainedModel] | None = None
) -> TercetPreTrainedModel:
    """Load a model of ours as `load_ours` does, for what only Transformers can do.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: As in `load_ours`, or it is no Transformer.
    """
    require_transformer(load_config(find_folder(source)), source)
    return cast(TercetPreTrainedModel, load_ours(source, model_class))
