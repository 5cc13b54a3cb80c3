"""Packed batches: sequences end to end, without padding, and the boundaries between them.

The layout is transformers' flash-attention convention: token streams are `(1, N)`, `position_ids` restart at
0 in every sequence, and the cumulative lengths say where each begins and ends. A sequence-to-sequence batch
has two streams: the decoder's (queries of cross-attention, boundaries `cu_seq_lens_q`; every name that starts
with `decoder_`, and `labels`) and the encoder's (keys, `cu_seq_lens_k`; all other names). Elsewhere both
boundaries are the same. Tensors of one dimension have one entry per sequence.

Legend: N packed tokens of one stream, S sequences.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .objective import Batch


class Packed(NamedTuple):
    """Sequences end to end."""

    input_ids: Tensor
    """The tokens, (1, N), 64-bit."""
    position_ids: Tensor
    """Each token's place in its own sequence, (1, N), 64-bit."""
    cu_seq_lens: Tensor
    """Where each sequence begins, and at last N: (S + 1,), 32-bit."""
    max_length: int
    """Tokens of the longest sequence."""


def pack(sequences: Sequence[np.ndarray]) -> Packed:
    """Lay 1-D arrays of token ids end to end."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    tokens = np.concatenate(sequences).astype(np.int64, copy=False)
    return Packed(
        torch.from_numpy(tokens)[None],
        torch.from_numpy(restarting_positions(lengths))[None],
        torch.from_numpy(boundaries(lengths).astype(np.int32)),
        int(lengths.max()),
    )


def boundaries(lengths: np.ndarray) -> np.ndarray:
    """Cumulate lengths (S,) into boundaries (S + 1,) that begin at 0."""
    return np.concatenate(([0], np.cumsum(lengths)))


def restarting_positions(lengths: np.ndarray) -> np.ndarray:
    """Count from 0 in every sequence: lengths (S,) into positions (N,)."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(starts, lengths)


def sequence_lengths(batch: Batch) -> np.ndarray:
    """Count the tokens of every packed sequence (S,), over both streams where there are two."""
    lengths = np.diff(_boundaries_of(batch, "k"))
    return lengths + np.diff(_boundaries_of(batch, "q")) if "decoder_input_ids" in batch else lengths


def select_sequences(batch: Batch, chosen: np.ndarray) -> Batch:
    """Copy the sequences whose numbers are `chosen` out of a packed batch, in that order."""
    selected: Batch = {}
    for name, value in batch.items():
        if name.startswith("cu_seq_lens_"):
            lengths = np.diff(_boundaries_of(batch, name[-1]))[chosen]
            selected[name] = torch.from_numpy(boundaries(lengths).astype(np.int32))
            selected[f"max_length_{name[-1]}"] = int(lengths.max(initial=0))
        elif isinstance(value, Tensor) and value.dim() == 1:
            selected[name] = value[torch.from_numpy(chosen)]
        elif isinstance(value, Tensor):
            edges = _boundaries_of(batch, _stream_of(name))
            lengths = np.diff(edges)[chosen]
            positions = np.repeat(edges[:-1][chosen], lengths) + restarting_positions(lengths)
            selected[name] = value[:, torch.from_numpy(positions)]
    return selected


def slice_sequences(batch: Batch, first: int, last: int) -> Batch:
    """View the sequences numbered from `first` up to `last` (excluded); token streams are not copied."""
    sliced: Batch = {}
    for name, value in batch.items():
        if not isinstance(value, Tensor):
            continue
        if name.startswith("cu_seq_lens_"):
            edges = value[first : last + 1]
            sliced[name] = edges - edges[0]
            sliced[f"max_length_{name[-1]}"] = int(edges.diff().max())
        elif value.dim() == 1:
            sliced[name] = value[first:last]
        else:
            edges = _boundaries_of(batch, _stream_of(name))
            sliced[name] = value[:, edges[first] : edges[last]]
    return sliced


def _stream_of(name: str) -> str:
    """Tell which boundaries a token stream follows: `q`, the decoder's, or `k`, the encoder's."""
    return "q" if name == "labels" or name.startswith("decoder_") else "k"


def _boundaries_of(batch: Batch, stream: str) -> np.ndarray:
    edges = batch[f"cu_seq_lens_{stream}"]
    assert isinstance(edges, Tensor)
    return edges.numpy().astype(np.int64)
