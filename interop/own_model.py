"""The model of ours in a folder or on the Hub, with the head that it was saved with."""

from transformers import AutoModel

from .. import modeling
from ..modeling.pretrained_tercet import TercetPreTrainedModel
from .messages import quietly
from .model_folder import find_folder, load_config, require_transformer
from .stored_weights import inspect_weights


def load_ours(
    source: str, model_class: type[TercetPreTrainedModel] | None = None, *, reads_any: bool = False
) -> TercetPreTrainedModel:
    """Load a model of ours from a folder or the Hub.

    Args:
        source: The folder or id.
        model_class: What it is loaded as; by default with its own head.
        reads_any: Whether members are loaded, too, that are no Transformers.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: It is none of ours, or none that is read, or its weights are damaged, incomplete or
            pickled.
    """
    folder = find_folder(source)
    config = load_config(folder)
    if not config.model_type.startswith("tercet"):
        raise ValueError(f"{source} is a {config.model_type}: import it with tercet import first")
    if not reads_any:
        require_transformer(config, source)
    name = (config.architectures or [""])[0]
    loader = model_class or getattr(modeling, name, AutoModel)
    inspect_weights(folder)
    with quietly():
        return loader.from_pretrained(folder, use_safetensors=True).eval()
