"""The stages of a run: what its first steps do otherwise, before the recipe's own values hold.

    step       0                  200                1000
    recipe     |  stages[0]       |  stages[1]       |  tokens_per_step, the run's own source ...

Small steps and short sequences are cheap, and a model that knows nothing yet learns about as much from them.
Sequences that grow are Press et al., 2021 ("Shortformer", section 4), steps that grow Smith et al., 2018.
A stage begins with a new epoch: so a place in the data means the same however a run came there.
"""

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise

from accelerate import Accelerator

from ..data.steps.batches import Step, StepDataset, endless_steps
from ..data.steps.examples import ExampleSource
from ..data.steps.objective import Objective
from ..data.steps.static_shapes import wants_graphs
from ..data.steps.workers import DataCursor, PrefetchLoader
from .devices.sharding import sharding_plugin
from .evaluation import HeldOut
from .recipe import StageRecipe, TrainingRecipe

SourceOf = Callable[[StageRecipe], ExampleSource]
"""Makes the source of a stage that has a sequence length, or shares of texts, of its own."""

LEAST_FILL = 0.7
"""Steps that hold less of `tokens_per_step` on average are worth a warning."""


@dataclass(frozen=True)
class Stage:
    """Consecutive steps of a run that are cut alike from one source; the next stage ends it."""

    first_step: int
    """Number of its first step, counted from 0."""
    steps: StepDataset
    """Its data."""


@dataclass(frozen=True)
class StepCutter:
    """Cuts examples into the steps of a run, for this process."""

    objective: Objective
    """Collates the examples."""
    recipe: TrainingRecipe
    """Says how large steps are, and what the stages do."""
    accelerator: Accelerator
    """Knows this process's share."""

    def stages(
        self, source: ExampleSource, source_of: SourceOf | None = None, examples_per_step: int | None = None
    ) -> list[Stage]:
        """Build the recipe's stages, and at last the one in which its own values hold.

        Args:
            source_of: Makes the others; `None` if examples have a length of their own.
            examples_per_step: Examples of a step of the last one, if it is not cut by tokens.
        """
        stages, first_step = [], 0
        for stage in self.recipe.stages:
            is_own = stage.sequence_length is stage.shares is None
            its_source = source if is_own else source_for(stage, source_of)
            tokens = stage.tokens_per_step or self.recipe.tokens_per_step
            stages.append(Stage(first_step, self.cut(its_source, tokens)))
            first_step += stage.steps
        last = self.cut(source, self.recipe.tokens_per_step, examples_per_step=examples_per_step)
        stages.append(Stage(first_step, last))
        for stage in stages:
            stage.steps.plan(0)  # what is wrong with a later stage shows before the first one begins
        return stages

    def held_out(self, source: ExampleSource) -> StepDataset:
        """Cut what a run is measured on into steps in its order; it may be smaller than one of them."""
        tokens = min(self.recipe.tokens_per_step, int(source.epoch(0).lengths.sum()))
        steps = replace(self, objective=self.objective.at(1.0)).cut(source, tokens, shuffle=False)
        steps.plan(0)  # what is wrong with it shows before the run begins
        return steps

    def cut(
        self,
        source: ExampleSource,
        tokens_per_step: int,
        *,
        examples_per_step: int | None = None,
        shuffle: bool = True,
    ) -> StepDataset:
        """Cut a source into steps of one size."""
        recipe, accelerator = self.recipe, self.accelerator
        device = accelerator.device
        return StepDataset(
            source,
            self.objective,
            tokens_per_step=tokens_per_step,
            examples_per_step=examples_per_step,
            tokens_per_micro_batch=recipe.tokens_per_micro_batch or tokens_per_step,
            seed=recipe.seed,
            shuffle=shuffle,
            num_steps=recipe.steps if shuffle else None,
            has_fixed_sizes=shuffle and (device.type == "cuda" or wants_graphs(recipe.compile, device)),
            are_parts_equal=shuffle and sharding_plugin(accelerator) is not None,  # evaluation gathers all
            num_processes=accelerator.num_processes,
            process_index=accelerator.process_index,
        )


def source_for(stage: StageRecipe, source_of: SourceOf | None) -> ExampleSource:
    """Make the source of a stage with a sequence length, or shares, of its own."""
    if source_of is None:
        key, what = (
            ("shares", "weighted") if stage.sequence_length is None else ("sequence_length", "shortened")
        )
        raise ValueError(
            f"training.stages: {key} = {getattr(stage, key)}, but the examples of this run "
            f"cannot be {what}: leave it out"
        )
    return source_of(stage)


@dataclass(frozen=True)
class TrainingData:
    """What a run learns from and is measured on, cut into steps."""

    stages: Sequence[Stage]
    """The run's, in their order."""
    held_out: HeldOut | None
    """What it is measured on, if anything."""
    held_out_steps: StepDataset | None
    """The steps of `held_out.source`, if it has one."""
    parts_steps: Mapping[str, StepDataset] = field(default_factory=dict)
    """The steps of `held_out.parts`, by name."""
    is_stream: bool = False
    """Whether the training text is a stream, whose end nobody knows."""

    @property
    def halfway(self) -> Step:
        """Collate the run's first examples as in the middle of the run: objectives change on the way."""
        steps = self.stages[0].steps
        return steps[DataCursor(0, 0, (steps.num_steps or 0) // 2)]

    @property
    def has_fixed_sizes(self) -> bool:
        """Whether micro-batches have one size, for a GPU or for compiled layers."""
        return any(stage.steps.has_fixed_sizes for stage in self.stages)

    def forgo_fixed_sizes(self) -> None:
        """Let all micro-batches be as large as their sequences."""
        for stage in self.stages:
            stage.steps.has_fixed_sizes = False


def epochs_of(stages: Sequence[Stage], steps: int) -> list[float]:
    """Count the epochs that the steps of each stage make, of a run of so many steps."""
    edges = pairwise([*(stage.first_step for stage in stages), steps])
    return [
        (last - first) / len(stage.steps.plan(0)[1])
        for stage, (first, last) in zip(stages, edges, strict=True)
    ]


def warn_of_unfilled_steps(stages: Sequence[Stage]) -> None:
    """Warn if steps stay far below their size, as they do where single examples are nearly as long."""
    for stage in stages:
        if (fill := stage.steps.fill()) < LEAST_FILL:
            size = stage.steps.tokens_per_step
            warnings.warn(
                f"steps hold {fill * size:,.0f} tokens on average, not tokens_per_step = {size:,}, since "
                "single examples are nearly as long as a step: raise tokens_per_step, lower "
                "corpus.sequence_length, or join documents with corpus.isolate_documents=false",
                stacklevel=2,
            )


def prepare_data(
    source: ExampleSource,
    objective: Objective,
    recipe: TrainingRecipe,
    accelerator: Accelerator,
    *,
    source_of: SourceOf | None = None,
    held_out: HeldOut | None = None,
    is_stream: bool = False,
    examples_per_step: int | None = None,
) -> TrainingData:
    """Cut training and held-out examples into the steps of a run, and check them.

    Args:
        source_of: Makes the sources of stages with other sequence lengths or shares; `None` if none has.
        examples_per_step: Examples of a step, if the recipe does not say its tokens.
    """
    cutter = StepCutter(objective, recipe, accelerator)
    stages = cutter.stages(source, source_of, examples_per_step)
    measured = {} if held_out is None else {"": held_out, **held_out.parts}
    steps = {name: cutter.held_out(each.source) for name, each in measured.items() if each.source is not None}
    return TrainingData(stages, held_out, steps.pop("", None), steps, is_stream)


class StagedSteps(Iterator[Step]):
    """The steps of a run from some place on, endlessly; starting late costs nothing.

    Args:
        step: How many steps were taken before.
        start: The place after them; where a stage begins, the next epoch takes its place.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        step: int,
        start: DataCursor,
        *,
        num_workers: int = 0,
        pin_memory: bool = False,
        tell: Callable[[str], None] = lambda line: None,
    ):
        self.tell = tell
        self.load = partial(endless_steps, num_workers=num_workers, pin_memory=pin_memory)
        self.current: PrefetchLoader[Step] | None = None
        self.steps = self._all(stages, step, DataCursor(*start))

    def __next__(self) -> Step:
        return next(self.steps)

    def close(self) -> None:
        self.steps.close()
        self.current = None

    def _all(self, stages: Sequence[Stage], step: int, start: DataCursor) -> Generator[Step, None, None]:
        stops = [*(stage.first_step for stage in stages[1:]), None]
        for stage, stop in zip(stages, stops, strict=True):
            if stop is not None and stop <= step:
                continue
            if step == stage.first_step > 0:
                start = DataCursor(start.epoch + 1, 0, step)
            for line in describe_sizes(stage.steps):  # measured here, not by each worker
                self.tell(line)
            self.current = self.load(stage.steps, start)
            for taken in islice(self.current, None if stop is None else stop - step):
                step, start = step + 1, taken.cursor
                yield taken

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Report of a data worker that dies meanwhile what it was at, as `PrefetchLoader.explained` does."""
        try:
            yield
        except Exception as error:
            with nullcontext() if self.current is None else self.current.explained():
                raise error


def describe_sizes(steps: StepDataset) -> list[str]:
    """Write in a line which fixed sizes a stage has, if it has some, and how much of them is filling."""
    lines = []
    for component, shape in steps.shapes.items():
        named = "" if component is None else f" of objective {component + 1}"
        positions = f", {shape.positions:,} positions" if shape.positions else ""
        lines.append(
            f"fixed sizes{named}: {' + '.join(f'{number:,}' for number in shape.streams)} tokens, "
            f"{shape.sequences:,} sequences{positions} a micro-batch; {shape.filling:.1%} filling"
        )
    return lines
