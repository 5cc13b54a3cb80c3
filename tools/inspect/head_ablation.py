"""What heads are good for: outputs without them.

Removing a head means that the output projection reads zeros in its place. It is an intervention, unlike an
attention map, which shows where a head looks and not what that does (Jain and Wallace, 2019). Each head
is removed in turn, and the predictions with and without it are compared, a forward pass for each head
(Voita et al., 2019; Michel, Levy and Neubig, 2019, section 3). The baseline is `untrained(model)`.

Shapes: B batch, T positions, L attention modules, H heads of a module, D head width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from ...modeling.heads.losses import IGNORE
from .inspected_model import AttentionLayer, Batch, evaluating, find_attention, hooked

Measure = Callable[[Any, Any, Batch], Tensor]
"""Compares a model's outputs on a batch, whole and without a head: a number."""


@contextmanager
def ablate_heads(model: PreTrainedModel, heads: Mapping[int, Iterable[int]]) -> Iterator[None]:
    """Remove heads from a model, as a context.

    Equal to a model whose output projections have zeros in the slices of these heads. Works with every
    attention kernel, padded, packed and with a cache, in training and in evaluation.

    Args:
        model: The model; its weights do not change.
        heads: Number of an attention module in `find_attention(model)` -> numbers of its heads, from 0.
    """
    layers = find_attention(model)
    if wrong := [number for number in heads if number not in range(len(layers))]:
        raise ValueError(f"attention module {wrong[0]} is to be ablated, but there are {len(layers)}, from 0")
    removed = {number: require_heads(layers[number], chosen, number) for number, chosen in heads.items()}
    missed, ran = set(removed), []

    def hook_of(number: int) -> Callable[..., tuple[Tensor, ...]]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            missed.discard(number)
            x = arguments[0].unflatten(-1, (layers[number].num_heads, -1))
            return (x.masked_fill(removed[number].to(x.device)[:, None], 0).flatten(-2), *arguments[1:])

        return hook

    hooks = [layers[number].output.register_forward_pre_hook(hook_of(number)) for number in removed]
    with hooked(*hooks, model.register_forward_hook(lambda *_: ran.append(True))):
        yield
    if ran and missed:
        raise ValueError(
            f"{type(model).__name__} computed without calling {layers[min(missed)].name} or its output "
            "projection as a module, so that its heads were not removed: choose another attn_implementation"
        )


def require_heads(layer: AttentionLayer, chosen: Iterable[int], number: int) -> Tensor:
    """Return which heads of a module are chosen, (H,), or raise a `ValueError` if it lacks one."""
    mask = torch.zeros(layer.num_heads, dtype=torch.bool)
    for head in chosen:
        if head not in range(layer.num_heads):
            raise ValueError(
                f"head {head} of attention module {number} is to be ablated, but {layer.name} has "
                f"{layer.num_heads}, from 0"
            )
        mask[head] = True
    return mask


def loss_increase(before: Any, after: Any, batch: Batch) -> Tensor:
    """Return by how much the loss has risen, in nats per target."""
    if getattr(before, "loss", None) is None:
        raise ValueError("the model returned no loss: give batches with `labels`, or measure by `divergence`")
    return after.loss - before.loss


def divergence(before: Any, after: Any, batch: Batch) -> Tensor:
    """Return how far predictions have moved: the mean of KL(before || after) over tokens, in nats.

    It needs no labels, and serves every model with logits of several classes: of tokens, or of texts.
    """
    if getattr(before, "logits", None) is None or before.logits.shape[-1] < 2:
        raise ValueError(
            "the model gives no logits of several classes, which are compared here: choose a model with a "
            "head that predicts tokens or labels, or measure by a function of your own"
        )
    was, now = (outputs.logits.float().log_softmax(dim=-1) for outputs in (before, after))
    apart = F.kl_div(now, was, log_target=True, reduction="none").sum(dim=-1)  # (B, T), or (B,)
    return apart[real_tokens(batch, apart.shape).to(apart.device)].mean()


def real_tokens(batch: Batch, size: Sequence[int]) -> Tensor:
    """Return which positions of predictions of `size` (B, T) are no pads, as the batch's masks of tokens say.

    Where a target has no mask, its labels say it, since collators of transformers ignore pads.
    """
    mask = batch.get("attention_mask")
    if "decoder_input_ids" in batch:
        mask = batch.get("decoder_attention_mask")
        if mask is None and batch.get("labels") is not None:
            mask = batch["labels"] != IGNORE
    if mask is None or mask.shape != (*size,):
        return torch.ones(*size, dtype=torch.bool)
    return mask.bool()


@torch.no_grad()
def ablation_effects(
    model: PreTrainedModel, batches: Iterable[Batch], measure: Measure = loss_increase
) -> list[Tensor]:
    """Remove each head in turn, and measure what that changes.

    Args:
        measure: Compares outputs with and without the head: `loss_increase`, `divergence`, or your own.

    Returns:
        For each attention module the mean over batches for each head, (H,).
    """
    layers, known = find_attention(model), list(batches)
    effects = [torch.zeros(layer.num_heads) for layer in layers]
    with evaluating(model):
        for batch in known:
            before = model(**batch)
            for number, layer in enumerate(layers):
                for head in range(layer.num_heads):
                    with ablate_heads(model, {number: [head]}):
                        effects[number][head] += float(measure(before, model(**batch), batch)) / len(known)
    return effects
