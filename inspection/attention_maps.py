"""Where heads look: attention maps, what of them distance alone explains, and induction heads.

A map shows how the values of other positions are mixed, not what they contain or whether the result is used:
different maps can give the same predictions (Jain and Wallace, 2019), and most weight is often on a separator
or the first token, where it does least (Clark et al., 2019; Xiao et al., 2024). Three baselines: maps of
`untrained(model)`, `distance_share`, which is what remains if only the distance is known, and interventions
(`head_ablation.py`).

An induction head attends from a token to what followed its earlier occurrence, and so continues a sequence
that repeats (Olsson et al., 2022).

Shapes: B batch, T queries, S keys, L attention modules of a kind, H heads.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
        model: The model, which is evaluated.
        inputs: What it reads, padded or packed. The rows of pads mean nothing.

    Returns:
        Where attention stands -> the weights (B, H, T, S) of its modules, first layer first, in the order of
        those of the same kind in `find_attention(model)`; a module that layers share has one for each.

    Raises:
        ValueError: The model keeps no weights.
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


def distance_share(weights: Tensor) -> Tensor:
    """Return how much of a map the distance between query and key explains, (H,), from 0 to 1.

    The adjusted R² of a map that gives each pair the mean weight of its distance, over the pairs that attend
    at all. Close to 1: the head follows positions, whatever the words are.

    Args:
        weights: Of one text without pads, (1, H, T, T).
    """
    (weights,) = weights.double()
    size = weights.shape[-1]
    seen = (weights > 0).any(dim=0)  # pairs that a mask forbids have no weight in any head
    distances = (torch.arange(size)[:, None] - torch.arange(size) + size).to(weights.device)[seen]
    values = weights[:, seen]
    predicted, num_distances = by_distance(values, distances)
    unexplained = (values - predicted).square().sum(dim=-1) / max(values.shape[1] - num_distances, 1)
    total = (values - values.mean(dim=-1, keepdim=True)).square().sum(dim=-1) / max(values.shape[1] - 1, 1)
    share = 1 - unexplained / total
    return torch.where(total > 1e-12, share, torch.ones_like(share)).clamp(0, 1).float()


def by_distance(values: Tensor, distances: Tensor) -> tuple[Tensor, int]:
    """Give each pair the mean value of its distance; `values` (H, n), `distances` (n,). Also counts these."""
    known, places = distances.unique(return_inverse=True)
    sums = values.new_zeros(len(values), len(known)).index_add_(1, places, values)
    return (sums / places.bincount())[:, places], len(known)


def distance_map(weights: Tensor) -> Tensor:
    """Return the maps (1, H, T, T) that distance alone predicts, rows summing to 1 again."""
    size = weights.shape[-1]
    distances = (torch.arange(size)[:, None] - torch.arange(size) + size).flatten().to(weights.device)
    predicted, _ = by_distance(weights[0].flatten(1), distances)
    allowed = (weights > 0).any(dim=1, keepdim=True)
    predicted = predicted.view_as(weights) * allowed
    return predicted / predicted.sum(dim=-1, keepdim=True).clamp(min=1e-12)


@dataclass(frozen=True)
class InductionScores:
    """How strongly each head continues a repetition, (L, H) each.

    Args:
        scores: Mean weight on the token behind the earlier occurrence of the present one, where a sequence of
            random tokens is repeated: 1 for a perfect induction head.
        by_distance: The same weight on the same distances where nothing is repeated: what a head has that
            only follows positions.
        uniform: The same of a head that looks everywhere equally.
    """

    scores: Tensor
    by_distance: Tensor
    uniform: float


def induction_scores(
    model: PreTrainedModel,
    length: int = 32,
    num_sequences: int = 8,
    seed: int = 0,
    vocabulary: Sequence[int] | None = None,
) -> InductionScores:
    """Measure which heads are induction heads, on random tokens that are repeated (Olsson et al., 2022).

    Args:
        model: A model with self-attention; of a sequence-to-sequence model, the decoder's counts, behind an
            encoder that reads the same.
        length: Tokens before the repetition. Twice as many, and one that opens the text, must fit the model.
        num_sequences: Sequences whose mean is taken.
        seed: Of the tokens.
        vocabulary: Ids that are drawn from; all but the special ones of the configuration by default.
    """
    config: Any = model.config
    special = {
        getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos", "cls", "sep", "mask")
    }
    known = (
        [idx for idx in range(config.vocab_size) if idx not in special] if vocabulary is None else vocabulary
    )
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.tensor(known)[torch.randint(len(known), (num_sequences, 2 * length), generator=generator)]
    first, begin = drawn[:, :length], getattr(config, "bos_token_id", None)
    opened = [] if begin is None else [torch.full((num_sequences, 1), begin)]
    places = torch.arange(length, 2 * length) + len(opened)  # of the repetition
    found = []
    for ids in (torch.cat([*opened, first, first], dim=1), torch.cat([*opened, drawn], dim=1)):
        maps = attention_maps(model, inputs_of(model, ids.to(model.device)))
        layers = maps.get("self") or maps["decoder"]
        found.append(
            torch.stack([each[..., places, places - length + 1].mean(dim=(0, 2)) for each in layers])
        )
    is_causal = bool((layers[0].triu(1) == 0).all())
    seen = (places + 1).float() if is_causal else torch.full((length,), float(ids.shape[1]))
    return InductionScores(found[0].float().cpu(), found[1].float().cpu(), float((1 / seen).mean()))


def inputs_of(model: PreTrainedModel, ids: Tensor) -> dict[str, Tensor]:
    """Give ids (B, T) to a model; a sequence-to-sequence model reads and writes them."""
    both = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)} | both
