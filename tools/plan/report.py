"""A plan as text for a terminal, which is Markdown when pasted.

Numbers have three digits, and decimal units, as data sheets do: 1 GB is a billion bytes.
"""

from collections.abc import Iterable
from dataclasses import fields

from ...reports.blocks import Bullets, Note, Table
from ...reports.text import for_terminal
from .layouts import Memory
from .plan import SECONDS_PER_HOUR, Outlook, Plan

UNITS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
"""Powers of a thousand."""

TIMES = [(1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"), (86_400.0, "days")]
"""Units of time, in seconds."""


def report_plan(plan: Plan) -> str:
    """Write everything that a plan says."""
    recipe, machines = plan.recipe, plan.machines
    title = (
        f"# {recipe.model.origin}, {recipe.objective.kind.replace('_', ' ')}, on "
        f"{machines.devices:,} x {machines.device}"
    )
    memory = ["layout", *(field.name for field in fields(Memory)), "sum", "fits"]
    blocks = [
        Note(title),
        Table(["the run", ""], run_rows(plan)),
        *([Table(STAGE_COLUMNS, stage_rows(plan))] if recipe.training.stages else []),
        Note("Memory of one device:"),
        Table(memory, memory_rows(plan)),
        Note("Speed and cost (micro-batches: number x sequences in each):"),
        Table([*SPEED_COLUMNS, *(["price"] if machines.price_per_device_hour else [])], speed_rows(plan)),
        Bullets(verdicts(plan)),
        Note("Assumptions:"),
        Bullets(assumptions(plan)),
    ]
    return for_terminal(blocks)


def run_rows(plan: Plan) -> list[list[str]]:
    """Return what is computed, whoever computes it."""
    training, sequence = plan.recipe.training, plan.last.sequence
    read = f"{sequence.read:,} + {sequence.written:,}" if sequence.written else f"{sequence.read:,}"
    rest = plan.parameters - plan.embedding_parameters
    return [
        ["parameters", f"{plan.parameters:,}"],
        ["of embeddings", f"{plan.embedding_parameters:,}"],
        ["of the rest", f"{rest:,}"],
        ["tokens of a sequence", read],
        ["tokens of a step", f"{plan.last.tokens_per_step:,} ({plan.last.sequences:,} sequences)"],
        ["steps", f"{training.steps:,}"],
        ["tokens", f"{plan.tokens:,} ({digits(plan.tokens / plan.parameters)} per parameter)"],
        ["operations per token", f"{short(plan.flops_per_token)}FLOP"],
        ["operations", f"{short(plan.flops)}FLOP"],
    ]


STAGE_COLUMNS = ("stage", "steps", "tokens of a sequence", "tokens of a step", "tokens")


def stage_rows(plan: Plan) -> list[list[str]]:
    """Return how the steps of each stage are cut."""
    return [
        [
            f"{number}",
            f"{stage.steps:,}",
            f"{stage.sequence.tokens:,}",
            f"{stage.tokens_per_step:,} ({stage.sequences:,} sequences)",
            f"{stage.tokens:,}",
        ]
        for number, stage in enumerate(plan.stages, start=1)
    ]


def memory_rows(plan: Plan) -> list[list[str]]:
    """Return each layout's memory by part."""
    rows = []
    for outlook in plan.outlooks:
        parts = [getattr(outlook.memory, field.name) for field in fields(Memory)]
        amounts = map(size, [*parts, outlook.memory.total])
        rows.append([outlook.layout.name, *amounts, "yes" if outlook.fits else "no"])
    return rows


SPEED_COLUMNS = (
    "layout", "micro-batches", "sent a step", "computing", "sending", "tokens/s", "time", "device-hours",
)  # fmt: skip


def speed_rows(plan: Plan) -> list[list[str]]:
    """Return each layout's traffic, speed and cost."""
    return [
        [
            outlook.layout.name,
            f"{outlook.micro_batches:,} x {outlook.sequences:,}",
            size(outlook.traffic),
            duration(outlook.computing),
            duration(outlook.sending),
            f"{outlook.tokens_per_second:,.0f}",
            duration(outlook.hours * SECONDS_PER_HOUR),
            digits(outlook.device_hours),
            *([] if outlook.price is None else [f"{outlook.price:,.2f}"]),
        ]
        for outlook in plan.outlooks
    ]


def verdicts(plan: Plan) -> list[str]:
    """Return which layouts fit, what would make the others fit, and which wait for their traffic."""
    available = size(plan.machines.available_memory)
    lines = [f"Fits: {names(outlook for outlook in plan.outlooks if outlook.fits) or 'nothing'}."]
    for outlook in plan.outlooks:
        if outlook.fits:
            continue
        line = f"{outlook.layout.name} does not fit: {size(outlook.memory.total)} of {available}"
        if outlook.fitting_sequences is None:
            lines.append(f"{line}, and no micro-batch is small enough.")
        else:
            tokens = outlook.fitting_sequences * plan.last.sequence.tokens
            lines.append(f"{line}; it would with training.tokens_per_micro_batch={tokens}.")
    training = plan.recipe.training
    if not (training.gradient_checkpointing or all(outlook.fits for outlook in plan.outlooks)):
        lines.append("training.gradient_checkpointing=true takes less memory, and a third more time.")
    if waiting := names(outlook for outlook in plan.outlooks if outlook.sending > outlook.computing):
        lines.append(f"Limited by communication: {waiting}; larger steps or micro-batches would help.")
    return lines


def names(outlooks: Iterable[Outlook]) -> str:
    return ", ".join(outlook.layout.name for outlook in outlooks)


def assumptions(plan: Plan) -> list[str]:
    """Return what the numbers rest on."""
    machines = plan.machines
    of_stages = "Values of a step are those of the last stage; memory is that of the stage that needs most."
    training = plan.recipe.training
    offload = "training.cpu_offload needs FSDP2 or HSDP; the time of copies and of steps on the CPU is not "
    offload += "included."
    return [
        f"{plan.mfu:.0%} of {short(machines.peak(plan.precision))}FLOP/s in {plan.precision}, "
        f"{size(machines.available_memory)} usable, {size(machines.link)}/s to other devices.",
        *(
            f"That share rests on {known.share:.0%} at width {known.width}: {known.source}."
            for known in plan.known_shares
        ),
        f"Numbers of {machines.device}: {machines.kind.source}.",
        *([of_stages] if training.stages else []),
        *([offload] if training.cpu_offload else []),
        f"Every sequence is full, and the vocabulary has {plan.vocab_size:,} entries.",
        "Communication overlaps with computation; evaluation, checkpoints and data preparation are not "
        "included.",
    ]


def size(amount: float) -> str:
    return f"{short(amount)}B"


def digits(number: float) -> str:
    """Write a number with three digits, or all of its whole ones; what is below a thousandth is 0."""
    if number >= 100:
        return f"{number:,.0f}"
    places = 1 if number >= 10 else 2 if number >= 1 else 3
    return f"{number:.{places}f}" if number >= 0.0005 else "0"


def short(number: float) -> str:
    """Write a large number with three digits and the letter of its power of a thousand."""
    power = 0
    while number >= 999.5 and power < len(UNITS) - 1:
        number, power = number / 1000, power + 1
    return f"{digits(number)} {UNITS[power]}"


def duration(seconds: float) -> str:
    fitting = [(size, unit) for size, unit in TIMES if seconds >= size] or TIMES[:1]
    size, unit = fitting[-1]
    return f"{digits(seconds / size)} {unit}"
