"""One size for all micro-batches of a stage, for devices that compile their steps.

A compiled graph is made for tensors of one size, and a GPU that learns sizes from the data has to be waited
for. So each micro-batch has N tokens, S sequences and K positions at which tokens are predicted: what is
missing is filled with sequences that have no target, which the loss does not count. The sums over targets are
those of the ragged micro-batches of `step_planning`; only how sequences are dealt out differs.

    real sequences ............... | filling | empty ones
    0                              n         N          S + 1 bounds

Sizes are measured on the first steps of a stage, and raised by how much larger the examples of its other
steps are, and by how much the share of a stream differs between steps: so they are a function of the seed and
the text. A process's share of a step that does not fit, which is rare, is dealt out to more micro-batches, up
to twice as many; to no more where processes compute each micro-batch together. What still does not fit, as
later texts of a stream that are all longer or shorter, has a larger size: one of few, since it is doubled.

Legend: N tokens of a stream, S sequences, K positions.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .objective import IGNORE, Batch
from .packing import (
    boundaries,
    is_stream,
    restarting_positions,
    select_sequences,
    sequence_lengths,
    stream_of,
)

MULTIPLE = 64
"""Sizes are multiples of it, so that those of similar texts are the same, and products are of whole tiles."""

SLACK = 1.005
"""Room for the differences between the micro-batches of a step, of their tokens."""

SLACK_OF_COUNTS = 1.1
"""The same for counts that cost little: of sequences and positions."""

POSITIONS = "output_positions"
"""Where the positions stand in a micro-batch: the models' keyword."""

STREAMS = ("k", "q")
"""The encoder's tokens and the decoder's, as their bounds are called; one stream alone has both."""


@dataclass(frozen=True)
class Load:
    """What sequences bring to a micro-batch, each (S,).

    `tokens` of each stream, `lengths` of both together, and `positions` at which they are predicted.
    """

    tokens: dict[str, np.ndarray]
    lengths: np.ndarray
    positions: np.ndarray

    @classmethod
    def of(cls, batch: Batch, positions: np.ndarray) -> "Load":
        """Measure a batch that predicts tokens at some positions of the decoder's, or only, stream."""
        edges = {stream: batch[f"cu_seq_lens_{stream}"].numpy() for stream in STREAMS}
        counts = np.diff(np.searchsorted(positions, edges["q"]))
        tokens = {stream: np.diff(bounds) for stream, bounds in edges.items()}
        return cls(tokens, sequence_lengths(batch), counts)

    def __getitem__(self, chosen: np.ndarray | slice) -> "Load":
        tokens = {stream: counts[chosen] for stream, counts in self.tokens.items()}
        return Load(tokens, self.lengths[chosen], self.positions[chosen])


class Growth(NamedTuple):
    """How much larger the largest of all steps are than those that are measured."""

    tokens: float
    """By the tokens of their examples."""
    sequences: float
    """By the number of their examples."""
    longest: float
    """By the tokens of their longest example."""

    @classmethod
    def of(cls, lengths: np.ndarray, steps: Sequence[np.ndarray], num_measured: int) -> "Growth":
        """Compare all steps of examples of these lengths with the first ones."""
        kinds = (np.sum, len, np.max)
        sizes = np.array([[kind(lengths[step]) for kind in kinds] for step in steps])
        return cls(*(sizes.max(axis=0) / sizes[:num_measured].max(axis=0)).tolist())


NO_GROWTH = Growth(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Shape:
    """The size of a micro-batch."""

    tokens: dict[str, int]
    """N of each stream."""
    longest: dict[str, int]
    """Bound of the tokens of a sequence of each stream."""
    cut: dict[str, int]
    """Tokens of a sequence of filling: the most that a real one had, since models have a limit."""
    sequences: int
    """S."""
    positions: int
    """K; 0: all are read."""
    has_two_streams: bool = field(default=False, compare=False)
    """Whether an encoder's tokens and a decoder's are others."""
    filling: float = field(default=0.0, compare=False)
    """Share of filling in the tokens of the steps on which the size was measured."""

    @classmethod
    def measured(
        cls,
        loads: Sequence[Load],
        num_parts: int,
        growth: Growth = NO_GROWTH,
        num_processes: int = 1,
        planned: Sequence[int] | None = None,
    ) -> "Shape":
        """Choose the size for a process's shares of steps, in `num_parts` micro-batches each.

        `planned` are the tokens of the steps before anything was corrupted; by default, what was found.
        """
        planned = planned or [int(load.lengths.sum()) for load in loads]
        most = {
            stream: max(planned) * likely_most([load.tokens[stream].sum() for load in loads], planned)
            for stream in STREAMS
        }
        slack = growth.tokens * (SLACK if num_parts * num_processes > 1 else 1.0) / num_parts
        cut = {stream: max(int(load.tokens[stream].max(initial=1)) for load in loads) for stream in STREAMS}
        longest = {stream: rounded(growth.longest * length) for stream, length in cut.items()}
        tokens = {stream: max(rounded(slack * number), longest[stream]) for stream, number in most.items()}
        filling = max(-(-tokens[stream] // cut[stream]) for stream in STREAMS)
        slack = SLACK_OF_COUNTS / num_parts
        sequences = slack * growth.sequences * max(len(load.positions) for load in loads)
        positions = slack * max(growth[:2]) * max(int(load.positions.sum()) for load in loads)
        of_longest = growth.longest * max(int(load.positions.max(initial=0)) for load in loads)
        real = sum(int(load.lengths.sum()) for load in loads)
        found = cls(
            tokens,
            longest,
            cut,
            rounded(sequences + filling),
            min(rounded(max(positions, of_longest)), tokens["q"]),
            real > sum(int(load.tokens["q"].sum()) for load in loads),
        )
        return replace(found, filling=1 - real / (len(loads) * num_parts * sum(found.streams)))

    @property
    def streams(self) -> list[int]:
        """Tokens of each stream: one, or the encoder's and the decoder's."""
        return [*self.tokens.values()] if self.has_two_streams else [self.tokens["q"]]

    def holds(self, load: Load) -> bool:
        """Return whether sequences, however long, fit into a micro-batch of this size, and the filling."""
        room = self.sequences - len(load.positions)
        return int(load.positions.sum()) <= self.positions and all(
            0 <= self.tokens[stream] - counts.sum() <= room * self.cut[stream]
            for stream, counts in load.tokens.items()
        )

    def widened(self, load: Load) -> "Shape":
        """Return this size, or a larger one of few that holds sequences."""
        counted = load.tokens.items()
        longest = {stream: doubled(self.longest[stream], n.max(initial=1)) for stream, n in counted}
        if self.holds(load):
            return replace(self, longest=longest)
        tokens = {stream: doubled(self.tokens[stream], n.sum()) for stream, n in counted}
        filling = max(-(-tokens[stream] // self.cut[stream]) for stream in STREAMS)
        sequences = doubled(self.sequences, len(load.positions) + filling)
        positions = min(doubled(self.positions, load.positions.sum()), tokens["q"])
        return replace(self, tokens=tokens, longest=longest, sequences=sequences, positions=positions)


def wants_graphs(wanted: bool | Literal["auto"], device: torch.device) -> bool:
    """Return whether a device is to compile its steps; `auto`: CUDA devices are."""
    return device.type == "cuda" if wanted == "auto" else wanted


def likely_most(counts: Sequence[int], planned: Sequence[int]) -> float:
    """Return what few shares of what was planned exceed: as far above the largest as that above the mean.

    Of four shares that are normally distributed, it is two standard deviations above the mean.
    """
    shares = np.divide(counts, planned)
    return float(2 * shares.max() - shares.mean())


def rounded(number: float) -> int:
    return int(-(-number // MULTIPLE)) * MULTIPLE


def doubled(size: int, least: int) -> int:
    while size < least:
        size = max(2 * size, MULTIPLE)
    return size


def deal(load: Load, shape: Shape, num_parts: int, most: int) -> list[np.ndarray]:
    """Deal a process's sequences of a step out to micro-batches that fit the size, each stream nearly equal.

    There are `num_parts`, or as many more as it takes, up to `most`. Returns the numbers of the sequences of
    each.
    """
    order, found = np.argsort(-load.lengths, kind="stable"), []
    shares = np.stack([counts / shape.tokens[stream] for stream, counts in load.tokens.items()], 1).tolist()
    for parts in range(num_parts, most + 1):
        bins: list[list[int]] = [[] for _ in range(parts)]
        loads = [[0.0] * len(load.tokens)] * parts
        for sequence in order.tolist():
            larger = [[*map(add, each, shares[sequence])] for each in loads]
            number = min(range(parts), key=lambda part: max(larger[part]))
            bins[number].append(sequence)
            loads[number] = larger[number]
        found = [np.array(sorted(numbers), dtype=np.int64) for numbers in bins]
        if parts >= len(order) or all(shape.holds(load[numbers]) for numbers in found):
            break
    return found


class Fitted(NamedTuple):
    """A process's micro-batches, laid end to end."""

    batch: Batch
    """All of their tokens and sequences, the filling included."""
    edges: list[int]
    """Numbers of the sequences at which micro-batches begin, and at last how many sequences there are."""
    sizes: list[Batch]
    """What each says of its size, for the model: its positions (K,), if there are some, and the longest
    lengths."""


def fit_together(batch: Batch, positions: np.ndarray, parts: Iterable[np.ndarray], shape: Shape) -> Fitted:
    """Lay the sequences of micro-batches end to end, each filled up to its size.

    Args:
        positions: Where its tokens are predicted, ascending, in the decoder's, or only, stream.
        parts: The numbers of each micro-batch's sequences.
    """
    load, edges = Load.of(batch, positions), batch["cu_seq_lens_q"].numpy()
    filled, sizes = [], []
    for numbers in parts:
        starts = boundaries(load.tokens["q"][numbers])[:-1]
        moved = [
            positions[slice(*np.searchsorted(positions, edges[number : number + 2]))] - edges[number] + start
            for number, start in zip(numbers, starts, strict=True)
        ]
        fitting = shape.widened(load[numbers])
        filled.append(fill(select_sequences(batch, numbers), fitting))
        longest = {f"max_length_{stream}": length for stream, length in fitting.longest.items()}
        found = padded_positions(np.concatenate([*moved, []]).astype(np.int64), fitting)
        sizes.append(longest | ({POSITIONS: found} if fitting.positions else {}))
    counts = [len(part["cu_seq_lens_q"]) - 1 for part in filled]
    return Fitted(joined(filled), [0, *np.cumsum(counts).tolist()], sizes)


def fill(batch: Batch, shape: Shape) -> Batch:
    """Fill a batch up to a size: ids are 0, all else is ignored, or not a number."""
    filled: Batch = {}
    num_new = shape.sequences - (len(batch["cu_seq_lens_q"]) - 1)
    new = {
        stream: filling(shape.tokens[stream] - int(batch[f"cu_seq_lens_{stream}"][-1]), num_new, cut)
        for stream, cut in shape.cut.items()
    }
    for name, value in batch.items():
        if not isinstance(value, Tensor):
            continue
        if name.startswith("cu_seq_lens_"):
            more = torch.from_numpy(value[-1].numpy() + new[name[-1]].cumsum())
            filled[name] = torch.cat([value, more.to(value.dtype)])
            continue
        number = num_new
        if is_stream(name, value):
            number = int(new[stream_of(name)].sum())
        if name.endswith("position_ids"):
            more = torch.from_numpy(restarting_positions(new[stream_of(name)]))[None]
            filled[name] = torch.cat([value, more], dim=1)
            continue
        content = 0 if name.endswith("ids") else math.nan if value.is_floating_point() else IGNORE
        sizes = (0, number) if is_stream(name, value) else (0, 0) * (value.dim() - 1) + (0, number)
        filled[name] = F.pad(value, sizes, value=content)
    return filled


def filling(num_tokens: int, num_sequences: int, longest: int) -> np.ndarray:
    """Cut tokens into sequences of at most a length, as few as possible; the others are empty."""
    lengths = np.zeros(num_sequences, dtype=np.int64)
    whole, rest = divmod(num_tokens, longest)
    lengths[:whole] = longest
    if rest:
        lengths[whole] = rest
    return lengths


def padded_positions(positions: np.ndarray, shape: Shape) -> Tensor:
    """Fill positions up to K with one that has no target; if all of N have one, K is N."""
    free = np.setdiff1d(np.arange(shape.tokens["q"]), positions, assume_unique=True)[:1]
    padded = np.resize(free, shape.positions) if len(free) else np.empty(shape.positions)
    padded[: len(positions)] = positions
    return torch.from_numpy(padded.astype(np.int64))


def joined(batches: Sequence[Batch]) -> Batch:
    """Lay batches end to end."""
    whole: Batch = {}
    for name, value in batches[0].items():
        values = [batch[name] for batch in batches]
        if name.startswith("cu_seq_lens_"):
            lengths = np.concatenate([np.diff(bounds.numpy()) for bounds in values])
            whole[name] = torch.from_numpy(boundaries(lengths).astype(np.int32))
        else:
            whole[name] = torch.cat(values, dim=1 if is_stream(name, value) else 0)
    return whole
