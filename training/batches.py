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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, pairwise
from math import ceil
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from .examples import Examples, ExampleSource, pick
from .objective import COMPONENT, Batch, Objective, on_device
from .packing import select_sequences, sequence_lengths, slice_sequences
from .static_shapes import Growth, Load, Shape, deal, fit_together
from .step_planning import fewest_examples, plan_steps, share
from .workers import DataCursor, PrefetchLoader

MEASURED = 4
"""First steps of a stage on which fixed sizes are measured."""

SHOWN = 5
"""How many of a step's examples are named where it fails."""


@dataclass(frozen=True)
class Part:
    """One batch of a step: the share of this process."""

    batch: Batch
    """Its sequences, in the order of its micro-batches."""
    edges: list[int]
    """Numbers of the sequences at which micro-batches begin, and at last how many sequences there are."""
    component: int | None = None
    """The objective of a mixture that the batch is for."""
    sizes: Sequence[Batch] | None = None
    """What each micro-batch of a fixed size says of it to the model; `None`: sizes are not fixed."""

    def micro_batches(self, device: torch.device) -> Iterator[Batch]:
        """Cut the share into micro-batches on `device`."""
        named = {} if self.component is None else {COMPONENT: self.component}
        for number, (first, last) in enumerate(pairwise(self.edges)):
            more = {} if self.sizes is None else self.sizes[number]
            yield on_device(slice_sequences(self.batch, first, last) | more, device) | named

    def __getstate__(self) -> dict[str, Any]:
        """Travel to another process as arrays: each tensor would take a file and a connection of its own."""
        return self.changed(Tensor, Tensor.numpy).__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive there."""
        self.__dict__.update(state)
        self.__dict__.update(self.changed(np.ndarray, torch.from_numpy).__dict__)

    def pin_memory(self) -> "Part":
        """Pin the tensors, so that copies to a GPU do not wait."""
        return self.changed(Tensor, Tensor.pin_memory)

    def changed(self, kind: type, change: Callable[[Any], Any]) -> "Part":
        """Change all values of a kind."""

        def of(batch: Batch) -> Batch:
            return {key: change(value) if isinstance(value, kind) else value for key, value in batch.items()}

        sizes = None if self.sizes is None else [*map(of, self.sizes)]
        return replace(self, batch=of(self.batch), sizes=sizes)


@dataclass(frozen=True)
class Step:
    """The data of one optimizer step: this process's share, and what is true of the whole."""

    cursor: DataCursor
    parts: tuple["Part", ...]
    """This process's share of each batch of the objective: one, or for a mixture several."""
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
        return [batch for part in self.parts for batch in part.micro_batches(device)]

    def pin_memory(self) -> "Step":
        """Let the data loader pin this object."""
        return replace(self, parts=tuple(part.pin_memory() for part in self.parts))


def checksum(batches: Sequence[Batch]) -> int:
    """Compute a number that two steps share if they give the same to read."""
    names = ("input_ids", "decoder_input_ids")
    sides = [batch[name] for batch in batches for name in names if name in batch]
    return crc32(np.concatenate([side.numpy().ravel() for side in sides]).data)


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
        num_steps: int | None = None,
        has_fixed_sizes: bool = False,
    ):
        self.source = source
        self.objective = objective
        self.tokens_per_step = tokens_per_step
        self.tokens_per_micro_batch = tokens_per_micro_batch
        self.seed = seed
        self.shuffle = shuffle
        self.num_processes = num_processes
        self.process_index = process_index
        self.num_steps = num_steps
        self.has_fixed_sizes = has_fixed_sizes
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
            components = getattr(examples, "components", None)
            steps = plan_steps(lengths, self.tokens_per_step, rng, components)
            if self.shuffle and (fewest := fewest_examples(steps, components)) < self.num_processes:
                of_each = "" if components is None else " of one of the objectives"
                raise ValueError(
                    f"a step holds {fewest} examples{of_each} for {self.num_processes} processes: raise "
                    + ("" if components is None else "its share or ")
                    + "tokens_per_step, or use fewer processes"
                )
            self._planned = epoch, examples, steps
            self._steps = dict([*self._steps.items()][-1:]) | {epoch: steps}
        return self._planned[1:]

    def fill(self) -> float:
        """Measure what part of `tokens_per_step` the steps of the first epoch hold on average."""
        examples, steps = self.plan(0)
        return float(np.sum(examples.lengths)) / (len(steps) * self.tokens_per_step)

    def collate(self, cursor: DataCursor) -> tuple[Objective, list[Batch], int]:
        """Collate the step at `cursor` as a whole; tell of how many examples, and by which objective."""
        epoch, number, step = DataCursor(*cursor)
        examples, steps = self.plan(epoch)
        chosen = pick(examples, steps[number])
        # The leading 1 keeps this stream apart from the one that shuffles the epoch, which begins with 0.
        rng = np.random.default_rng([1, self.seed, epoch, number])
        objective = self.objective if self.num_steps is None else self.objective.at(step / self.num_steps)
        return objective, objective.collate_parts(chosen, rng), len(chosen)

    @cached_property
    def shapes(self) -> dict[int | None, Shape]:
        """The fixed size of micro-batches, for each objective of a mixture, or of the only one (`None`).

        Objectives that change on the way are measured at both ends of the run. Those that name no positions
        have none.
        """
        if not self.has_fixed_sizes:
            return {}
        loads: dict[int | None, list[Load]] = {}
        examples, steps = self.plan(0)
        growth = Growth.of(np.asarray(examples.lengths), steps, MEASURED)
        for number in range(MEASURED):
            at = 0 if number % 2 else (self.num_steps or 0)
            objective, batches, _ = self.collate(DataCursor(0, min(number, len(steps) - 1), at))
            for batch in batches:
                if (positions := objective.predicted(batch)) is not None:
                    loads.setdefault(batch.get(COMPONENT), []).append(Load.of(batch, positions.numpy()))
        return {
            name: Shape.measured(own, self.num_parts(own, growth.tokens), growth)
            for name, own in loads.items()
        }

    def num_parts(self, loads: Sequence[Load], growth: float = 1.0) -> int:
        """Count the micro-batches of steps like these, or of larger ones, over all processes."""
        tokens = growth * max(int(load.lengths.sum()) for load in loads)
        parts = ceil(tokens / self.tokens_per_micro_batch)
        return parts + -parts % self.num_processes

    def __getitem__(self, cursor: DataCursor) -> Step:
        """Collate the step at `cursor` and take this process's share.

        Raises:
            ValueError: The objective made fewer sequences of the examples than there are processes.
        """
        objective, batches, num_examples = self.collate(cursor)
        lengths = [sequence_lengths(batch) for batch in batches]
        if self.shuffle and (fewest := min(map(len, lengths))) < self.num_processes:
            raise ValueError(
                f"a step's {num_examples} examples make {fewest} sequences for {self.num_processes} "
                "processes: raise tokens_per_step, make smaller groups of examples, or use fewer processes"
            )
        targets = [objective.targets(batch) for batch in batches]
        return Step(
            cursor=DataCursor(*cursor),
            parts=tuple(self._own_part(objective, *part) for part in zip(batches, lengths, strict=True)),
            targets={name: int(number) for part in targets for name, number in part.items()},
            examples=num_examples,
            tokens=int(sum(part.sum() for part in lengths)),
            fingerprint=checksum(batches),
        )

    def _own_part(self, objective: Objective, batch: Batch, lengths: np.ndarray) -> Part:
        """Take this process's share of a batch whose sequences have these lengths (S,)."""
        positions = objective.predicted(batch) if self.has_fixed_sizes else None
        component = batch.pop(COMPONENT, None)
        if positions is not None:
            load, shape = Load.of(batch, positions.numpy()), self.shapes[component]
            parts = deal(load, shape, self.num_processes, self.num_parts([load]))
            own = parts[self.process_index :: self.num_processes]
            whole, edges, sizes = fit_together(batch, positions.numpy(), own, shape)
            return Part(whole, edges, component, sizes)
        mine, edges = share(lengths, self.tokens_per_micro_batch, self.num_processes, self.process_index)
        return Part(select_sequences(batch, mine), edges, component)

    def describe(self, cursor: DataCursor) -> str:
        """Name the step at `cursor` and the first of its examples."""
        epoch, number, _ = DataCursor(*cursor)
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
    cursors = [DataCursor(0, number, number) for number in range(len(steps.plan(0)[1]))]
    return PrefetchLoader(steps, cursors, num_workers, pin_memory)


class _Cursors:
    """The cursors of a run from `start` on; it has no end."""

    def __init__(self, steps: StepDataset, start: DataCursor):
        self.steps = steps
        self.start = DataCursor(*start)

    def __iter__(self) -> Iterator[DataCursor]:
        epoch, position, step = self.start
        for current in count(epoch):
            for number in range(position, len(self.steps.plan(current)[1])):
                yield DataCursor(current, number, step)
                step += 1
            position = 0
