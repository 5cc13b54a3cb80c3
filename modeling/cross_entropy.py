"""The vocabulary's loss, from hidden states at target positions, without ever holding all logits.

Only targets reach the vocabulary (15 % of the tokens in masked language modeling), in chunks whose gradients
are computed at once (the way of Liger kernels, Hsu et al., 2024), so that memory is one chunk of logits
instead of all of them.

Shapes: N tokens, C model width, V vocabulary.
"""

from typing import Any, Literal, TypedDict, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

IGNORE = -100
"""Label of a position that is not a target, as in `torch.nn.functional.cross_entropy`."""

LOGITS_PER_CHUNK = 2**23
"""Logits held at a time: 32 MiB in float32."""


class LossArguments(TypedDict, total=False):
    """Keywords that heads take besides `labels`, among those that they pass on.

    They stand in no signature, because Trainer takes every argument with "label" in its name for a label.

    Args:
        reduction: "mean" over the targets, or their "sum", as in `torch.nn.functional.cross_entropy`.
        num_items_in_batch: Divide the sum by this number instead: the targets of all accumulated batches.
        label_smoothing: Probability mass spread evenly over the whole vocabulary, the true word included
            (Szegedy et al., 2016, section 7); the smoothed target sums to 1.
    """

    reduction: Literal["mean", "sum"]
    num_items_in_batch: Tensor | int | None
    label_smoothing: float


def take_loss_arguments(arguments: dict[str, Any]) -> LossArguments:
    """Take the loss's keywords out of `arguments`, which keeps what is meant for others."""
    taken = {name: arguments.pop(name) for name in LossArguments.__annotations__ if name in arguments}
    return cast(LossArguments, taken)


def vocabulary_loss(
    hidden_states: Tensor,
    labels: Tensor,
    transform: nn.Module,
    head: nn.Module,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    num_items_in_batch: Tensor | int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of `labels` (B, T) under `head(transform(hidden_states))`, computed at targets only.

    A head that is not a plain linear layer (wrapped by PEFT, quantized) is called, and its logits held.
    """
    is_target = labels != IGNORE
    hidden_states, labels = transform(hidden_states[is_target]), labels[is_target]
    if type(head) is nn.Linear:
        total = linear_cross_entropy(hidden_states, head.weight, head.bias, labels, label_smoothing)
    else:
        total = cross_entropy_sum(head(hidden_states), labels, label_smoothing)
    return reduce_loss(total, is_target.sum(), reduction, num_items_in_batch)


def logits_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    num_items_in_batch: Tensor | int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The definition: cross-entropy of `labels` (...) under logits (..., V) that are there anyway."""
    total = cross_entropy_sum(logits, labels, label_smoothing)
    return reduce_loss(total, (labels != IGNORE).sum(), reduction, num_items_in_batch)


def reduce_loss(
    total: Tensor,
    num_targets: Tensor,
    reduction: Literal["mean", "sum"] = "mean",
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Divide a sum over targets as asked; a batch without targets has loss 0."""
    if num_items_in_batch is not None:
        return total / num_items_in_batch
    return total if reduction == "sum" else total / num_targets.clamp(min=1)


def cross_entropy_sum(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Sum of the cross-entropies of `labels` (...) under `logits` (..., V), in float32."""
    return F.cross_entropy(
        at_least_float32(logits.flatten(0, -2)),
        labels.flatten(),
        ignore_index=IGNORE,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def at_least_float32(x: Tensor) -> Tensor:
    """Raise half precision to float32; float64 stays."""
    return x if x.dtype == torch.float64 else x.float()


def linear_cross_entropy(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Sum of the cross-entropies of `labels` (N,) under the logits of a linear layer, chunk by chunk.

    Equals `cross_entropy_sum(F.linear(hidden_states, weight, bias), labels)` in value and gradients.
    Matrices are multiplied in the autocast type where autocast is on; the softmax is computed in float32.

    Args:
        hidden_states: (N, C).
        weight: (V, C).
        bias: (V,), or none.
        labels: (N,), none of them `IGNORE`.
        label_smoothing: Mass that is spread over the vocabulary.
    """
    device = hidden_states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    return _LinearCrossEntropy.apply(hidden_states, weight, bias, labels, label_smoothing, dtype)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        with torch.autocast(hidden_states.device.type, enabled=False):
            d_hidden = torch.empty_like(hidden_states)
            d_weight = torch.zeros_like(at_least_float32(weight))
            d_bias = None if bias is None else torch.zeros_like(at_least_float32(bias))
            total = d_weight.new_zeros(())
            cast_weight = weight.to(dtype)
            chunk = max(1, LOGITS_PER_CHUNK // len(weight))
            for start in range(0, len(labels), chunk):
                rows = slice(start, start + chunk)
                states = hidden_states[rows].to(dtype)
                logits = at_least_float32(F.linear(states, cast_weight))
                if bias is not None:
                    logits += bias
                total += _softmax_gradient_(logits, labels[rows], label_smoothing)
                d_logits = logits.to(dtype)
                d_hidden[rows] = d_logits @ cast_weight
                d_weight += d_logits.T @ states
                if d_bias is not None:
                    d_bias += logits.sum(0)
        gradients = (d_hidden, d_weight.to(weight.dtype), None if d_bias is None else d_bias.to(weight.dtype))
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        scaled = (
            None if part is None else part * gradient.to(part.dtype) for part in (d_hidden, d_weight, d_bias)
        )
        return *scaled, None, None, None


def _softmax_gradient_(logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    """Sum of the cross-entropies of `logits` (N, V), which become their gradient in place."""
    normalizer = logits.logsumexp(dim=-1, keepdim=True)  # (N, 1)
    of_label = logits.gather(1, labels[:, None])
    loss = normalizer - (1 - label_smoothing) * of_label
    if label_smoothing:
        loss -= label_smoothing * logits.mean(dim=-1, keepdim=True)
    logits.sub_(normalizer).exp_()
    logits.scatter_add_(1, labels[:, None], torch.full_like(of_label, label_smoothing - 1))
    if label_smoothing:
        logits -= label_smoothing / logits.shape[1]
    return loss.sum()
