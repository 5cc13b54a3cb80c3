"""Load a model to be examined, or say in one line why that is impossible."""

from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig

from .. import modeling  # noqa: F401  registers the family with the Auto classes
from .examined_model import MAPPINGS, ExaminedModel, classes_of
from .model_folder import find_folder, load_config, load_tokenizer, require_transformer
from .stored_weights import StoredWeights, inspect_weights
from .whole_weights import Fit, compare_weights

HARMLESS = 10**8
"""Parameters that any machine has room for, however few of them are in the files."""


def load_examined_model(name: str, *, trust_remote_code: bool = False) -> ExaminedModel:
    """Load a model from a folder, or from the Hub if there is no such folder.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: A file is missing or damaged, the weights are pickled or far fewer than the configuration
            says, or the model is of a kind, or has a head, that no examination knows.
    """
    folder = find_folder(name)
    config = load_config(folder, trust_remote_code=trust_remote_code)
    if not getattr(config, "reads_any_ids", True):
        require_transformer(config, name)
    loader = loader_of(config)
    arguments: Any = {"config": config, "dtype": torch.float32, "trust_remote_code": trust_remote_code}
    stored = inspect_weights(folder)
    require_size(compare_weights(getattr(transformers, loader), folder, **arguments), stored)
    model, loading = getattr(transformers, loader).from_pretrained(
        folder, use_safetensors=True, ignore_mismatched_sizes=True, output_loading_info=True, **arguments
    )
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    return ExaminedModel(name, model.eval(), tokenizer, loading)


def require_size(fit: Fit, stored: StoredWeights) -> None:
    """Raise a `ValueError` if what is drawn for what files lack would take more memory than they do."""
    numbers, needed = sum(stored.parameters.values()), fit.model.num_parameters()
    if needed > max(2 * numbers, HARMLESS):
        raise ValueError(
            f"config.json describes a model of {needed:,} parameters, but {stored.files[0]} has {numbers:,}: "
            "use the config.json that was saved with these weights"
        )


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
