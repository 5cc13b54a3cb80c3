"""Load a model to be examined, or say in one line why that is impossible."""

import torch
import transformers
from transformers import PreTrainedConfig

from .. import modeling  # noqa: F401  registers the family with the Auto classes
from .examined_model import MAPPINGS, ExaminedModel, classes_of
from .model_folder import find_folder, load_config, load_tokenizer, require_transformer
from .stored_weights import inspect_weights


def load_examined_model(name: str, *, trust_remote_code: bool = False) -> ExaminedModel:
    """Load a model from a folder, or from the Hub if there is no such folder.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: A file is missing or damaged, the weights are pickled, or the model is of a kind, or has a
            head, that no examination knows.
    """
    folder = find_folder(name)
    config = load_config(folder, trust_remote_code=trust_remote_code)
    if not getattr(config, "reads_any_ids", True):
        require_transformer(config, name)
    loader = loader_of(config)
    inspect_weights(folder)
    model, loading = getattr(transformers, loader).from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=True,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        trust_remote_code=trust_remote_code,
    )
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    return ExaminedModel(name, model.eval(), tokenizer, loading)


def loader_of(config: PreTrainedConfig) -> str:
    """Name the Auto class that loads the architecture which a configuration names, by default the base."""
    architecture = (config.architectures or [None])[0]
    heads = classes_of(config)
    if architecture is None and "AutoModel" in heads:
        return "AutoModel"
    for auto_class, names in heads.items():
        if architecture in names:
            return auto_class
    raise ValueError(
        f"architectures of config.json names {architecture}, which is not supported: use a model that is "
        f"loaded by one of {', '.join(MAPPINGS)} loads"
    )
