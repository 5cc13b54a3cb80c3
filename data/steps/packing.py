"""Packed batches: sequences end to end, without padding, and the boundaries between them.

The layout is transformers' flash-attention convention: token streams are `(1, N)`, `position_ids` restart at
0 in every sequence, and the cumulative lengths say where each begins and ends. A sequence-to-sequence batch
has two streams: the decoder's (queries of cross-attention, boundaries `cu_seq_lens_q`; every name that starts
with `decoder_`, and `labels`) and the encoder's (keys, `cu_seq_lens_k`; all other names). Elsewhere both
boundaries are the same. Tensors of one dimension, or of three, have one entry per sequence.

Legend: N packed tokens of one stream, S sequences.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .objective import Batch


class Ragged(Sequence[np.ndarray]):
    """One-dimensional arrays of any lengths that lie end to end in memory already.

    Args:
        values: All of them (N,).
        lengths: Length of each (S,).
    """

    def __init__(self, values: np.ndarray, lengths: np.ndarray):
        self.values = values
        self.lengths = lengths

    @cached_property
    def edges(self) -> np.ndarray:
        """Return where each begins, and where the last one ends (S + 1,)."""
        return boundaries(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        """View one of them, or a slice of them as a list."""
        number = range(len(self))[index]
        if isinstance(number, range):
            return [self[idx] for idx in number]
        return self.values[self.edges[number] : self.edges[number + 1]]


def ragged(arrays: Sequence[Any]) -> Ragged:
    """Lay arrays, or numbers, end to end, unless they are already."""
    if isinstance(arrays, Ragged):
        return arrays
    return Ragged(np.hstack(arrays), np.fromiter(map(np.size, arrays), dtype=np.int64, count=len(arrays)))


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
    tokens = ragged(sequences)
    return Packed(
        torch.from_numpy(tokens.values.astype(np.int64, copy=False))[None],
        torch.from_numpy(restarting_positions(tokens.lengths))[None],
        torch.from_numpy(tokens.edges.astype(np.int32)),
        int(tokens.lengths.max()),
    )


def boundaries(lengths: np.ndarray) -> np.ndarray:
    """Cumulate lengths (S,) into boundaries (S + 1,) that begin at 0."""
    return np.concatenate(([0], lengths.cumsum()))


def restarting_positions(lengths: np.ndarray) -> np.ndarray:
    """Count from 0 in every sequence: lengths (S,) into positions (N,)."""
    return stretches(np.zeros_like(lengths), lengths)


def stretches(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Count from each of `starts` (S,) as far as its length (S,): positions (N,).

    >>> stretches(np.array([70, 5]), np.array([2, 3])).tolist()
    [70, 71, 5, 6, 7]
    """
    ends = lengths.cumsum()
    positions = np.arange(ends[-1] if len(ends) else 0)
    positions += (starts - ends + lengths).repeat(lengths)
    return positions


def sequence_lengths(batch: Batch) -> np.ndarray:
    """Count the tokens of every packed sequence (S,), over both streams where there are two."""
    lengths = np.diff(_boundaries_of(batch, "k"))
    return lengths + np.diff(_boundaries_of(batch, "q")) if "decoder_input_ids" in batch else lengths


def select_sequences(batch: Batch, chosen: np.ndarray) -> Batch:
    """Copy the sequences numbered `chosen` out of a packed batch; all of them, in order, are the batch."""
    num_sequences = len(batch["cu_seq_lens_k"]) - 1
    if len(chosen) == num_sequences and (chosen == np.arange(num_sequences)).all():
        return batch
    selected: Batch = {}
    streams: dict[Tensor, _Selection] = {}  # both sides of attention often share their boundaries
    for name, value in batch.items():
        if not isinstance(value, Tensor):
            continue
        if not is_stream(name, value):
            selected[name] = value[torch.from_numpy(chosen)]
            continue
        side = name[-1] if name.startswith("cu_seq_lens_") else stream_of(name)
        edges = batch[f"cu_seq_lens_{side}"]
        if edges not in streams:
            streams[edges] = _select(edges.numpy(), chosen)
        stream = streams[edges]
        if value is edges:
            selected[name], selected[f"max_length_{side}"] = stream.cu_seq_lens, stream.max_length
        else:
            selected[name] = value[0].index_select(0, stream.positions)[None]
    return selected


class _Selection(NamedTuple):
    # Some sequences of a stream: where their tokens are in it, and their own boundaries.
    positions: Tensor
    cu_seq_lens: Tensor
    max_length: int


def _select(edges: np.ndarray, chosen: np.ndarray) -> _Selection:
    starts = edges[chosen].astype(np.int64)
    lengths = edges[chosen + 1] - starts
    return _Selection(
        torch.from_numpy(stretches(starts, lengths)),
        torch.from_numpy(boundaries(lengths).astype(np.int32)),
        int(lengths.max(initial=0)),
    )


def slice_sequences(batch: Batch, first: int, last: int) -> Batch:
    """View the sequences numbered from `first` up to `last` (excluded); token streams are not copied."""
    if last - first == len(batch["cu_seq_lens_k"]) - 1:
        return batch
    sliced: Batch = {}
    for name, value in batch.items():
        if not isinstance(value, Tensor):
            continue
        if name.startswith("cu_seq_lens_"):
            edges = value.numpy()[first : last + 1]
            sliced[name] = torch.from_numpy(edges - edges[0])
            sliced[f"max_length_{name[-1]}"] = int(np.diff(edges).max())
        elif not is_stream(name, value):
            sliced[name] = value[first:last]
        else:
            edges = _boundaries_of(batch, stream_of(name))
            sliced[name] = value[:, int(edges[first]) : int(edges[last])]
    return sliced


def is_stream(name: str, value: Tensor) -> bool:
    """Return whether a tensor of a batch lies along its tokens, or has one entry per sequence."""
    return name.startswith("cu_seq_lens_") or value.dim() == 2


def stream_of(name: str) -> str:
    """Return which bounds a token stream follows: `q`, the decoder's, or `k`, the encoder's."""
    return "q" if name == "labels" or name.startswith("decoder_") else "k"


def _boundaries_of(batch: Batch, stream: str) -> np.ndarray:
    edges = batch[f"cu_seq_lens_{stream}"]
    assert isinstance(edges, Tensor)
    return edges.numpy()
