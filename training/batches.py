"""From examples to the batches of every optimizer step: which examples, in which order, cut where.

    epoch's examples -> shuffled, cut into steps of about `tokens_per_step` tokens       (`plan_steps`)
    a step's examples -> collated at once -> sequences sorted by length, cut into
                         micro-batches of at most `tokens_per_micro_batch` tokens,
                         dealt out to the processes                                      (`share`)

A step is a function of the seed, the epoch, its number and the lengths of the epoch's examples, and of
nothing else. It is collated as a whole with its own random generator, by every process, and only then cut: so
neither the number of processes nor the size of micro-batches changes which tokens are masked, and every
process knows the targets of the whole step without communication. The price is that processes repeat each
other's collation.

Legend: E examples of an epoch, S sequences of a step, P processes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from .examples import Examples, ExampleSource, pick
from .objective import Batch, Objective, on_device
from .packing import select_sequences, sequence_lengths, slice_sequences
from .workers import DataCursor, PrefetchLoader

SHOWN = 5
"""How many of a step's examples are named where it fails."""


@dataclass(frozen=True)
class Step:
    """The data of one optimizer step: this process's share, and what is true of the whole."""

    cursor: DataCursor
    batch: Batch
    """This process's sequences, in the order of its micro-batches."""
    edges: list[int]
    """Numbers of the sequences at which micro-batches begin, and at last how many sequences there are."""
    targets: dict[str, int]
    """Targets of each term, over all micro-batches and processes."""
    examples: int
    """Examples, over all processes."""
    tokens: int
    """Tokens, over all processes."""
    fingerprint: int = 0
    """Checksum of the ids that the model reads, over all processes: of their order and their corruption."""

    def micro_batches(self, device: torch.device) -> list[Batch]:
        """Cut this process's share into micro-batches on `device`."""
        slices = (slice_sequences(self.batch, first, last) for first, last in pairwise(self.edges))
        return [on_device(batch, device) for batch in slices]

    def __getstate__(self) -> dict[str, Any]:
        """Travel to another process as arrays: each tensor would take a file and a connection of its own."""
        arrays = {
            name: value.numpy() if isinstance(value, Tensor) else value for name, value in self.batch.items()
        }
        return self.__dict__ | {"batch": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive there."""
        batch = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in state["batch"].items()
        }
        self.__dict__.update(state | {"batch": batch})

    def pin_memory(self) -> "Step":
        """Let the data loader pin this object, so that copies to a GPU do not wait."""
        pinned = {
            name: value.pin_memory() if isinstance(value, Tensor) else value
            for name, value in self.batch.items()
        }
        return replace(self, batch=pinned)


def checksum(batch: Batch) -> int:
    """Compute a number that two batches share if they give the same to read."""
    sides = [batch[name] for name in ("input_ids", "decoder_input_ids") if name in batch]
    return crc32(np.concatenate([side.numpy().ravel() for side in sides]).data)


def plan_steps(
    lengths: np.ndarray, tokens_per_step: int, rng: np.random.Generator | None
) -> list[np.ndarray]:
    """Cut examples of the given lengths (E,) into steps of nearly equal tokens, every example in exactly one.

    Steps have at most `tokens_per_step` tokens, and nearly as many; no small one is left over at the end.
    Without `rng` the steps follow the examples' order. A step's examples go from short to long, as its
    micro-batches will: to cut these, nothing has to be moved.

    Raises:
        ValueError: There are fewer tokens than one step takes.
    """
    total = int(lengths.sum())
    if total < tokens_per_step:
        raise ValueError(
            f"the corpus has {total:,} tokens in {len(lengths):,} examples, fewer than tokens_per_step = "
            f"{tokens_per_step:,}: lower tokens_per_step, or add more text"
        )
    order = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    steps = [order[first:last] for first, last in pairwise(_step_edges(lengths[order], tokens_per_step))]
    for step in steps:
        step[:] = step[np.argsort(lengths[step], kind="stable")]
    return steps


def _step_edges(lengths: np.ndarray, limit: int) -> list[int]:
    """Cut lengths evenly into few parts that keep the limit; an example longer than it stands alone."""
    parts = -(-int(lengths.sum()) // limit)
    while parts < len(lengths):
        edges = cut_evenly(lengths, parts)
        sums = np.add.reduceat(lengths, edges[:-1])
        if (longest := sums[np.diff(edges) > 1].max(initial=0)) <= limit:
            return edges
        parts = max(parts + 1, int(parts * longest / limit))
    return list(range(len(lengths) + 1))


def cut_evenly(lengths: np.ndarray, parts: int) -> list[int]:
    """Cut a row of lengths into consecutive non-empty parts of nearly equal sums; return the edges."""
    ends = np.cumsum(lengths)
    goals = ends[-1] * np.arange(1, parts) / parts
    edges = np.searchsorted(ends, goals)
    edges += ends[edges] - lengths[edges] / 2 < goals  # a length belongs to the side that holds its middle
    steps = np.arange(1, parts)
    edges = np.maximum.accumulate(np.maximum(edges, 1) - steps) + steps  # every part takes at least one ...
    edges = np.minimum(edges, len(lengths) - parts + steps)  # ... and leaves one for each that follows
    return [0, *edges.tolist(), len(lengths)]


def share(
    lengths: np.ndarray, limit: int, num_processes: int, process_index: int
) -> tuple[np.ndarray, list[int]]:
    """Deal the sequences of a step (S,) out in micro-batches of at most `limit` tokens.

    Sequences are sorted by length and cut into the smallest multiple of `num_processes` micro-batches that
    keeps the limit; a sequence longer than the limit stands alone. Micro-batch i goes to process i modulo P.
    Where there are fewer sequences than processes, the last processes receive none.

    Returns the numbers of this process's sequences, and the edges between its micro-batches.
    """
    order = np.argsort(lengths, kind="stable")
    if num_processes == 1 and lengths.sum() <= limit:
        return order, [0, len(order)]
    edges = _micro_batch_edges(lengths[order], limit, num_processes)
    mine = list(pairwise(edges))[process_index::num_processes]
    chosen = np.concatenate([order[first:last] for first, last in mine] or [order[:0]])
    return chosen, np.cumsum([0, *(last - first for first, last in mine)]).tolist()


def _micro_batch_edges(lengths: np.ndarray, limit: int, multiple: int) -> list[int]:
    """Cut ascending lengths where the parts keep the limit and their number is a multiple, if it can be."""
    short = lengths[lengths <= limit]
    alone = list(range(len(short) + 1, len(lengths) + 1))
    fewest = max(-(-int(short.sum()) // limit), 1 if len(short) else 0)
    for parts in count(fewest + -(fewest + len(alone)) % multiple, multiple):
        if parts >= len(short):
            return list(range(len(lengths) + 1))
        edges = cut_evenly(short, parts)
        if np.add.reduceat(short, edges[:-1]).max() <= limit:
            return edges + alone
    raise AssertionError("unreachable: the count has no end")


class StepDataset:
    """The steps of a run, by their cursor: what the data workers prepare."""

    def __init__(
        self,
        source: ExampleSource,
        objective: Objective,
        *,
        tokens_per_step: int,
        tokens_per_micro_batch: int,
        seed: int,
        shuffle: bool = True,
        num_processes: int = 1,
        process_index: int = 0,
    ):
        self.source = source
        self.objective = objective
        self.tokens_per_step = tokens_per_step
        self.tokens_per_micro_batch = tokens_per_micro_batch
        self.seed = seed
        self.shuffle = shuffle
        self.num_processes = num_processes
        self.process_index = process_index
        self._planned: tuple[int, Examples, list[np.ndarray]] | None = None
        # Of the latest epoch and the one before, in which workers may still be when the next is planned.
        self._steps: dict[int, list[np.ndarray]] = {}

    def plan(self, epoch: int) -> tuple[Examples, list[np.ndarray]]:
        """Draw the examples of an epoch and cut them into steps; the latest plan is remembered.

        Raises:
            ValueError: The examples do not fill one step, or one of them does not fit a micro-batch.
        """
        if self._planned is None or self._planned[0] != epoch:
            examples = self.source.epoch(epoch)
            lengths = np.asarray(examples.lengths, dtype=np.int64)
            rng = np.random.default_rng([0, self.seed, epoch]) if self.shuffle else None
            self._check(lengths)
            steps = plan_steps(lengths, self.tokens_per_step, rng)
            if self.shuffle and (fewest := min(map(len, steps))) < self.num_processes:
                raise ValueError(
                    f"a step holds {fewest} examples for {self.num_processes} processes: raise "
                    "tokens_per_step or use fewer processes"
                )
            self._planned = epoch, examples, steps
            self._steps = dict([*self._steps.items()][-1:]) | {epoch: steps}
        return self._planned[1:]

    def __getitem__(self, cursor: DataCursor) -> Step:
        """Collate the step at `cursor` and take this process's share.

        Raises:
            ValueError: The objective made fewer sequences of the examples than there are processes.
        """
        epoch, number = cursor
        examples, steps = self.plan(epoch)
        chosen = pick(examples, steps[number])
        # The leading 1 keeps this stream apart from the one that shuffles the epoch, which begins with 0.
        whole = self.objective.collate(chosen, np.random.default_rng([1, self.seed, epoch, number]))
        lengths = sequence_lengths(whole)
        if self.shuffle and len(lengths) < self.num_processes:
            raise ValueError(
                f"a step's {len(chosen)} examples make {len(lengths)} sequences for {self.num_processes} "
                "processes: raise tokens_per_step, make smaller groups of examples, or use fewer processes"
            )
        mine, edges = share(lengths, self.tokens_per_micro_batch, self.num_processes, self.process_index)
        return Step(
            cursor=cursor,
            batch=select_sequences(whole, mine),
            edges=edges,
            targets={name: int(number) for name, number in self.objective.targets(whole).items()},
            examples=len(chosen),
            tokens=int(lengths.sum()),
            fingerprint=checksum(whole),
        )

    def describe(self, cursor: DataCursor) -> str:
        """Name the step at `cursor` and the first of its examples."""
        epoch, number = cursor
        planned = self._steps[epoch][number] if epoch in self._steps else []
        examples = ", ".join(str(index) for index in planned[:SHOWN]) + ", ..." * (len(planned) > SHOWN)
        return f"step {number} of epoch {epoch}" + (f" (examples {examples})" if examples else "")

    def _check(self, lengths: np.ndarray) -> None:
        if len(lengths) == 0:
            raise ValueError("the corpus has no examples: add more text")
        if lengths.max() > self.tokens_per_micro_batch:
            raise ValueError(
                f"an example of {lengths.max():,} tokens does not fit tokens_per_micro_batch = "
                f"{self.tokens_per_micro_batch:,}: raise it, or shorten the examples"
            )


def endless_steps(
    steps: StepDataset, start: DataCursor, *, num_workers: int = 0, pin_memory: bool = False
) -> PrefetchLoader[Step]:
    """Iterate over a run's steps from `start` on, epoch after epoch; starting late costs nothing.

    Raises:
        ValueError: An epoch has a step with fewer examples than there are processes.
    """
    return PrefetchLoader(steps, _Cursors(steps, start), num_workers, pin_memory)


def one_pass(steps: StepDataset, *, num_workers: int = 0, pin_memory: bool = False) -> PrefetchLoader[Step]:
    """Iterate once over the examples of epoch 0, as evaluation does."""
    cursors = [(0, number) for number in range(len(steps.plan(0)[1]))]
    return PrefetchLoader(steps, cursors, num_workers, pin_memory)


class _Cursors:
    """The cursors of a run from `start` on; it has no end."""

    def __init__(self, steps: StepDataset, start: DataCursor):
        self.steps = steps
        self.start = start

    def __iter__(self) -> Iterator[DataCursor]:
        epoch, number = self.start
        for current in count(epoch):
            yield from ((current, step) for step in range(number, len(self.steps.plan(current)[1])))
            number = 0
