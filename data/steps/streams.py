"""From sequences of token ids to what a model reads: one stream of tokens, or an encoder's and a decoder's.

Legend: N packed tokens (of the encoder), M packed tokens of the decoder, S sequences.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .examples import gather, has_field
from .objective import Batch, Example
from .packing import Packed, pack


def one_stream(sequences: Sequence[np.ndarray]) -> Batch:
    """Pack sequences for an encoder or a decoder."""
    packed = pack(sequences)
    return {
        "input_ids": packed.input_ids,
        "position_ids": packed.position_ids,
        **boundaries_of(packed, "q"),
        **boundaries_of(packed, "k"),
    }


def two_streams(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], decoder_start_id: int) -> Batch:
    """Pack sources for the encoder and targets for the decoder, which reads each target one step late.

    `decoder_input_ids` (1, M) begin every sequence with `decoder_start_id` and repeat `labels` (1, M) but the
    last. This is teacher forcing (Williams and Zipser, 1989): the decoder reads the labels, not what it
    predicted.
    """
    labels = pack(targets)
    read = labels._replace(input_ids=one_step_late(labels, decoder_start_id))
    return side_by_side(pack(sources), read) | {"labels": labels.input_ids}


def fields_of(examples: Sequence[Example], *, along: Sequence[str] = (), single: Sequence[str] = ()) -> Batch:
    """Gather what examples have of some fields.

    Args:
        along: Fields with a value for each token: streams like the ids, (1, N).
        single: Fields with a value for each example, (S,).
    """
    found = (name for name in (*along, *single) if has_field(examples, name))
    values = {name: torch.from_numpy(gather(examples, name).values) for name in found}
    return {name: value[None] if name in along else value for name, value in values.items()}


def side_by_side(encoder: Packed, decoder: Packed) -> Batch:
    """Name what the encoder reads, (1, N), and what the decoder reads, (1, M)."""
    return {
        "input_ids": encoder.input_ids,
        "position_ids": encoder.position_ids,
        "decoder_input_ids": decoder.input_ids,
        "decoder_position_ids": decoder.position_ids,
        **boundaries_of(decoder, "q"),
        **boundaries_of(encoder, "k"),
    }


def one_step_late(packed: Packed, start_id: int) -> Tensor:
    """Shift each packed sequence one position to the right, behind `start_id`: (1, M) to (1, M)."""
    late = packed.input_ids.roll(1, dims=1)
    late[0, packed.cu_seq_lens[:-1]] = start_id
    return late


def boundaries_of(packed: Packed, side: str) -> Batch:
    """Name the boundaries as transformers' attention does, for queries (`q`) or keys (`k`)."""
    return {f"cu_seq_lens_{side}": packed.cu_seq_lens, f"max_length_{side}": packed.max_length}


def in_rows(values: Tensor, bounds: Tensor, longest: int, fill: float) -> Tensor:
    """Lay groups that follow each other between `bounds` (S + 1,) below each other: (N, ...) to (S, T, ...).

    A group of nothing has something in its first place, so that all rows have a softmax.
    """
    places = torch.arange(longest, device=values.device)
    is_inside = places < bounds.diff()[:, None].clamp(min=1)
    found = (bounds[:-1, None] + places).clamp(max=len(values) - 1)
    rows = values.index_select(0, found.flatten()).unflatten(0, found.shape)
    return rows.masked_fill(~is_inside.view(*is_inside.shape, *[1] * (rows.dim() - 2)), fill)
