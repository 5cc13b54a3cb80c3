"""Where heads look: attention maps, and what of them distance alone explains.

A map shows how the values of other positions are mixed, not what they contain or whether the result is used:
different maps can give the same predictions (Jain and Wallace, 2019), and most weight is often on a separator
or the first token, where it does least (Clark et al., 2019; Xiao et al., 2024). Three baselines: maps of
`untrained(model)`, `distance_map`, which is what remains if only the distance is known, and interventions
(`head_ablation.py`).

Shapes: B batch, T queries, S keys, H heads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .inspected_model import Batch, Kind, evaluating

RECORDED: dict[str, Kind] = {
    "attentions": "self",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
"""Names of the weights in a model's outputs -> where the attention stands."""


@torch.no_grad()
def attention_maps(model: PreTrainedModel, inputs: Batch) -> dict[Kind, list[Tensor]]:
    """Return how much each position draws from each other one: weights that sum to 1 over S.

    Fast kernels keep no weights: attention is computed by its definition (`eager`) meanwhile.

    Args:
        inputs: What it reads, padded or packed. The rows of pads mean nothing.

    Returns:
        Where attention stands -> the weights (B, H, T, S) of its modules, first layer first, in the order of
        those of the same kind in `find_attention(model)`; a module that layers share has one for each.
    """
    with evaluating(model), by_definition(model):
        outputs = model(**inputs, output_attentions=True)
    maps: dict[Kind, list[Tensor]] = {
        kind: list(recorded) for name, kind in RECORDED.items() if (recorded := getattr(outputs, name, None))
    }
    if not maps or any(weights is None for layers in maps.values() for weights in layers):
        raise ValueError(
            f"{type(model).__name__} keeps no attention weights, not even with attn_implementation='eager': "
            "choose another model"
        )
    return maps


@contextmanager
def by_definition(model: PreTrainedModel) -> Iterator[None]:
    """Compute attention by its definition, as a context; on transformers 5.17 T5's stacks are told singly."""
    parts = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    kernels: list[Any] = [part.config._attn_implementation for part in parts]
    try:
        for part in parts:
            part.set_attn_implementation("eager")
        yield
    finally:
        for part, kernel in zip(parts, kernels, strict=True):
            part.set_attn_implementation(kernel)


def distance_map(weights: Tensor) -> Tensor:
    """Return the maps (1, H, T, T) that give each pair the mean weight of its distance.

    Rows sum to 1 again. A map that looks like this one follows positions, whatever the words are.
    """
    size = weights.shape[-1]
    places = (torch.arange(size)[:, None] - torch.arange(size) + size - 1).flatten().to(weights.device)
    values = weights[0].flatten(1)
    sums = values.new_zeros(len(values), 2 * size - 1).index_add_(1, places, values)
    predicted = (sums / places.bincount())[:, places].view_as(weights)
    predicted = predicted * (weights > 0).any(dim=1, keepdim=True)  # pairs that a mask forbids have no weight
    return predicted / predicted.sum(dim=-1, keepdim=True).clamp(min=1e-12)
