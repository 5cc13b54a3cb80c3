"""A model loaded whole: its files have every tensor that it needs, in its shape, and only finite numbers.

transformers draws at random what files lack, and leaves unread what has no place in the model. Both are found
here before anything is allocated: files and configuration are compared by a model without storage (on torch's
device `meta`). The sizes in a configuration therefore cost nothing that the files do not hold.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .messages import first_line, quietly, shortened
from .stored_weights import StoredWeights, inspect_weights

Condition = Callable[[str], bool]
"""Chooses tensors by their names."""

MOST_NAMED = 4
"""Tensors that a message names."""


class Fit(NamedTuple):
    """How the tensors of files fit a model."""

    model: PreTrainedModel
    """Without storage."""
    missing: list[str]
    """Names of tensors that it needs and the files do not have."""
    misshapen: dict[str, str]
    """Names of tensors that they have in another shape -> both shapes, in words."""
    surplus: list[str]
    """Names of tensors that it has no place for."""


def compare_weights(loader: Any, folder: Path, **arguments: Any) -> Fit:
    """Compare a model with the weights in a folder; nothing is allocated.

    Args:
        loader: A class of models, or an Auto class.
        folder: Where the weights lie, as safetensors.
        arguments: Of `from_pretrained`.

    Raises:
        ValueError: The configuration describes tensors that no machine can address.
    """
    try:
        with quietly():
            model, found = loader.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True,
                device_map="meta", **arguments,
            )  # fmt: skip
    except RuntimeError as error:
        raise ValueError(
            f"{folder / 'config.json'} describes no possible model ({first_line(error)}): use the "
            "config.json that was saved with these weights"
        ) from error
    misshapen = {
        name: f"{name} is {tuple(stored)} in the file and {tuple(told)} by config.json"
        for name, stored, told in sorted(found["mismatched_keys"])
    }
    return Fit(model, sorted(found["missing_keys"]), misshapen, sorted(found["unexpected_keys"]))


def load_whole(
    loader: Any,
    folder: Path,
    *,
    may_lack: Condition = lambda name: False,
    may_leave: Condition = lambda name: False,
    **arguments: Any,
) -> tuple[PreTrainedModel, Fit]:
    """Load a model none of whose weights are made up, unless by permission.

    Args:
        loader: A class of models, or an Auto class.
        folder: Where it lies.
        may_lack: Tells of a tensor's name whether it may be drawn.
        may_leave: Tells of a tensor's name whether it may stay unread.
        arguments: Of `from_pretrained`.

    Returns:
        The model in evaluation mode, and how the files fitted it.

    Raises:
        ValueError: Files are damaged, pickled or missing, lack a tensor, have one of another shape or one for
            which there is no place, or numbers that are not finite.
    """
    stored = inspect_weights(folder)
    fit = compare_weights(loader, folder, **arguments)
    require_fit(fit, stored, may_lack, may_leave)
    return load_finite(loader, folder, stored, **arguments), fit


def load_finite(loader: Any, folder: Path, stored: StoredWeights, **arguments: Any) -> PreTrainedModel:
    """Load a model whose files are known to fit it.

    Raises:
        ValueError: It has numbers that are not finite.
    """
    with quietly():
        model = loader.from_pretrained(
            folder, use_safetensors=True, ignore_mismatched_sizes=True, **arguments
        )
    require_finite(model.state_dict(), stored.files[0])
    return model.eval()


def require_fit(
    fit: Fit,
    stored: StoredWeights,
    may_lack: Condition = lambda name: False,
    may_leave: Condition = lambda name: False,
) -> None:
    """Raise a `ValueError` unless files have what a model needs, and nothing that it has no place for."""
    file, kind = stored.files[0], type(fit.model).__name__
    if missing := [name for name in fit.missing if not may_lack(name)]:
        raise ValueError(
            f"{file} lacks {counted(missing)} of {kind}, which would be drawn at random: copy the file again "
            "or save the model again, or use the config.json that was saved with it"
        )
    if misshapen := [words for name, words in fit.misshapen.items() if not may_lack(name)]:
        raise ValueError(
            f"{file} and config.json do not belong together ({shortened(misshapen, MOST_NAMED)}): use the "
            "config.json that was saved with these weights"
        )
    if surplus := [name for name in fit.surplus if not may_leave(name)]:
        raise ValueError(
            f"{file} has {counted(surplus)} for which {kind} has no place: use the config.json that was "
            "saved with these weights; its `architectures` names the class that was saved"
        )


def tell_of_unread(fit: Fit, folder: Path) -> None:
    """Warn of tensors below the head that nothing reads; of those of other heads, nothing is said."""
    base = f"{fit.model.base_model_prefix}."
    if unread := [name for name in fit.surplus if name.startswith(base)]:
        warnings.warn(
            f"{folder} has {counted(unread)} for which {type(fit.model).__name__} has no place: they are not "
            "read",
            stacklevel=2,
        )


def require_finite(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Raise a `ValueError` if a tensor has numbers that are not finite, and name it."""
    names: dict[object, str] = {}
    for name, tensor in tensors.items():
        names.setdefault((tensor.data_ptr(), tensor.shape), name)  # tied ones are one
    if spoiled := [name for name in names.values() if not is_finite(tensors[name])]:
        raise ValueError(
            f"{file} has weights that are not finite in {counted(spoiled)}: the training has failed, so use "
            "an earlier checkpoint, or train again with a lower learning rate"
        )


def is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers of a tensor are finite, without a copy of it."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = torch.aminmax(tensor.detach())
    return bool(low.isfinite() & high.isfinite())


def counted(names: list[str]) -> str:
    """Count tensors, and name some."""
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'} ({shortened(names, MOST_NAMED)})"
