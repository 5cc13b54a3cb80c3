"""From examples to the batches of every optimizer step: which examples, in which order, cut where.

    epoch's examples -> shuffled, cut into steps of about `tokens_per_step` tokens,
                         or of `examples_per_step` examples                              (`plan_steps`)
    a step's examples -> sorted by length, cut into micro-batches of at most
                         `tokens_per_micro_batch` tokens, dealt out to the processes     (`share`)
    a process's examples -> collated

A step is a function of the seed, the epoch, its number and the lengths of the epoch's examples, and of
nothing else; the plan reads no token. What is random is drawn for each example by itself. So neither the
number of processes nor the size of micro-batches changes which tokens are masked, and a process collates
what it trains on and nothing more. Where corruption changes lengths, micro-batches are cut by those that are
expected. What is true of the whole step, as its targets, processes tell each other in a few numbers
(`Step.whole`).

An objective that makes an example together with others (`Objective.reads_whole_step`) is collated as a whole
by every process, and cut then.

Legend: E examples of an epoch, S sequences of a step, P processes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, pairwise
from math import ceil
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from .examples import Examples, ExampleSource, SharedSource, pick
from .exchange import add_up
from .objective import COMPONENT, Batch, Objective, on_device
from .packing import select_sequences, sequence_lengths, slice_sequences
from .static_shapes import Growth, Load, Shape, deal, fit_together
from .step_planning import fewest_examples, plan_steps, share, spread
from .weighting import tokens_of_sources
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
        # As arrays: between processes, a tensor takes a file and a connection.
        return self.changed(Tensor, Tensor.numpy).__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
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
    """Targets of each term, over all micro-batches of this process; see `whole`."""
    examples: int
    """Examples of this process; see `whole`."""
    tokens: int
    """Tokens of this process; see `whole`."""
    fingerprint: int = 0
    """Sum of the checksums of the sequences that this process reads, as they are corrupted; see `whole`."""
    tokens_of: Mapping[str, int] = field(default_factory=dict)
    """Tokens of each text that has a share of the run, over all processes, before they are corrupted."""
    is_idle: bool = False
    """Whether the step has fewer sequences than processes and none is left for this one: it computes the
    first process's share, to exchange gradients as the others do, and nothing of it counts."""

    def micro_batches(self, device: torch.device) -> list[Batch]:
        return [batch for part in self.parts for batch in part.micro_batches(device)]

    def whole(self, accelerator: Accelerator) -> "Step":
        """Add up what all processes have counted, which hold shares of the same step."""
        if accelerator.num_processes == 1:
            return self
        own = [self.examples, self.tokens, self.fingerprint, *self.targets.values()]
        examples, tokens, fingerprint, *targets = add_up(own)
        return replace(
            self,
            examples=examples,
            tokens=tokens,
            fingerprint=fingerprint,
            targets=dict(zip(self.targets, targets, strict=True)),
        )

    def pin_memory(self) -> "Step":
        return replace(self, parts=tuple(part.pin_memory() for part in self.parts))


def checksum(batch: Batch) -> int:
    """Add up checksums of a batch's sequences, each of the tokens that are read: whoever holds them.

    Sequences of two streams have both, the encoder's first.
    """
    sums = [0] * (len(batch["cu_seq_lens_k"]) - 1)
    for name, side in (("input_ids", "k"), ("decoder_input_ids", "q")):
        if name in batch:
            ids, edges = batch[name][0].numpy(), batch[f"cu_seq_lens_{side}"].tolist()
            sums = [
                crc32(ids[slice(*ends)].data, known)
                for ends, known in zip(pairwise(edges), sums, strict=True)
            ]
    return sum(sums)


class Own(NamedTuple):
    """A process's share of a batch of a step, collated."""

    batch: Batch
    """Its sequences."""
    edges: list[int]
    """Where its micro-batches begin among them, unless their size is fixed."""
    tokens: int
    """Planned tokens of the whole batch, over all processes."""
    examples: int
    """Examples that it is made of; the first process counts those of a step that is collated as a whole."""


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
        examples_per_step: int | None = None,
        shuffle: bool = True,
        num_processes: int = 1,
        process_index: int = 0,
        num_steps: int | None = None,
        has_fixed_sizes: bool = False,
        are_parts_equal: bool = False,
    ):
        self.source = source
        self.objective = objective
        self.tokens_per_step = tokens_per_step
        self.tokens_per_micro_batch = tokens_per_micro_batch
        self.seed = seed
        self.examples_per_step = examples_per_step
        self.shuffle = shuffle
        self.num_processes = num_processes
        self.process_index = process_index
        self.num_steps = num_steps
        self.has_fixed_sizes = has_fixed_sizes
        self.are_parts_equal = are_parts_equal
        self._planned: tuple[int, Examples, list[np.ndarray]] | None = None
        # Of the latest epoch and the one before, in which workers may still be when the next is planned.
        self._steps: dict[int, list[np.ndarray]] = {}

    def plan(self, epoch: int) -> tuple[Examples, list[np.ndarray]]:
        """Draw the examples of an epoch and cut them into steps; the latest plan is remembered."""
        if self._planned is None or self._planned[0] != epoch:
            examples = self.source.epoch(epoch)
            lengths = np.asarray(examples.lengths, dtype=np.int64)
            rng = np.random.default_rng([0, self.seed, epoch]) if self.shuffle else None
            self._check(lengths)
            components = getattr(examples, "components", None)
            strata = getattr(examples, "strata", None)
            size = self.examples_per_step
            steps = plan_steps(lengths, self.tokens_per_step, rng, components, strata, size)
            if (
                self.shuffle
                and size is None
                and (fewest := fewest_examples(steps, components)) < self.num_processes
            ):
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

    def collate(self, cursor: DataCursor) -> list[Batch]:
        """Collate the step at `cursor` as a whole: a batch, or one for each objective of a mixture."""
        epoch, number, step = DataCursor(*cursor)
        examples, steps = self.plan(epoch)
        return self._objective_at(step).collate_parts(pick(examples, steps[number]), self._seed_of(cursor))

    @cached_property
    def shapes(self) -> dict[int | None, Shape]:
        """The fixed size of micro-batches, for each objective of a mixture, or of the only one (`None`).

        All processes measure the first one's shares. Objectives that change on the way are measured at both
        ends of the run. Those that name no positions have none.
        """
        if not self.has_fixed_sizes:
            return {}
        loads: dict[int | None, list[Load]] = {}
        planned: dict[int | None, list[int]] = {}
        examples, steps = self.plan(0)
        for number in range(MEASURED):
            at = 0 if number % 2 else (self.num_steps or 0)
            for own in self._collate_own(DataCursor(0, min(number, len(steps) - 1), at), 0):
                if (positions := self._objective_at(at).predicted(own.batch)) is not None:
                    name = own.batch.get(COMPONENT)
                    loads.setdefault(name, []).append(Load.of(own.batch, positions.numpy()))
                    planned.setdefault(name, []).append(own.tokens)
        components, shapes = getattr(examples, "components", None), {}
        for name, of_one in loads.items():
            own_steps = steps if components is None else [step[components[step] == name] for step in steps]
            growth = Growth.of(np.asarray(examples.lengths), own_steps, MEASURED)
            num_parts = self.num_parts(growth.tokens * max(planned[name]))
            shapes[name] = Shape.measured(of_one, num_parts, growth, self.num_processes, planned[name])
        return shapes

    def num_parts(self, tokens: float) -> int:
        """Count each process's micro-batches of a step with so many tokens over all processes."""
        return ceil(ceil(tokens / self.tokens_per_micro_batch) / self.num_processes)

    def __getitem__(self, cursor: DataCursor) -> Step:
        """Collate this process's share of the step at `cursor`."""
        objective = self._objective_at(DataCursor(*cursor).step)
        shares = self._collate_own(cursor, self.process_index)
        is_idle = self.shuffle and not shares
        shares = self._collate_own(cursor, 0) if is_idle else shares
        targets = [objective.targets(own.batch) for own in shares]
        made = Step(
            cursor=DataCursor(*cursor),
            fingerprint=sum(checksum(own.batch) for own in shares),
            tokens=int(sum(sequence_lengths(own.batch).sum() for own in shares)),
            parts=tuple(self._own_part(objective, own) for own in shares),
            targets={name: int(count) for part in targets for name, count in part.items()},
            examples=sum(own.examples for own in shares),
            tokens_of=self._tokens_of(cursor),
        )
        if not is_idle:
            return made
        nothing = dict.fromkeys(made.targets, 0)
        return replace(made, examples=0, fingerprint=0, tokens=0, targets=nothing, is_idle=True)

    def _objective_at(self, step: int) -> Objective:
        return self.objective if self.num_steps is None else self.objective.at(step / self.num_steps)

    def _seed_of(self, cursor: DataCursor) -> int:
        # With an example's number, it decides what is random in the step. The leading 1 keeps this apart from
        # what shuffles the epoch, which begins with 0.
        sequence = np.random.SeedSequence([1, self.seed, cursor[0], cursor[1]])
        return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _collate_own(self, cursor: DataCursor, process_index: int) -> list[Own]:
        # A batch of which the process has no share is left out.
        objective = self._objective_at(DataCursor(*cursor).step)
        if objective.reads_whole_step:
            return self._cut_whole(cursor, process_index)
        examples, steps = self.plan(cursor[0])
        indices, lengths = steps[cursor[1]], np.asarray(examples.lengths)
        components = getattr(examples, "components", None)
        kinds = np.zeros_like(indices) if components is None else components[indices]
        dealt = []
        for kind in np.unique(kinds):
            chosen = indices[kinds == kind]
            numbers, edges = self._deal(lengths[chosen], process_index)
            if len(numbers):
                dealt.append((chosen[numbers], edges, int(lengths[chosen].sum())))
        if not dealt:
            return []
        picked = pick(examples, np.concatenate([own for own, _, _ in dealt]))
        batches = objective.collate_parts(picked, self._seed_of(cursor))
        found = zip(batches, dealt, strict=True)
        return [Own(batch, edges, tokens, len(own)) for batch, (own, edges, tokens) in found]

    def _cut_whole(self, cursor: DataCursor, process_index: int) -> list[Own]:
        shares, num_examples = [], len(self.plan(cursor[0])[1][cursor[1]])
        for batch in self.collate(cursor):
            lengths = sequence_lengths(batch)
            if self.shuffle and self.examples_per_step is None and len(lengths) < self.num_processes:
                raise ValueError(
                    f"a step's {num_examples} examples make {len(lengths)} sequences for "
                    f"{self.num_processes} processes: raise tokens_per_step, make smaller groups of "
                    "examples, or use fewer processes"
                )
            numbers, edges = self._deal(lengths, process_index)
            named = {COMPONENT: batch[COMPONENT]} if COMPONENT in batch else {}
            if len(numbers):
                counted = num_examples if process_index == 0 and not shares else 0
                own = select_sequences(batch, numbers) | named
                shares.append(Own(own, edges, int(lengths.sum()), counted))
        return shares

    def _deal(self, lengths: np.ndarray, process_index: int) -> tuple[np.ndarray, list[int]]:
        # The process's sequences, chosen by the lengths of all (S,), and where its micro-batches begin.
        if self.has_fixed_sizes:
            return spread(lengths, self.num_processes, process_index), []
        limit, size = self.tokens_per_micro_batch, self.num_processes
        if self.are_parts_equal:
            last = min(size, len(lengths)) - 1
            most, fewest = (len(share(lengths, limit, size, number)[1]) for number in (0, last))
            if most != fewest:
                raise ValueError(
                    f"{size} processes that hold one model in pieces cannot take as many micro-batches each: "
                    f"single sequences are nearly as long as tokens_per_micro_batch = {limit:,}: raise it"
                )
        return share(lengths, limit, size, process_index)

    def _tokens_of(self, cursor: DataCursor) -> dict[str, int]:
        epoch, number, _ = DataCursor(*cursor)
        examples, steps = self.plan(epoch)
        return tokens_of_sources(self.source, examples, steps[number])

    def _own_part(self, objective: Objective, own: Own) -> Part:
        positions = objective.predicted(own.batch) if self.has_fixed_sizes else None
        batch = dict(own.batch)
        component = batch.pop(COMPONENT, None)
        if positions is not None:
            load, shape = Load.of(batch, positions.numpy()), self.shapes[component]
            number = self.num_parts(own.tokens)  # the same on all processes
            parts = deal(load, shape, number, number if self.are_parts_equal else 2 * number)
            filled, edges, sizes = fit_together(batch, positions.numpy(), parts, shape)
            return Part(filled, edges, component, sizes)
        if self.has_fixed_sizes:  # wanted, but the objective has none
            order, edges = share(sequence_lengths(batch), self.tokens_per_micro_batch, 1, 0)
            return Part(select_sequences(batch, order), edges, component)
        return Part(batch, own.edges, component)

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
    """Iterate over a run's steps from `start` on, epoch after epoch; starting late costs nothing."""
    if isinstance(steps.source, SharedSource):
        steps.source.share_with(num_workers)
    return PrefetchLoader(steps, _Cursors(steps, start), num_workers, pin_memory)


def one_pass(steps: StepDataset, *, num_workers: int = 0, pin_memory: bool = False) -> PrefetchLoader[Step]:
    """Iterate once over the examples of epoch 0, as evaluation does."""
    cursors = [DataCursor(0, number, number) for number in range(len(steps.plan(0)[1]))]
    return PrefetchLoader(steps, cursors, num_workers, pin_memory)


class _Cursors:
    # From `start` on, without an end.
    def __init__(self, steps: StepDataset, start: DataCursor):
        self.steps = steps
        self.start = DataCursor(*start)

    def __iter__(self) -> Iterator[DataCursor]:
        epoch, first, step = self.start
        for current in count(epoch):
            for number in range(first, len(self.steps.plan(current)[1])):
                yield DataCursor(current, number, step)
                step += 1
            first = 0
