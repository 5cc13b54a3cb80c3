"""Outputs are finite numbers: a model that is damaged, or overflows, is an error where it is called."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

NO_NUMBERS = (
    "the model computes what is no number (its weights are damaged, or overflow in this precision): check it "
    "with tercet doctor, or use precision fp32"
)


@contextmanager
def finite_outputs(*models: nn.Module) -> Iterator[None]:
    """Check that all that these models return inside the context is finite numbers."""

    def check(module: nn.Module, inputs: Any, outputs: Any) -> None:
        values = outputs.values() if isinstance(outputs, Mapping) else [outputs]
        for value in values:
            if isinstance(value, Tensor) and value.is_floating_point():
                require_numbers(value)

    with ExitStack() as stack:
        for model in models:
            stack.callback(model.register_forward_hook(check).remove)
        yield


def require_numbers(values: Tensor) -> None:
    """Raise a `ValueError` if there is nan or inf among values."""
    if not bool((values < torch.inf).all()):  # of which nan is not less, either
        raise ValueError(NO_NUMBERS)
