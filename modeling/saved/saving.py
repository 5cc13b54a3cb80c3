"""Saving a model, ours or a stock one, so that its configuration has the fields of its class alone."""

import json
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from .kept_keys import keep_known, keys_of_configuration
from .model_folder import CONFIG
from .remote_code import save_code


def save_loadable(
    model: PreTrainedModel, folder: Path, weights: dict[str, Tensor] | None = None, *, with_code: bool = False
) -> None:
    """Write a model, ours or a stock one, with no keys but the fields of its configuration's class.

    `weights` may take the place of the model's own. The code of a model of ours is written only `with_code`.
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
