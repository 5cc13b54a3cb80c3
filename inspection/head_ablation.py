"""What heads are good for: outputs without them, and how the loss reacts to each.

Removing a head means that the output projection reads zeros, or the head's mean, in its place. It is an
intervention, unlike an attention map, which shows where a head looks and not what that does (Jain and
Wallace, 2019). Two ways to measure all heads:

ablation     each head is removed in turn, and the predictions with and without it are compared: exact, with a
             forward pass for each head (Voita et al., 2019; Michel, Levy and Neubig, 2019, section 3)
importance   how steeply the loss changes with the size of each head: one backward pass for all heads, and a
             linear estimate of the former (Michel, Levy and Neubig, 2019, section 4.1)

Baselines: the same of `untrained(model)`, and means in the place of zeros. Zeros are what a model has never
read, and may do more harm than the head's absence; its mean is the least surprising constant.

Shapes: B batch, T positions, L attention modules, H heads of a module, D head width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..modeling.heads.losses import IGNORE
from .inspected_model import (
    AttentionLayer,
    Batch,
    evaluating,
    find_attention,
    hooked,
    on_heads,
    sequence_numbers,
    with_decoder_input,
)

Measure = Callable[[Any, Any, Batch], Tensor]
"""Compares a model's outputs on a batch, whole and without a head: a number."""


@contextmanager
def ablate_heads(
    model: PreTrainedModel, heads: Mapping[int, Iterable[int]], means: Sequence[Tensor] | None = None
) -> Iterator[None]:
    """Remove heads from a model, as a context.

    Equal to a model whose output projections have zeros in the slices of these heads. Works with every
    attention kernel, padded, packed and with a cache, in training and in evaluation.

    Args:
        model: The model; its weights do not change.
        heads: Number of an attention module in `find_attention(model)` -> numbers of its heads, from 0.
        means: What stands in their place, (H, D) for each module, as by `mean_heads`; zeros otherwise.

    Raises:
        ValueError: There is no such module or head; or the model was called, but not through the output
            projection of a module, so that its heads were not removed.
    """
    layers = find_attention(model)
    for number in heads:
        if number not in range(len(layers)):
            raise ValueError(
                f"attention module {number} is to be ablated, but there are {len(layers)}, from 0"
            )
    removed = {number: require_heads(layers[number], chosen, number) for number, chosen in heads.items()}
    missed = set(removed)

    def remove(place: int, x: Tensor) -> Tensor:
        number = numbers[place]
        missed.discard(number)
        constant = x.new_zeros(()) if means is None else means[number].to(x)
        return torch.where(removed[number].to(x.device)[:, None], constant, x)

    numbers, ran = list(removed), []
    with (
        on_heads([layers[number] for number in numbers], remove),
        hooked(model.register_forward_hook(lambda *_: ran.append(True))),
    ):
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


@torch.no_grad()
def mean_heads(model: PreTrainedModel, batches: Iterable[Batch]) -> list[Tensor]:
    """Return what each head gives on average over the tokens of batches, (H, D) for each attention module."""
    layers = find_attention(model)
    sums = [torch.zeros(layer.num_heads, layer.head_dim, dtype=torch.float64) for layer in layers]
    counts = [0] * len(layers)
    batch: Batch = {}

    def add(number: int, x: Tensor) -> None:
        tokens = x.double().cpu()[real_tokens(batch, x.shape[:2], layers[number]).cpu()]
        sums[number] += tokens.sum(dim=0)
        counts[number] += len(tokens)

    with evaluating(model), on_heads(layers, add):
        for given in batches:
            batch = with_decoder_input(model, given)  # which `add` reads
            model(**given)
    return [total / max(count, 1) for total, count in zip(sums, counts, strict=True)]


def real_tokens(batch: Batch, size: Sequence[int], layer: AttentionLayer | None = None) -> Tensor:
    """Return which positions of `size` (B, T) are no pads, as the batch's masks of tokens say.

    Where a target has no mask, its labels say it, since collators of transformers ignore pads.
    """
    of_target = "decoder_input_ids" in batch and (layer is None or layer.kind != "encoder")
    mask = batch.get("decoder_attention_mask" if of_target else "attention_mask")
    if of_target and mask is None and batch.get("labels") is not None:
        mask = batch["labels"] != IGNORE
    if mask is None or mask.shape != (*size,):
        return torch.ones(*size, dtype=torch.bool)
    return mask.bool()


def loss_increase(before: Any, after: Any, batch: Batch) -> Tensor:
    """Return by how much the loss has risen, in nats per target.

    Raises:
        ValueError: The batch has no labels.
    """
    return loss_of(after) - loss_of(before)


def loss_of(outputs: Any) -> Tensor:
    """Return the loss of a model's outputs, or raise a `ValueError` if there is none."""
    if getattr(outputs, "loss", None) is None:
        raise ValueError("the model returned no loss: give batches with `labels`, or measure by `divergence`")
    return outputs.loss


def divergence(before: Any, after: Any, batch: Batch) -> Tensor:
    """Return how far predictions have moved: the mean of KL(before || after) over tokens, in nats.

    It needs no labels, and serves every model with logits of several classes: of tokens, or of texts.

    Raises:
        ValueError: There are no such logits.
    """
    if getattr(before, "logits", None) is None or before.logits.shape[-1] < 2:
        raise ValueError(
            "the model gives no logits of several classes, which are compared here: choose a model with a "
            "head that predicts tokens or labels, or measure by a function of your own"
        )
    was, now = (outputs.logits.float().log_softmax(dim=-1) for outputs in (before, after))
    apart = F.kl_div(now, was, log_target=True, reduction="none").sum(dim=-1)  # (B, T), or (B,)
    return apart[real_tokens(batch, apart.shape).to(apart.device)].mean()


@torch.no_grad()
def ablation_effects(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    measure: Measure = loss_increase,
    means: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Remove each head in turn, and measure what that changes.

    Args:
        model: The model, which is evaluated.
        batches: What it reads, padded or packed.
        measure: Compares outputs with and without the head: `loss_increase`, `divergence`, or your own.
        means: As in `ablate_heads`.

    Returns:
        For each attention module the mean over batches for each head, (H,).
    """
    layers, known = find_attention(model), list(batches)
    effects = [torch.zeros(layer.num_heads) for layer in layers]
    with evaluating(model):
        for given in known:
            before, batch = model(**given), with_decoder_input(model, given)
            for number, layer in enumerate(layers):
                for head in range(layer.num_heads):
                    with ablate_heads(model, {number: [head]}, means):
                        effects[number][head] += float(measure(before, model(**given), batch)) / len(known)
    return effects


def head_importance(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    loss: Callable[[PreTrainedModel, Batch], Tensor] = lambda model, batch: loss_of(model(**batch)),
) -> list[Tensor]:
    """Estimate how much the loss depends on each head, by one backward pass for each batch.

    Each head of each sequence is multiplied by a gate of 1; the importance is the absolute gradient of the
    loss with respect to the gate, summed over sequences: E|dL/dg| of Michel, Levy and Neubig, 2019, equation
    2, in nats. Padded and packed batches give the same. The model is evaluated: nothing is dropped out.

    Returns:
        For each attention module the mean over batches for each head, (H,).
    """
    layers, known = find_attention(model), list(batches)
    importance = [torch.zeros(layer.num_heads) for layer in layers]
    for batch in known:
        gates: dict[int, Tensor] = {}

        def multiply(number: int, x: Tensor, gates: dict[int, Tensor] = gates) -> Tensor:
            gate = gates.setdefault(number, x.new_ones(*x.shape[:-1], 1, requires_grad=True))
            return x * gate

        with evaluating(model), torch.enable_grad(), on_heads(layers, multiply):
            of_loss = torch.autograd.grad(loss(model, batch), list(gates.values()), allow_unused=True)
        for number, gradient in zip(gates, of_loss, strict=True):
            if gradient is None:  # the loss does not depend on this module
                continue
            is_source = layers[number].kind == "encoder"
            numbers = sequence_numbers(batch, gradient.shape[:2], of_keys=is_source).to(gradient.device)
            sums = gradient.new_zeros(int(numbers.max()) + 1, gradient.shape[2])
            sums.index_add_(0, numbers.flatten(), gradient.flatten(0, 1)[..., 0])
            importance[number] += sums.abs().sum(dim=0).float().cpu() / len(known)
    return importance
