"""Plan decoders of 125 million to 7 billion parameters on 64 GPUs: what each layout asks of a device.

    python examples/compare_sizes.py

Prints the tables of docs/scaling.md. Each model learns from 20 tokens per parameter (Hoffmann et al., 2022,
section 3) by AdamW, in steps as large as GPT-3's (Brown et al., 2020, table 2.1), four sequences at a time.
Other machines: python examples/compare_sizes.py device=a100 devices=256
"""

import sys

import tercet
from tercet.planning.model_costs import build_planned_model, count
from tercet.planning.plan import Outlook, Plan
from tercet.planning.report import digits, duration, short, size
from tercet.reporting.blocks import Table
from tercet.reporting.text import for_terminal

TOKENS_PER_STEP = {
    "decoder-base": 2**19,
    "decoder-350m": 2**19,
    "decoder-1.3b": 2**20,
    "decoder-2.7b": 2**20,
    "decoder-7b": 2**21,
}
"""The models, by preset."""

LENGTH = 2048
TOKENS_PER_PARAMETER = 20


def plan_size(preset: str, machines: list[str]) -> Plan:
    """Plan a run that is as long as the model's size asks for."""
    values = [
        f"model.preset={preset}",
        f"model.overrides.max_position_embeddings={LENGTH}",
        f"corpus.sequence_length={LENGTH}",
        "tokenizer.vocab_size=50257",
        "training.optimizer={kind: adamw, learning_rate: 3.0e-4}",
        f"training.tokens_per_step={TOKENS_PER_STEP[preset]}",
        f"training.tokens_per_micro_batch={4 * LENGTH}",
    ]
    recipe = tercet.load_recipe("decoder-english", *values)
    tokens = TOKENS_PER_PARAMETER * count([build_planned_model(recipe)])
    steps = f"training.steps={round(tokens / TOKENS_PER_STEP[preset])}"
    return tercet.plan("decoder-english", *values, steps, *machines)


def name(plan: Plan) -> str:
    """Name a model and its size."""
    return f"{plan.recipe.model.preset} ({digits(plan.parameters / 1e6)} M)"


def memory(outlook: Outlook) -> str:
    """Write what a device holds, in brackets if that is too much."""
    amount = size(outlook.memory.total)
    return amount if outlook.fits else f"({amount})"


def fastest(plan: Plan) -> list[str]:
    """Describe the run in the fastest layout that fits."""
    fitting = [outlook for outlook in plan.outlooks if outlook.fits]
    if not fitting:
        return ["none fits", "-", "-", "-"]
    best = max(fitting, key=lambda outlook: outlook.tokens_per_second)
    return [
        best.layout.name,
        f"{best.tokens_per_second:,.0f}",
        duration(best.hours * 3600),
        digits(best.device_hours),
    ]


def main(machines: list[str]) -> None:
    """Print memory and traffic in every layout, then speed and cost in the fastest."""
    plans = [plan_size(preset, machines) for preset in TOKENS_PER_STEP]
    layouts = [outlook.layout.name for outlook in plans[0].outlooks]
    rows = [[name(plan), *map(memory, plan.outlooks)] for plan in plans]
    tables = [Table(["memory of a device", *layouts], rows)]
    rows = [[name(plan), *(size(outlook.traffic) for outlook in plan.outlooks)] for plan in plans]
    tables.append(Table(["sent in a step", *layouts], rows))
    rows = [
        [name(plan), f"{digits(plan.tokens / 1e9)} billion", f"{short(plan.flops)}FLOP", *fastest(plan)]
        for plan in plans
    ]
    columns = ["the run", "tokens", "operations", "layout", "tokens/s", "time", "device-hours"]
    print(for_terminal([*tables, Table(columns, rows)]))


if __name__ == "__main__":
    main(sys.argv[1:] or ["devices=64", "device=h100"])
