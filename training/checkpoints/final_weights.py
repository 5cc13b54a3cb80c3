"""Which weights a finished run hands over: the last step's, their moving average, or a mean of checkpoints.

All that a recipe asks for are measured and kept in the last checkpoint, a file each. One kind becomes the
finished model; the others are saved beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import safetensors.torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..devices.sharding import load_whole_weights, whole_weights
from ..recipe import EMA, LAST, MEAN

FILES = {LAST: "model.safetensors", EMA: "ema.safetensors", MEAN: "mean.safetensors"}
"""Kinds of weights, and their files in the checkpoint at the end."""


def folder_of(name: str, kind: str, final: str) -> str:
    """Name the folder of a model with one kind of weights: the final one has the name itself."""
    return name if kind == final else f"{name}-{kind}"


def scores_of(kind: str, scores: Mapping[str, float]) -> dict[str, float]:
    """Take the scores of one kind of weights: those of the last step have no prefix."""
    if kind != LAST:
        prefix = f"{kind}/"
        return {name.removeprefix(prefix): v for name, v in scores.items() if name.startswith(prefix)}
    return {name: v for name, v in scores.items() if not name.startswith((f"{EMA}/", f"{MEAN}/"))}


def each_kind(
    model: nn.Module, kinds: Sequence[str], checkpoint: Path, accelerator: Accelerator
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Load one kind of weights after another into a model, and yield their names.

    Every process calls this; as in `whole_weights`, only the main one gets weights, and they are the model's
    own: use them before the next ones come.

    Args:
        kinds: Kinds of the run's weights; if there is one, the model has it.
        checkpoint: The one at its end.
    """
    for kind in kinds:
        if len(kinds) > 1:  # a model has the last weights until it takes others
            weights = safetensors.torch.load_file(checkpoint / FILES[kind])
            load_whole_weights(accelerator.unwrap_model(model), weights)
        yield kind, whole_weights(model, accelerator)
