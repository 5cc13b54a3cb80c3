"""A run before it runs: what it computes, holds and sends on some machines, and how long that takes.

model      parameters, operations, what is kept      (`model_costs.py`)
step       sequences, micro-batches                  (as `training/batches.py` cuts them)
layouts    who holds and sends what                  (`layouts.py`)    ->  a `Plan`, for `plan_report.py`
"""

from dataclasses import dataclass
from functools import partial

from ..objectives.base_recipe import FullSequence
from ..pretraining.recipe import PretrainingRecipe
from .device_layouts import Layout, Load, Memory, Share, layouts
from .model_costs import (
    DTYPES,
    blocks_of,
    build_planned_model,
    count,
    count_embeddings,
    count_flops,
    loss_bytes,
    optimizer_bytes,
    trace_kept,
)
from .recipe import PlanRecipe

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Outlook:
    """What one layout would cost."""

    layout: Layout
    share: Share
    """What one device does in a step."""
    memory: Memory
    """What it holds."""
    fits: bool
    """Whether that is no more than it may hold."""
    fitting_sequences: int | None
    """Sequences of the largest micro-batch that would fit; `None` if not even one does."""
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


@dataclass(frozen=True)
class Plan:
    """What is known of a run beforehand."""

    recipe: PretrainingRecipe
    machines: PlanRecipe
    precision: str
    """Format of the products."""
    parameters: int
    embedding_parameters: int
    vocab_size: int
    sequence: FullSequence
    """What every sequence is taken to be."""
    sequences_per_step: int
    flops_per_sequence: float
    outlooks: tuple[Outlook, ...]
    """One for each layout."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step's sequences."""
        return self.sequences_per_step * self.sequence.tokens

    @property
    def tokens(self) -> int:
        """Tokens of the whole run."""
        return self.tokens_per_step * self.recipe.training.steps

    @property
    def flops_per_token(self) -> float:
        """Operations, forward and backward."""
        return self.flops_per_sequence / self.sequence.tokens

    @property
    def flops(self) -> float:
        """Operations of the whole run."""
        return self.flops_per_token * self.tokens


def plan_run(recipe: PretrainingRecipe, machines: PlanRecipe) -> Plan:
    """Plan a run; no text is read, nothing is trained, no storage is taken.

    Raises:
        ValueError: Parts of the recipe do not fit each other, a step has too few sequences for the devices,
            or the device does not compute in the recipe's precision.
    """
    precision = "bf16" if recipe.training.precision == "auto" else recipe.training.precision
    peak = machines.peak(precision)
    model = build_planned_model(recipe)
    sequence = recipe.objective.full_sequence(recipe.corpus.sequence_length)
    sequences = sequences_per_step(recipe, sequence.tokens, machines.devices)
    is_cpu = machines.device == "cpu"
    trace = partial(trace_kept, model.config, sequence, precision=precision, is_cpu=is_cpu)
    blocks = blocks_of(model)
    load = Load(
        parameters=count([model]),
        block_parameters=count(blocks),
        largest_block=max(count([block]) for block in blocks),
        optimizer_bytes=optimizer_bytes(model, recipe.training),
        product_bytes=DTYPES[precision].itemsize,
        kept=trace(),
        kept_of_cast=trace(weights=DTYPES[precision]),
        loss_bytes=partial(loss_bytes, model.config, sequence, DTYPES[precision], is_cpu=is_cpu),
    )
    work = Work(recipe, machines, peak, sequence, sequences, count_flops(model, sequence), load)
    return Plan(
        recipe=recipe,
        machines=machines,
        precision=precision,
        parameters=load.parameters,
        embedding_parameters=count_embeddings(model),
        vocab_size=model.config.vocab_size,
        sequence=sequence,
        sequences_per_step=sequences,
        flops_per_sequence=work.flops_per_sequence,
        outlooks=tuple(work.outlook(layout) for layout in layouts(machines.devices)),
    )


def sequences_per_step(recipe: PretrainingRecipe, tokens: int, devices: int) -> int:
    """Count the full sequences of a step.

    Raises:
        ValueError: There are fewer than devices, or one does not fit a micro-batch.
    """
    training = recipe.training
    if training.tokens_per_micro_batch is not None and tokens > training.tokens_per_micro_batch:
        raise ValueError(
            f"training.tokens_per_micro_batch is {training.tokens_per_micro_batch:,}, but a full sequence "
            f"has {tokens:,} tokens: raise it, or shorten corpus.sequence_length"
        )
    sequences = training.tokens_per_step // tokens
    if sequences < devices:
        raise ValueError(
            f"training.tokens_per_step is {training.tokens_per_step:,}, which is {sequences:,} full "
            f"sequences of {tokens:,} tokens for {devices:,} devices: raise it to {tokens * devices:,} or "
            "more, or take fewer devices"
        )
    return sequences


@dataclass(frozen=True)
class Work:
    """What is to be done, whoever shares it."""

    recipe: PretrainingRecipe
    machines: PlanRecipe
    peak: float
    """Operations per second of one device."""
    sequence: FullSequence
    sequences: int
    """Of a step."""
    flops_per_sequence: float
    load: Load

    def outlook(self, layout: Layout) -> Outlook:
        """Work out one layout."""
        share = self.share(layout)
        memory = layout.memory(self.load, share)
        traffic = layout.traffic(self.load, share)
        flops = self.flops_per_sequence * self.sequences / layout.devices
        computing, sending = flops / (self.peak * self.machines.mfu), traffic / self.machines.link
        seconds = max(computing, sending)
        hours = seconds * self.recipe.training.steps / SECONDS_PER_HOUR
        price = self.machines.price_per_device_hour
        return Outlook(
            layout=layout,
            share=share,
            memory=memory,
            fits=self.fits(memory),
            fitting_sequences=self.fitting_sequences(layout, share.sequences),
            traffic=traffic,
            computing=computing,
            sending=sending,
            tokens_per_second=self.sequences * self.sequence.tokens / seconds,
            hours=hours,
            price=None if price is None else price * hours * layout.devices,
        )

    def share(self, layout: Layout, most: int | None = None) -> Share:
        """Cut a step into micro-batches as `training.batches` does: the fewest that keep the limit.

        Args:
            layout: Its devices take equally many.
            most: Sequences of a micro-batch at most; by default what the recipe's limit of tokens allows.
        """
        limit = self.recipe.training.tokens_per_micro_batch or self.recipe.training.tokens_per_step
        most = most or limit // self.sequence.tokens
        per_device = -(-self.sequences // (most * layout.devices))
        largest = -(-self.sequences // (per_device * layout.devices))
        return Share(per_device, largest)

    def fits(self, memory: Memory) -> bool:
        """Tell whether a device has room."""
        return memory.total <= self.machines.available_memory

    def fitting_sequences(self, layout: Layout, wanted: int) -> int | None:
        """Find the largest micro-batch, up to the wanted one, for which a device has room."""
        shares = (self.share(layout, most) for most in range(wanted, 0, -1))
        fitting = (share for share in shares if self.fits(layout.memory(self.load, share)))
        found = next(fitting, None)
        return None if found is None else found.sequences
