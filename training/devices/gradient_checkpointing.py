"""Layers that are computed again in the backward pass, so that memory holds the activations of one at a time.

Of each layer only its input is kept (Chen et al., 2016, "Training deep nets with sublinear memory cost"), and
dropout drops the same again. transformers' models do this themselves; here it is chosen, for every layout.
"""

from typing import Any

from torch import nn


def enable_gradient_checkpointing(model: nn.Module) -> None:
    """Let all of transformers' models in a model compute their layers again."""
    inner: set[nn.Module] = set()
    for module in model.modules():  # outer ones come first, and tell those in them
        if module not in inner and getattr(module, "supports_gradient_checkpointing", False):
            several_names: Any = module  # the second one until transformers 5.22
            enable = getattr(module, "activation_checkpointing_enable", None)
            (enable or several_names.gradient_checkpointing_enable)({"use_reentrant": False})
            inner.update(module.modules())
    if not inner:
        raise ValueError(
            f"training.gradient_checkpointing = true, but {type(model).__name__} has no layers that can be "
            "computed again (Transformers have them): leave it out, and lower training.tokens_per_micro_batch"
        )
