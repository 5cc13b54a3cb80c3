"""What a label may be, in every head, in training as in evaluation.

A label is an integer of any width: `IGNORE` where there is no target, else a class from 0 on.
Nothing else is silently learned or ignored: tensors count negative indices from the end, so that a stray -1
would teach the last word. On a CPU a wrong label is a `ValueError`. Other devices would have to wait for the
check: there it becomes an index behind the last class, at which their kernels stop.
"""

from typing import TypeGuard

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedConfig

from ..attention.packing import Masks, is_padding_mask, positions_in, positions_of
from ..tracing import is_tracing

IGNORE = -100
"""Label of a position that is not a target, as in `torch.nn.functional.cross_entropy`."""


def without_pads(labels: Tensor, attention_mask: object) -> Tensor:
    """Ignore labels (B, T) at the pads of a mask (B, T), or (B, past + T): they become `IGNORE`.

    Training packs a batch without its pads, so that nothing is known of them, and evaluation would measure
    what training has not learned. A mask of another form, made for a kernel, tells no pads.
    """
    if not tells_pads(attention_mask, labels):
        return labels
    return labels.masked_fill(attention_mask[:, -labels.shape[1] :] == 0, IGNORE)


def tells_pads(attention_mask: object, labels: Tensor) -> TypeGuard[Tensor]:
    """Return whether a mask is of the tokens that labels (B, T) are for, and maybe of a cache before them."""
    if not is_padding_mask(attention_mask) or len(attention_mask) != len(labels):
        return False
    return attention_mask.shape[1] >= labels.shape[1] > 0


def require_size(labels: Tensor, size: torch.Size, instead: str = "") -> None:
    """Raise a `ValueError` unless labels have the size of what they are for; `instead` is another remedy."""
    if labels.shape != size and not is_tracing():
        raise ValueError(f"labels have the size {(*labels.shape,)}: give {(*size,)}{instead}")


def checked_labels(labels: Tensor, num_classes: int | None, name: str = "labels") -> Tensor:
    """Return labels of any shape as int64, once they are known to be `IGNORE` or in [0, num_classes).

    Raises:
        ValueError: If they are no integers, or one of them is out of range (found on the CPU).
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


def behind_start(labels: Tensor, config: PreTrainedConfig) -> Tensor:
    """Shift labels (B, T) right, behind the start token: a decoder's input in training.

    Raises:
        ValueError: If the configuration names no token to start with, or a label is out of range.
    """
    if config.decoder_start_token_id is None or config.pad_token_id is None:
        raise ValueError(
            "decoder_start_token_id or pad_token_id is None: set both in the configuration, "
            "or pass decoder_input_ids"
        )
    labels = checked_labels(labels, config.vocab_size)
    start = torch.full_like(labels[:, :1], config.decoder_start_token_id)
    shifted = torch.cat((start, labels), dim=1)[:, :-1]
    return shifted.masked_fill(shifted == IGNORE, config.pad_token_id)


def checked_shares(labels: Tensor) -> Tensor:
    """Return labels that say of each class whether it holds, once they are known to be in [0, 1].

    Raises:
        ValueError: If one of them is not (found on the CPU; elsewhere it becomes nan, and the loss with it).
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


def next_tokens(
    labels: Tensor,
    attention_mask: Tensor | Masks | None,
    position_ids: Tensor | None,
    cu_seq_lens: Tensor | None,
) -> Tensor:
    """Target of each position: the label after it (B, T), unless that is a pad or begins another sequence."""
    targets = predicted_tokens(labels, attention_mask, position_ids, cu_seq_lens)
    return F.pad(targets, (0, 1), value=IGNORE)[..., 1:]


def select_targets(targets: Tensor | None, positions: Tensor | None) -> Tensor | None:
    """Select the targets (B, T) at positions (n,) of the flattened batch, as (1, n); `None`: all are kept."""
    return targets if targets is None or positions is None else targets.flatten()[positions][None]


def predicted_tokens(
    labels: Tensor,
    attention_mask: Tensor | Masks | None,
    position_ids: Tensor | None,
    cu_seq_lens: Tensor | None,
) -> Tensor:
    """Ignore labels (B, T) that no token of their sequence precedes, and those of pads."""
    if cu_seq_lens is not None:
        return labels.masked_fill(positions_of(cu_seq_lens, labels.shape[1]) == 0, IGNORE)
    if tells_pads(attention_mask, labels):
        is_inner = (attention_mask != 0) & (positions_in(attention_mask) > 0)
        return labels.masked_fill(~is_inner[:, -labels.shape[1] :], IGNORE)
    if position_ids is None:
        position_ids = torch.arange(labels.shape[1], device=labels.device)[None]
    return labels.masked_fill(position_ids == 0, IGNORE)
