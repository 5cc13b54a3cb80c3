"""A run before it runs: what it computes, holds and sends on some machines, and how long that takes.

model      parameters, operations, what is kept      (`model_costs.py`)
layouts    who holds and sends what                  (`layouts.py`)    ->  a `Plan`, for `report.py`
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, partial

from torch import nn

from ...modeling.pretrained import TercetPreTrainedModel
from ...pretraining.objectives.recipes import BaseObjectiveRecipe, FullSequence, JointModel, Trainable
from ...pretraining.recipe import PretrainingRecipe
from ...training.recipe import TrainingRecipe
from .layouts import Layout, Load, Memory, layouts
from .machines import PeakShare, PlanRecipe
from .model_costs import (
    DTYPES,
    blocks_of,
    build_planned_model,
    count,
    count_embeddings,
    count_flops,
    kept_by,
    loss_bytes,
    optimizer_bytes,
)

SECONDS_PER_HOUR = 3600

COMPUTED_AGAIN = 4 / 3
"""Time of a step by what it would take without a second forward pass: that is a third of the operations."""


@dataclass(frozen=True)
class PlannedStage:
    """Steps of a run that are cut alike; a run without stages is one."""

    steps: int
    """How many there are."""
    tokens_limit: int
    """Tokens of a step at most."""
    sequence: FullSequence
    """What every sequence is taken to be."""
    sequences: int
    """Sequences of a step."""
    flops_per_sequence: float
    """FLOPs of a sequence's forward and backward pass."""
    load: Load
    """What its sequences need."""

    @property
    def tokens_per_step(self) -> int:
        return self.sequences * self.sequence.tokens

    @property
    def tokens(self) -> int:
        return self.steps * self.tokens_per_step

    @property
    def flops(self) -> float:
        return self.steps * self.sequences * self.flops_per_sequence


@dataclass(frozen=True)
class Outlook:
    """What one layout would cost; a step is one of the last stage, where the recipe's own values hold."""

    layout: Layout
    micro_batches: int
    """How many follow one another on a device in a step."""
    sequences: int
    """Sequences of the largest of them."""
    memory: Memory
    """What it holds, in the stage that needs most."""
    fits: bool
    """Whether that is no more than it may hold."""
    fitting_sequences: int | None
    """Sequences of the largest micro-batch that would fit, of full length; `None` if not even one does."""
    traffic: float
    """Bytes that it sends in a step."""
    computing: float
    """Seconds a step that computing takes."""
    sending: float
    """Seconds a step that the traffic takes; it runs beside computing, and the longer of the two counts."""
    tokens_per_second: float
    """Tokens of a step, over all devices, by its time."""
    hours: float
    """Hours of the whole run."""
    price: float | None
    """Price of the whole run, if an hour has one."""

    @property
    def device_hours(self) -> float:
        return self.hours * self.layout.devices


@dataclass(frozen=True, repr=False)
class Plan:
    """What is known of a run beforehand. As text, it is its report."""

    recipe: PretrainingRecipe
    machines: PlanRecipe
    """What it may run on."""
    precision: str
    """Format of the products."""
    parameters: int
    """Parameters of the model, token vectors included."""
    embedding_parameters: int
    """Those of its token vectors."""
    vocab_size: int
    """Size of the tokenizer's vocabulary."""
    mfu: float
    """Share of peak that is reckoned with."""
    known_shares: tuple[PeakShare, ...]
    """What it rests on; empty if it was given."""
    stages: tuple[PlannedStage, ...]
    """The recipe's, and at last the one in which its own values hold."""

    def __str__(self) -> str:
        from .report import report_plan

        return report_plan(self)

    def __repr__(self) -> str:
        model, machines = self.recipe.model, self.machines
        return (
            f"<plan of {model.preset or model.path} on {machines.devices:,} x {machines.device}: "
            f"{self.parameters:,} parameters, {len(self.outlooks)} layouts>"
        )

    def _repr_markdown_(self) -> str:
        return str(self)

    @property
    def last(self) -> PlannedStage:
        """Return the stage in which the recipe's own values hold."""
        return self.stages[-1]

    @property
    def tokens(self) -> int:
        return sum(stage.tokens for stage in self.stages)

    @property
    def flops(self) -> float:
        """Operations of the whole run, forward and backward."""
        return sum(stage.flops for stage in self.stages)

    @property
    def flops_per_token(self) -> float:
        return self.flops / self.tokens

    @property
    def speed(self) -> float:
        """Operations per second that one device reaches."""
        return self.machines.peak(self.precision) * self.mfu

    @cached_property
    def outlooks(self) -> tuple[Outlook, ...]:
        """What each layout would cost."""
        return tuple(map(self.outlook, layouts(self.machines.devices, self.machines.devices_per_node)))

    def outlook(self, layout: Layout) -> Outlook:
        last, memory = self.last, self.memory(layout)
        micro_batches, sequences = self.share(layout, last)
        computing, sending = self.seconds(layout, last)
        hours = sum(each.steps * max(self.seconds(layout, each)) for each in self.stages) / SECONDS_PER_HOUR
        price = self.machines.price_per_device_hour
        return Outlook(
            layout=layout,
            micro_batches=micro_batches,
            sequences=sequences,
            memory=memory,
            fits=self.fits(memory),
            fitting_sequences=self.fitting_sequences(layout),
            traffic=layout.traffic_within(last.load, micro_batches) + layout.traffic_between(last.load),
            computing=computing,
            sending=sending,
            tokens_per_second=last.tokens_per_step / max(computing, sending),
            hours=hours,
            price=None if price is None else price * hours * layout.devices,
        )

    def seconds(self, layout: Layout, stage: PlannedStage) -> tuple[float, float]:
        """Estimate the time that a step of a stage takes to compute, and to send."""
        flops = stage.flops_per_sequence * stage.sequences / layout.devices
        again = COMPUTED_AGAIN if self.recipe.training.gradient_checkpointing else 1
        machines, within = self.machines, layout.traffic_within(stage.load, self.share(layout, stage)[0])
        is_hybrid = 1 < layout.shards < layout.devices
        link = machines.kind.node_bandwidth if is_hybrid else machines.link
        return again * flops / self.speed, within / link + layout.traffic_between(stage.load) / machines.link

    def share(self, layout: Layout, stage: PlannedStage, limit: int | None = None) -> tuple[int, int]:
        """Cut a step into micro-batches as `training.batches` does: the fewest that keep the limit.

        Returns how many a device has, and the sequences of the largest.

        Args:
            layout: Its devices take equally many.
            limit: Tokens of a micro-batch at most; by default what the recipe allows.
        """
        limit = limit or self.recipe.training.tokens_per_micro_batch or stage.tokens_limit
        most = limit // stage.sequence.tokens
        per_device = -(-stage.sequences // (most * layout.devices))
        return per_device, -(-stage.sequences // (per_device * layout.devices))

    def memory(self, layout: Layout, limit: int | None = None) -> Memory:
        """Count what a device holds in the stage that needs most, with micro-batches of so many tokens."""
        held = (layout.memory(stage.load, self.share(layout, stage, limit)[1]) for stage in self.stages)
        return max(held, key=lambda memory: memory.total)

    def fits(self, memory: Memory) -> bool:
        return memory.total <= self.machines.available_memory

    def fitting_sequences(self, layout: Layout) -> int | None:
        """Find the largest micro-batch, up to the wanted one, for which a device has room in every stage.

        Larger ones need more: the limit is found by bisection.
        """
        tokens = self.last.sequence.tokens
        wanted = max(self.share(layout, stage)[1] * stage.sequence.tokens for stage in self.stages)
        sizes = range(1, max(wanted // tokens, 1) + 1)
        fitting = bisect_left(sizes, True, key=lambda most: not self.fits(self.memory(layout, most * tokens)))
        return self.share(layout, self.last, fitting * tokens)[1] if fitting else None


def require_planned_kind(kind: str, model_class: type[nn.Module]) -> None:
    """Raise a `ValueError` if an objective trains a model whose costs are not known: no Transformer."""
    if not issubclass(model_class, TercetPreTrainedModel | JointModel):
        raise ValueError(
            f"{kind} trains a {model_class.__name__}, whose costs cannot be planned: only "
            "those of Transformers can; run a few steps instead (training.steps=20), which tell their speed"
        )


def plan_run(recipe: PretrainingRecipe, machines: PlanRecipe) -> Plan:
    """Plan a run; no text is read, nothing is trained, no storage is taken."""
    objective, training = recipe.objective, recipe.training
    require_planned_kind(objective.kind, objective.model_class)
    model = build_planned_model(recipe)
    require_planned_kind(objective.kind, type(model))
    stages = plan_stages(objective, training, recipe.corpus.sequence_length, model, machines)
    mfu, known_shares = machines.share_of_peak(model.config.hidden_size)
    return Plan(
        recipe=recipe,
        machines=machines,
        precision=machines.precision_of(training),
        parameters=stages[-1].load.parameters,
        embedding_parameters=count_embeddings(model),
        vocab_size=model.config.vocab_size,
        mfu=mfu,
        known_shares=known_shares,
        stages=stages,
    )


def plan_stages(
    objective: BaseObjectiveRecipe,
    training: TrainingRecipe,
    longest: int,
    model: Trainable,
    machines: PlanRecipe,
) -> tuple[PlannedStage, ...]:
    """Work out what the steps of each stage compute and hold, and those of the recipe's own values.

    Args:
        longest: Tokens of a full sequence.
    """
    cuts = [
        (stage.steps, stage.sequence_length or longest, stage.tokens_per_step or training.tokens_per_step)
        for stage in training.stages
    ]
    cuts.append((training.steps - sum(steps for steps, _, _ in cuts), longest, training.tokens_per_step))
    sequences = [  # refused before the machine is measured
        sequences_per_step(
            training,
            objective.full_sequence(length).tokens,
            limit,
            machines.devices,
            "training.stages: " if number < len(training.stages) else "training.",
        )
        for number, (_, length, limit) in enumerate(cuts)
    ]
    blocks, products = blocks_of(model), DTYPES[machines.precision_of(training)]
    remembered, is_cpu = optimizer_bytes(model, training), machines.kind.is_cpu

    def planned(steps: int, length: int, limit: int, sequences: int) -> PlannedStage:
        sequence, parts = objective.full_sequence(length), objective.parts(model, length)
        options = {"is_cpu": is_cpu, "computes_again": training.gradient_checkpointing}
        load = Load(
            parameters=count([model]),
            block_parameters=count(blocks),
            largest_block=max(count([block]) for block in blocks),
            optimizer_bytes=remembered,
            product_bytes=products.itemsize,
            kept=kept_by(parts, products, DTYPES["fp32"], **options),
            kept_of_cast=kept_by(parts, products, products, **options),
            loss_bytes=partial(loss_bytes, parts, products, is_cpu=is_cpu),
            offloads=training.cpu_offload,
        )
        return PlannedStage(steps, limit, sequence, sequences, count_flops(parts), load)

    return tuple(planned(*cut, number) for cut, number in zip(cuts, sequences, strict=True))


def sequences_per_step(training: TrainingRecipe, tokens: int, limit: int, devices: int, where: str) -> int:
    """Count the full sequences of a step.

    Args:
        tokens: Tokens of a sequence.
        limit: Tokens of a step.
        devices: How many share it.
        where: Begins the name of the key that gives the limit.
    """
    if training.tokens_per_micro_batch is not None and tokens > training.tokens_per_micro_batch:
        raise ValueError(
            f"training.tokens_per_micro_batch is {training.tokens_per_micro_batch:,}, but a full sequence "
            f"has {tokens:,} tokens: raise it, or shorten corpus.sequence_length"
        )
    sequences = limit // tokens
    if sequences < devices:
        raise ValueError(
            f"{where}tokens_per_step is {limit:,}, which is {sequences:,} full "
            f"sequences of {tokens:,} tokens for {devices:,} devices: raise it to {tokens * devices:,} or "
            "more, or take fewer devices"
        )
    return sequences
