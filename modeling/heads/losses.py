"""What a label may be, and the vocabulary's loss, which never holds all logits.

A label is an integer of any width: `IGNORE` where there is no target, else a class from 0 on.
Nothing else is silently learned or ignored: tensors count negative indices from the end, so that a stray -1
would teach the last word. On a CPU a wrong label is a `ValueError`. Other devices would have to wait for the
check: there it becomes an index behind the last class, at which their kernels stop.

Only targets reach the vocabulary (15 % of the tokens in masked language modeling), in chunks whose gradients
are computed at once (as in Liger kernels, Hsu et al., 2024), so that memory is one chunk of logits
instead of all of them.

Shapes: B batch, T positions, N tokens, C model width, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, TypedDict, Unpack, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.utils import logging

from ..compatibility import is_tracing
from ..layers.position_wise import is_plain
from ..sequences import Sequences

IGNORE = -100
"""Label of a position that is not a target, as in `torch.nn.functional.cross_entropy`."""


def without_pads(labels: Tensor, sequences: Sequences) -> Tensor:
    """Ignore labels (B, T) at the pads of a mask: they become `IGNORE`.

    Training packs a batch without its pads, so that nothing is known of them, and evaluation would measure
    what training has not learned. A mask of pairs tells no pads.
    """
    if (is_pad := sequences.is_pad) is None:
        return labels
    require_size(labels, sequences.size)
    return labels.masked_fill(is_pad, IGNORE)


def require_size(labels: Tensor, size: torch.Size, instead: str = "") -> None:
    """Raise a `ValueError` unless labels have the size of what they are for; `instead` is another remedy."""
    if labels.shape != size and not is_tracing():
        raise ValueError(f"labels have the size {(*labels.shape,)}: give {(*size,)}{instead}")


def checked_labels(labels: Tensor, num_classes: int | None, name: str = "labels") -> Tensor:
    """Return labels of any shape as int64, once they are known to be `IGNORE` or in [0, num_classes).

    Their values are looked at on the CPU alone.
    """
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"{name} are {labels.dtype}: give integers, {IGNORE} at positions without a target, "
            "or set problem_type if they are numbers"
        )
    labels = labels.long()
    is_wrong = (labels < 0) & (labels != IGNORE)
    if num_classes is not None:
        is_wrong |= labels >= num_classes
    if labels.is_cpu and not is_tracing():
        if is_wrong.any():
            raise ValueError(
                f"{name} hold {labels[is_wrong][0].item()}: give {IGNORE} at positions without a target, and "
                "else " + ("0 or more" if num_classes is None else f"0 to {num_classes - 1}")
            )
        return labels
    return labels.masked_fill(is_wrong, torch.iinfo(torch.int32).max)


def behind_start(labels: Tensor, config: PreTrainedConfig, is_first: Tensor | None = None) -> Tensor:
    """Shift labels (B, T) right, behind the start token: a decoder's input in training.

    `is_first`, broadcasting to (B, T), is true at other labels, too, before which the start token stands.
    """
    if config.decoder_start_token_id is None or config.pad_token_id is None:
        raise ValueError(
            "decoder_start_token_id or pad_token_id is None: set both in the configuration, "
            "or pass decoder_input_ids"
        )
    labels = checked_labels(labels, config.vocab_size)
    shifted = F.pad(labels, (1, 0), value=config.decoder_start_token_id)[:, :-1]
    if is_first is not None:
        shifted = shifted.masked_fill(is_first, config.decoder_start_token_id)
    return shifted.masked_fill(shifted == IGNORE, config.pad_token_id)


def checked_shares(labels: Tensor) -> Tensor:
    """Return labels that say of each class whether it holds, once they are known to be in [0, 1].

    Elsewhere than on the CPU, a label that is not becomes nan, and the loss with it.
    """
    is_wrong = ~((labels >= 0) & (labels <= 1))
    if labels.is_cpu and not is_tracing():
        if is_wrong.any():
            raise ValueError(
                f"labels hold {labels[is_wrong][0].item()}: in multi-label classification each is "
                "1 (holds), 0 (does not), or a share between them"
            )
        return labels
    return labels.masked_fill(is_wrong, torch.nan) if labels.is_floating_point() else labels


def next_tokens(labels: Tensor, sequences: Sequences) -> Tensor:
    """Target of each position: the label after it (B, T), unless that is a pad or begins another sequence."""
    return F.pad(predicted_tokens(labels, sequences), (0, 1), value=IGNORE)[..., 1:]


def select_targets(targets: Tensor | None, positions: Tensor | None) -> Tensor | None:
    """Select the targets (B, T) at positions (n,) of the flattened batch, as (1, n); `None`: all are kept."""
    return targets if targets is None or positions is None else targets.flatten()[positions][None]


def predicted_tokens(labels: Tensor, sequences: Sequences) -> Tensor:
    """Ignore labels (B, T) that no token of their sequence precedes, and those of pads."""
    require_size(labels, sequences.size)
    return without_pads(labels, sequences).masked_fill(sequences.is_first, IGNORE)


def find_target(
    find: Callable[..., Sequences],
    labels: Tensor,
    read: Tensor | None,
    attention_mask: Any,
    position_ids: Tensor | None,
    arguments: Mapping[str, Any],
    cache: Cache | None,
) -> tuple[Sequences, Any]:
    """Find the sequences of a target that has labels (B, T), and return them with its mask.

    A decoder reads ids or vectors, or else the labels, shifted (`None`). If then nothing tells where texts
    begin, the leading `IGNORE` of a row, which pads on the left are, is hidden, unless the row has no label.
    Graphs and transformed passes, which look at no value, need a mask.
    """
    told = attention_mask, position_ids, arguments.get("cu_seq_lens_q")
    is_told = read is not None or any(each is not None for each in told)
    if not (is_told or is_tracing() or labels.is_meta):
        is_text = (labels != IGNORE).cumsum(-1) > 0
        is_text |= ~is_text[:, -1:]
        attention_mask = None if is_text.all() else is_text.long()
    tokens = labels if read is None else read
    told = tokens, attention_mask, position_ids, arguments, cache
    return find(*told), attention_mask


logger = logging.get_logger(__name__)

CHUNK_BYTES = {"cpu": 2**26}
"""Logits held at a time, in bytes, by the type of the device."""

LARGE_CHUNK_BYTES = 2**28
"""The same on other devices, which need larger products to be busy."""

LARGE_CHUNK_ROWS = 4096
"""Up to so many rows a chunk may have twice as many bytes: the weight's gradient is added up less often."""

WHOLE_TILE = 64
"""Of the vocabulary: a GPU multiplies matrices whose sides are multiples of it fastest."""

BYTES_WITH_Z_LOSS = 6
"""Bytes that a logit of 16 bits counts in a chunk with a z-loss, whose softmax is float32's."""

NUMBERS_PER_BLOCK = 2**19
"""Numbers of a gradient that are added at a time."""


class LossArguments(TypedDict, total=False):
    """Keywords that heads take besides `labels`, among those that they pass on.

    They stand in no signature, because Trainer takes every argument with "label" in its name for a label.

    Args:
        reduction: "mean" over the targets, or their "sum", as in `torch.nn.functional.cross_entropy`.
        num_items_in_batch: Divide the sum by this number instead: the targets of all accumulated batches.
        label_smoothing: Probability mass spread evenly over the whole vocabulary, the true word included
            (Szegedy et al., 2016, section 7); the smoothed target sums to 1.
        z_loss: Weight of an additional loss for each target, the square of log Z, where Z is the sum of the
            exponentials of all logits (1e-4 in PaLM; Chowdhery et al., 2022, section 5). It keeps logits from
            drifting, and is no part of a likelihood.
    """

    reduction: Literal["mean", "sum"]
    num_items_in_batch: Tensor | int | None
    label_smoothing: float
    z_loss: float


LOSS_KEYWORDS = tuple(LossArguments.__annotations__)
"""Their names."""


def take_loss_arguments(arguments: dict[str, Any]) -> LossArguments:
    """Take the loss's keywords out of `arguments`, which keeps what is meant for others."""
    taken = {name: arguments.pop(name) for name in LOSS_KEYWORDS if name in arguments}
    return cast(LossArguments, taken)


def lm_head_loss(
    hidden_states: Tensor,
    labels: Tensor,
    transform: nn.Module,
    head: nn.Module,
    *,
    is_selected: bool = False,
    chunk: "LossChunk | None" = None,
    **loss_arguments: Unpack[LossArguments],
) -> Tensor:
    """Cross-entropy of `labels` (B, T) under `head(transform(hidden_states))`, computed at targets only.

    A head that is not a plain linear layer (wrapped by PEFT, quantized) is called, and its logits held. If
    targets are selected already, all positions are computed, so that no size depends on the data. `chunk` is
    the caller's, who may have compiled it.
    """
    require_size(labels, hidden_states.shape[:-1])
    is_target = labels != IGNORE
    settings = loss_arguments.get("label_smoothing", 0.0), loss_arguments.get("z_loss", 0.0)
    if is_selected:
        hidden_states, labels = transform(hidden_states.flatten(0, 1)), labels.flatten()
    else:
        hidden_states, labels = transform(hidden_states[is_target]), labels[is_target]
    if is_plain(head):
        linear = head.weight, head.bias
        total = linear_cross_entropy(
            hidden_states, *linear, labels, *settings, has_gaps=is_selected, chunk=chunk
        )
    else:
        logger.warning_once(
            f"the LM head is a {type(head).__name__}: the logits of all targets are held in memory at once"
        )
        total = cross_entropy_sum(head(hidden_states), labels, *settings)
    return reduce_loss(total, is_target.sum(), loss_arguments)


def logits_loss(logits: Tensor, labels: Tensor, **loss_arguments: Unpack[LossArguments]) -> Tensor:
    """The definition: cross-entropy of `labels` (...) under logits (..., V) that are there anyway."""
    settings = loss_arguments.get("label_smoothing", 0.0), loss_arguments.get("z_loss", 0.0)
    total = cross_entropy_sum(logits, labels, *settings)
    return reduce_loss(total, (labels != IGNORE).sum(), loss_arguments)


def reduce_loss(total: Tensor, num_targets: Tensor, loss_arguments: LossArguments) -> Tensor:
    """Divide a sum over targets by their number, if so chosen; a batch without targets has loss 0."""
    if (num_items := loss_arguments.get("num_items_in_batch")) is not None:
        return total / num_items
    return total if loss_arguments.get("reduction") == "sum" else total / num_targets.clamp(min=1)


def require_plain_loss(problem: str, loss_arguments: LossArguments) -> None:
    """Raise a `ValueError` if a loss over several labels is to be changed where there are not several."""
    for name in ("label_smoothing", "z_loss"):
        if value := loss_arguments.get(name):
            raise ValueError(f"{name} is {value}, but {problem} is not one of several labels: leave it at 0")


def cross_entropy_sum(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> Tensor:
    """Sum of the cross-entropies of `labels` (...) under `logits` (..., V), in float32."""
    require_size(labels, logits.shape[:-1])
    logits = at_least_float32(logits.flatten(0, -2))
    labels = checked_labels(labels, logits.shape[-1]).flatten()
    total = F.cross_entropy(
        logits, labels, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing
    )
    if z_loss:
        log_z = logits.logsumexp(dim=-1).masked_fill(labels == IGNORE, 0)
        total = total + z_loss * log_z.square().sum()
    return total


def at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def linear_cross_entropy(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    *,
    has_gaps: bool = False,
    chunk: "LossChunk | None" = None,
) -> Tensor:
    """Sum of the cross-entropies of `labels` (N,) under the logits of a linear layer, chunk by chunk.

    Equals `cross_entropy_sum(F.linear(hidden_states, weight, bias), labels)` in value and gradients.
    Matrices are multiplied in the autocast type where autocast is on, and the softmax is of that type, too
    (float32 instead of float16); losses are float32.

    Args:
        hidden_states: (N, C).
        weight: (V, C).
        bias: (V,), or none.
        labels: (N,), none of them `IGNORE`, unless there are gaps.
        label_smoothing: Mass that is spread over the vocabulary.
        z_loss: Weight of the squares of log Z; see `LossArguments`. The softmax is float32's then, because
            the factors of so small a weight are nothing to a probability in 16 bits.
        has_gaps: Whether some labels may be `IGNORE`, where there is no target.
        chunk: Computes a chunk; by default, one that is not compiled.
    """
    labels = checked_labels(labels, len(weight))
    device = hidden_states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    settings = (label_smoothing, z_loss, dtype, has_gaps, chunk or LossChunk())
    return _LinearCrossEntropy.apply(hidden_states, weight, bias, labels, *settings)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        label_smoothing: float,
        z_loss: float,
        dtype: torch.dtype,
        has_gaps: bool,
        chunk: "LossChunk",
    ) -> Tensor:
        with torch.autocast(hidden_states.device.type, enabled=False):
            d_hidden = torch.empty_like(hidden_states)
            d_weight, d_bias, losses = None, None, []
            cast_weight, cast_bias = weight.to(dtype), None if bias is None else bias.to(dtype)
            if not weight.is_cpu:
                cast_weight = whole_tiles(cast_weight)
                cast_bias = None if cast_bias is None else whole_tiles(cast_bias)
            bytes_per_logit = dtype.itemsize if not z_loss else max(dtype.itemsize, BYTES_WITH_Z_LOSS)
            for rows in _chunks(len(labels), len(weight) * bytes_per_logit, hidden_states.device):
                streams = hidden_states[rows], cast_weight, cast_bias, labels[rows]
                loss, d_hidden[rows], of_weight, of_bias = chunk.forward(
                    *streams, label_smoothing, z_loss, has_gaps=has_gaps, num_classes=len(weight)
                )
                losses.append(loss)
                d_weight = _accumulated(d_weight, of_weight)
                d_bias = None if of_bias is None else _accumulated(d_bias, of_bias)
        assert d_weight is not None
        d_weight = d_weight.T if weight.is_cpu else d_weight[: len(weight)]
        ctx.save_for_backward(d_hidden, d_weight, None if d_bias is None else d_bias[: len(weight)])
        ctx.dtype = weight.dtype
        return torch.stack(losses).sum()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        of_weight = torch.empty_like(d_weight, dtype=ctx.dtype, memory_format=torch.contiguous_format)
        torch.mul(d_weight, gradient, out=of_weight)
        of_bias = None if d_bias is None else (d_bias * gradient).to(ctx.dtype)
        return d_hidden * gradient, of_weight, of_bias, *[None] * 6


class LossChunk(nn.Module):
    """The loss of a chunk of targets, with its gradients: a module, to be compiled with the layers.

    Its `forward` is called by name: hooks of all modules expect gradients, and here are none.
    """

    is_compiled_with_layers = True

    def forward(
        self,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        label_smoothing: float,
        z_loss: float,
        *,
        has_gaps: bool,
        num_classes: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Sum the loss of labels (n,), and find the gradients of states (n, C), weight and bias.

        Rows of the weight from `num_classes` on are no classes. The weight's gradient is (V, C), but
        transposed on a CPU, which multiplies the long side faster as columns than as rows.
        """
        states = states.to(weight.dtype)
        logits = F.linear(states, weight, bias)[:, :num_classes]
        if is_tracing():
            loss, d_logits = _fused_gradient(logits, labels, label_smoothing, z_loss, len(weight))
        else:
            is_gap = labels == IGNORE
            classes = labels.masked_fill(is_gap, 0) if has_gaps else labels
            loss, d_logits = _softmax_gradient(logits, classes, label_smoothing, z_loss)
            if has_gaps:
                loss, d_logits = loss.masked_fill(is_gap, 0), d_logits.masked_fill_(is_gap[:, None], 0)
            if num_classes < len(weight):
                d_logits = F.pad(d_logits, (0, len(weight) - num_classes))
        of_weight = states.T @ d_logits if states.is_cpu else d_logits.T @ states
        return loss.sum(), d_logits @ weight, of_weight, None if bias is None else d_logits.sum(0)


def whole_tiles(weight: Tensor) -> Tensor:
    """Fill a head's weight (V, C) or bias (V,) with zeros up to a multiple of `WHOLE_TILE` rows.

    Of a vocabulary of any other size, a GPU's products are several times slower (GPT-2's 50,257 words).
    """
    if len(weight) % WHOLE_TILE == 0:
        return weight
    return F.pad(weight, (*[0, 0] * (weight.dim() - 1), 0, -len(weight) % WHOLE_TILE))


def _chunks(num_rows: int, bytes_per_row: int, device: torch.device) -> Iterator[slice]:
    """Cut rows into one or more chunks of nearly equal size that keep the device's limit.

    Elsewhere than on a CPU, they are of equal size if up to twice as many can be: one graph serves them.
    """
    num_chunks = max(-(-num_rows // rows_per_chunk(bytes_per_row, device.type)), 1)
    if device.type != "cpu":
        numbers = range(num_chunks, 2 * num_chunks)
        num_chunks = next((number for number in numbers if num_rows % number == 0), num_chunks)
    edges = [num_rows * number // num_chunks for number in range(num_chunks + 1)]
    return (slice(start, stop) for start, stop in pairwise(edges))


def rows_per_chunk(bytes_per_row: int, device: str) -> int:
    """Return how many rows of logits, of so many bytes each, a type of device holds at a time at most."""
    rows = max(1, CHUNK_BYTES.get(device, LARGE_CHUNK_BYTES) // bytes_per_row)
    return rows if device == "cpu" else max(rows, min(2 * rows, LARGE_CHUNK_ROWS))


def _accumulated(total: Tensor | None, part: Tensor) -> Tensor:
    """Add `part` to `total`, in float32, or begin with it.

    On a CPU it goes by blocks: torch converts operands as a whole, and blocks stay in the cache.
    """
    if total is None:
        return at_least_float32(part)
    rows = max(NUMBERS_PER_BLOCK // total[0].numel(), 1) if total.is_cpu else len(total)
    for block, of_part in zip(total.split(rows), part.split(rows), strict=True):
        block += of_part
    return total


def _softmax_gradient(
    logits: Tensor, labels: Tensor, label_smoothing: float, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Cross-entropies (N,) of `logits` (N, V) in float32; and their gradients, in the logits' type."""
    given, rows = logits.dtype, torch.arange(len(labels), device=labels.device)
    # The range of float16 ends where the probabilities of most words begin; a z-loss needs its digits.
    if given == torch.float16 or z_loss:
        logits = at_least_float32(logits)
    probabilities = logits.softmax(dim=-1)
    of_label = at_least_float32(probabilities[rows, labels])
    # Rounded, a probability near one would leave nothing to learn: what is missing is summed up instead.
    probabilities[rows, labels] = 0
    missing = at_least_float32(probabilities.sum(-1))
    loss = torch.where(of_label > 0.5, -torch.log1p(-missing), -of_label.log())
    is_lost = of_label < torch.finfo(logits.dtype).tiny
    if not logits.is_cpu or is_lost.any():  # only on a CPU is this known without waiting
        loss = torch.where(is_lost, _distance_to_likeliest(logits, probabilities, rows, labels), loss)
    d_label = -missing
    if z_loss:
        log_z = loss + logits[rows, labels]
        loss = loss + z_loss * log_z.square()
        slope = 2 * z_loss * log_z
        probabilities *= (1 + slope)[:, None]
        d_label = d_label + slope * of_label
    if label_smoothing:
        loss += label_smoothing * (logits[rows, labels] - logits.mean(dim=-1, dtype=loss.dtype))
        d_label += label_smoothing * (1 - 1 / logits.shape[1])
        probabilities -= label_smoothing / logits.shape[1]
    probabilities[rows, labels] = d_label.to(logits.dtype)
    return loss, probabilities.to(given)


def _fused_gradient(
    logits: Tensor, labels: Tensor, label_smoothing: float, z_loss: float, width: int
) -> tuple[Tensor, Tensor]:
    """Do the same as a compiler joins it to two passes over the logits; what lies between is float32.

    Labels may be `IGNORE`, whose losses and gradients are 0. These have `width` columns, zeros behind the
    classes. The passes do little with a logit, which would take longer than to read it: no label is looked
    for, and no logarithm is taken anew.
    """
    x, num_classes = at_least_float32(logits), logits.shape[1]
    is_gap = labels == IGNORE
    is_known = labels < num_classes  # other labels would only show in a kernel that looks them up
    classes = labels.clamp(0, num_classes - 1)[:, None]
    largest = x.amax(-1, keepdim=True)
    log_sum = (x - largest).exp().sum(-1).log().where(is_known, torch.nan)
    of_label, largest = x.gather(1, classes).squeeze(1), largest.squeeze(1)
    log_z = log_sum + largest
    loss = log_sum + (largest - of_label)  # less rounded than log_z - of_label, as is what follows
    d_label = torch.expm1(-loss)
    gradient = (x - realized(log_z)[:, None]).exp()
    if z_loss:
        slope = 2 * z_loss * log_z
        loss, d_label = loss + z_loss * log_z.square(), d_label + slope * (1 + d_label)
        gradient = gradient * (1 + slope)[:, None]
    if label_smoothing:
        spread = label_smoothing / num_classes
        loss = loss + label_smoothing * (of_label - x.mean(-1))
        gradient, d_label = gradient - spread, d_label + label_smoothing - spread
    gradient = gradient.masked_fill(is_gap[:, None], 0).to(logits.dtype)
    d_label = d_label.masked_fill(is_gap, 0).to(logits.dtype)
    gradient = F.pad(gradient, (0, width - num_classes)).scatter(1, classes, d_label[:, None])
    return loss.masked_fill(is_gap, 0), gradient


def realized(x: Tensor) -> Tensor:
    """Let a compiler write a tensor down, instead of computing it again for each number that needs it."""
    return x.as_strided(x.shape, x.stride())


def _distance_to_likeliest(logits: Tensor, probabilities: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropies (N,) of labels that have no probability left: their distance to a word that has."""
    largest, of_largest = (at_least_float32(x.amax(-1)) for x in (logits, probabilities))
    return largest - of_largest.log() - logits[rows, labels]
