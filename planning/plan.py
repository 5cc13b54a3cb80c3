"""A run before it runs: what it computes, holds and sends on some machines, and how long that takes.

model      parameters, operations, what is kept      (`model_costs.py`)
stages     sequences and micro-batches of a step     (`planned_stages.py`)
layouts    who holds and sends what                  (`device_layouts.py`)    ->  a `Plan`, for `report.py`
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ..modeling.pretrained import TercetPreTrainedModel
from ..objectives.base_recipe import FullSequence
from ..pretraining.recipe import PretrainingRecipe
from .device_layouts import Layout, Memory, Share, layouts
from .machines import PeakShare, PlanRecipe
from .model_costs import build_planned_model, count_embeddings
from .planned_stages import PlannedStage, plan_stages

SECONDS_PER_HOUR = 3600

COMPUTED_AGAIN = 4 / 3
"""Time of a step by what it would take without a second forward pass: that is a third of the operations."""


@dataclass(frozen=True)
class Outlook:
    """What one layout would cost; a step is one of the last stage, where the recipe's own values hold."""

    layout: Layout
    share: Share
    """What one device does in a step."""
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
    """Of the whole run."""
    price: float | None
    """Of the whole run, if an hour has one."""

    @property
    def device_hours(self) -> float:
        """Hours by devices."""
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
    """Of the model, token vectors included."""
    embedding_parameters: int
    """Those of its token vectors."""
    vocab_size: int
    """Of the tokenizer."""
    mfu: float
    """Share of peak that is reckoned with."""
    known_shares: tuple[PeakShare, ...]
    """What it rests on; empty if it was given."""
    stages: tuple[PlannedStage, ...]
    """The recipe's, and at last the one in which its own values hold."""
    outlooks: tuple[Outlook, ...]
    """One for each layout."""

    def __str__(self) -> str:
        """Write the report."""
        from .report import report_plan

        return report_plan(self)

    def __repr__(self) -> str:
        """Name the model and what is computed."""
        model, machines = self.recipe.model, self.machines
        return (
            f"<plan of {model.preset or model.path} on {machines.devices:,} x {machines.device}: "
            f"{self.parameters:,} parameters, {len(self.outlooks)} layouts>"
        )

    def _repr_markdown_(self) -> str:
        """Show the report, whose tables are Markdown, in a notebook."""
        return str(self)

    @property
    def sequence(self) -> FullSequence:
        """Return the sequences of the last stage."""
        return self.stages[-1].sequence

    @property
    def sequences_per_step(self) -> int:
        """Count those of a step of the last stage."""
        return self.stages[-1].sequences

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step of the last stage."""
        return self.stages[-1].tokens_per_step

    @property
    def tokens(self) -> int:
        """Tokens of the whole run."""
        return sum(stage.tokens for stage in self.stages)

    @property
    def flops_per_token(self) -> float:
        """Operations, forward and backward, averaged over the run."""
        return self.flops / self.tokens

    @property
    def flops(self) -> float:
        """Operations of the whole run."""
        return sum(stage.flops for stage in self.stages)


def require_planned_kind(recipe: PretrainingRecipe) -> None:
    """Raise a `ValueError` if a recipe trains a model whose costs are not known: no Transformer."""
    model_class = recipe.objective.model_class
    if not issubclass(model_class, TercetPreTrainedModel):
        raise ValueError(
            f"{recipe.objective.kind} trains a {model_class.__name__}, whose costs cannot be planned: only "
            "those of Transformers can; run a few steps instead (training.steps=20), which tell their speed"
        )


def plan_run(recipe: PretrainingRecipe, machines: PlanRecipe) -> Plan:
    """Plan a run; no text is read, nothing is trained, no storage is taken.

    Raises:
        ValueError: Parts of the recipe do not fit each other, a step has too few sequences for the devices,
            the device does not compute in the recipe's precision, or the model is no Transformer.
    """
    require_planned_kind(recipe)
    wanted = recipe.training.precision
    precision = machines.automatic_precision if wanted == "auto" else wanted
    peak = machines.peak(precision)
    model = build_planned_model(recipe)
    stages = plan_stages(recipe, model, machines, precision)
    mfu, known_shares = machines.share_of_peak(model.config.hidden_size)
    work = Work(recipe, machines, peak * mfu, stages)
    return Plan(
        recipe=recipe,
        machines=machines,
        precision=precision,
        parameters=stages[-1].load.parameters,
        embedding_parameters=count_embeddings(model),
        vocab_size=model.config.vocab_size,
        mfu=mfu,
        known_shares=known_shares,
        stages=stages,
        outlooks=tuple(map(work.outlook, layouts(machines.devices, machines.devices_per_node))),
    )


@dataclass(frozen=True)
class Work:
    """What is to be done, whoever shares it."""

    recipe: PretrainingRecipe
    machines: PlanRecipe
    """What shares it."""
    speed: float
    """Operations per second that one device reaches."""
    stages: Sequence[PlannedStage]

    @property
    def last(self) -> PlannedStage:
        """Return the stage in which the recipe's own values hold."""
        return self.stages[-1]

    def outlook(self, layout: Layout) -> Outlook:
        """Work out one layout."""
        share = self.share(layout, self.last)
        memory = self.memory(layout)
        traffic = layout.traffic(self.last.load, share)
        computing, sending = self.seconds(layout, self.last)
        seconds = sum(stage.steps * max(self.seconds(layout, stage)) for stage in self.stages)
        hours = seconds / SECONDS_PER_HOUR
        price = self.machines.price_per_device_hour
        return Outlook(
            layout=layout,
            share=share,
            memory=memory,
            fits=self.fits(memory),
            fitting_sequences=self.fitting_sequences(layout),
            traffic=traffic,
            computing=computing,
            sending=sending,
            tokens_per_second=self.last.tokens_per_step / max(computing, sending),
            hours=hours,
            price=None if price is None else price * hours * layout.devices,
        )

    def seconds(self, layout: Layout, stage: PlannedStage) -> tuple[float, float]:
        """Estimate the time that a step of a stage takes to compute, and to send."""
        flops = stage.flops_per_sequence * stage.sequences / layout.devices
        share, machines = self.share(layout, stage), self.machines
        within = layout.traffic_within(stage.load, share)
        sending = (layout.traffic(stage.load, share) - within) / machines.link
        again = COMPUTED_AGAIN if self.recipe.training.gradient_checkpointing else 1
        return again * flops / self.speed, sending + within / machines.kind.node_bandwidth

    def share(self, layout: Layout, stage: PlannedStage, limit: int | None = None) -> Share:
        """Cut a step into micro-batches as `training.batches` does: the fewest that keep the limit.

        Args:
            layout: Its devices take equally many.
            stage: Whose step it is.
            limit: Tokens of a micro-batch at most; by default what the recipe allows.
        """
        limit = limit or self.recipe.training.tokens_per_micro_batch or stage.tokens_limit
        most = limit // stage.sequence.tokens
        per_device = -(-stage.sequences // (most * layout.devices))
        largest = -(-stage.sequences // (per_device * layout.devices))
        return Share(per_device, largest)

    def memory(self, layout: Layout, limit: int | None = None) -> Memory:
        """Count what a device holds in the stage that needs most, with micro-batches of so many tokens."""
        held = (layout.memory(stage.load, self.share(layout, stage, limit)) for stage in self.stages)
        return max(held, key=lambda memory: memory.total)

    def fits(self, memory: Memory) -> bool:
        """Return whether a device has room."""
        return memory.total <= self.machines.available_memory

    def fitting_sequences(self, layout: Layout) -> int | None:
        """Find the largest micro-batch, up to the wanted one, for which a device has room in every stage.

        Larger ones need more: the limit is found by bisection.
        """
        tokens = self.last.sequence.tokens
        wanted = max(self.share(layout, stage).sequences * stage.sequence.tokens for stage in self.stages)
        sizes = range(1, max(wanted // tokens, 1) + 1)
        fitting = bisect_left(sizes, True, key=lambda most: not self.fits(self.memory(layout, most * tokens)))
        return self.share(layout, self.last, fitting * tokens).sequences if fitting else None
