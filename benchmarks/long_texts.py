"""Read long texts side by side with transformers' BigBird: time, peak of memory, and how both grow.

Encoders of equal sizes without heads read one text, by patterns of attention:

    tercet        ours in big bird's pattern: a window of three blocks, two global ones, four drawn
    tercet-bf16   the same in bfloat16
    tercet-full   ours, every token attending to every other
    stock         transformers' BigBird, block_sparse: a window of three blocks, two global ones, three drawn
    stock-bf16    the same in bfloat16, forward only
    stock-full    the same, original_full

Sides without `bf16` compute in float32. Ours train in bfloat16 by autocast, with weights in float32, as the
engine does. The block_sparse attention of transformers 5.23 raises an error under autocast, so that
`stock-bf16` does not train. Both read forward with weights in bfloat16. Our float32 products are those of the
engine (`fastest_float32_products`). Reading forward, our weights are prepacked. Nobody drops anything: where
weights of attention are dropped, ours is dense.

Each of our blocks draws two earlier ones, and those that it drew attend to it, which makes four on average.
Ours therefore read at least as many pairs as the stock model: `blocks_per_query` counts them.

A slope is a power of the length: 1 is linear growth, 2 quadratic.
"""

from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from cases import SEED, TINY
from matplotlib import rc_context
from matplotlib.figure import Figure
from measuring import Conditions, measure
from publishing import Result, describe_run, lines_of, table
from sides import Pass, Side, as_they_are
from speed import Benchmark
from torch import Tensor, nn
from transformers import BigBirdConfig, BigBirdModel

from tercet.modeling import TercetEncoderConfig, TercetEncoderModel
from tercet.modeling.attention.big_bird import BigBirdAttention
from tercet.modeling.generation.prepacked_weights import prepacked_weights
from tercet.reporting.curves import FIRST, INK, LOOK, QUIET, SECOND, THIRD
from tercet.training.precision import fastest_float32_products

LONGEST_FULL = {"stock-full": 4096, "tercet-full": 8192}
"""Tokens of the longest text that full attention reads in a reasonable time, by side."""

NUM_GLOBAL_BLOCKS = 2
"""The first and the last block in transformers' model; the first two in ours."""


@dataclass(frozen=True)
class ReadingCase:
    """One text of a length, read forward only or forward and backward."""

    length: int
    trains: bool
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    block_size: int = 64
    num_random_blocks: int = 3
    """That each block of transformers' model draws."""
    num_draws: int = 2
    """That each of our blocks draws, which makes twice as many on average."""

    def shrunk(self) -> "ReadingCase":
        """Return the same so small that it takes no time: to see that everything runs."""
        return replace(self, block_size=8, **TINY)

    def sizes(self) -> dict[str, Any]:
        """Return the sizes that both sides have, under the names that both use."""
        return {
            "vocab_size": 1000,
            "hidden_size": self.hidden_size,
            "intermediate_size": 4 * self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "max_position_embeddings": self.length,
        }

    def tercet_config(self, pattern: str) -> TercetEncoderConfig:
        """Configure our encoder with one pattern in all layers."""
        return TercetEncoderConfig(
            **self.sizes(),
            layer_types=[pattern] * self.num_hidden_layers,
            attention_block_size=self.block_size,
            attention_global_tokens=NUM_GLOBAL_BLOCKS * self.block_size,
            attention_random_blocks=self.num_draws,
            position_embedding_type="learned",
            norm_type="layer_norm",
            norm_placement="post",
            norm_bias=True,
            embedding_norm=True,
            feed_forward_type="plain",
            hidden_act="gelu_new",
            attention_bias=True,
            mlp_bias=True,
        )

    def build_tercet(self, pattern: str) -> nn.Module:
        """Build our encoder with one pattern in all layers."""
        return TercetEncoderModel(self.tercet_config(pattern))

    def build_stock(self, pattern: str) -> nn.Module:
        """Build transformers' BigBird."""
        config = BigBirdConfig(
            **self.sizes(),
            attention_type=pattern,
            block_size=self.block_size,
            num_random_blocks=self.num_random_blocks,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return BigBirdModel(config, add_pooling_layer=False)


def blocks_per_query(case: ReadingCase) -> dict[str, float]:
    """Count the key blocks that a query block attends to, on average, in `tercet` and in `stock`.

    In transformers' model, global blocks attend to all blocks, their neighbours to two global blocks, to two
    near ones and to drawn ones, and others to one near block more.
    """
    num_blocks = case.length // case.block_size
    pattern = BigBirdAttention(case.tercet_config("big_bird_attention"), is_causal=False)
    ours = sum(map(len, pattern.key_blocks(num_blocks)))
    beside_global = 2 * (NUM_GLOBAL_BLOCKS + 2 + case.num_random_blocks)
    elsewhere = (num_blocks - 4) * (NUM_GLOBAL_BLOCKS + 3 + case.num_random_blocks)
    stock = NUM_GLOBAL_BLOCKS * num_blocks + beside_global + elsewhere
    return {"tercet": ours / num_blocks, "stock": stock / num_blocks}


def prepare(
    build: Callable[[ReadingCase, str], nn.Module],
    pattern: str,
    precision: str,
    case: ReadingCase,
    device: torch.device,
) -> Pass:
    """Build a model of a pattern and a text, and give what reads it once."""
    torch.manual_seed(SEED)
    model = build(case, pattern).to(device).train(case.trains)
    ids = torch.randint(5, 1000, (1, case.length), device=device)

    def train_once() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            states = model(ids).last_hidden_state
        states.float().square().mean().backward()
        model.zero_grad()

    if case.trains:
        return train_once
    reads_prepacked = build is ReadingCase.build_tercet and device.type == "cpu"
    return partial(read_once, model.bfloat16() if precision == "bf16" else model, ids, reads_prepacked)


def read_once(model: nn.Module, ids: Tensor, is_prepacked: bool) -> None:
    """Read a text forward, with prepacked weights or without."""
    with torch.inference_mode(), prepacked_weights(model) if is_prepacked else nullcontext():
        model(ids)


def reader(
    build: Callable[[ReadingCase, str], nn.Module], pattern: str, precision: Literal["fp32", "bf16"] = "fp32"
) -> Side:
    """Make a side of a model that is built by a pattern's name."""
    function = partial(prepare, build, pattern, precision)
    products = fastest_float32_products if build is ReadingCase.build_tercet else as_they_are
    return Side(function, precision=precision, retains_heap=True, products=products)


READERS: dict[str, Side] = {
    "tercet": reader(ReadingCase.build_tercet, "big_bird_attention"),
    "tercet-bf16": reader(ReadingCase.build_tercet, "big_bird_attention", "bf16"),
    "tercet-full": reader(ReadingCase.build_tercet, "full_attention"),
    "stock": reader(ReadingCase.build_stock, "block_sparse"),
    "stock-bf16": reader(ReadingCase.build_stock, "block_sparse", "bf16"),
    "stock-full": reader(ReadingCase.build_stock, "original_full"),
}


def readers_of(case: ReadingCase) -> dict[str, Side]:
    """Return the sides that read a case."""
    return {
        name: side
        for name, side in READERS.items()
        if case.length <= LONGEST_FULL.get(name, case.length) and not (case.trains and name == "stock-bf16")
    }


LENGTHS = (1024, 2048, 4096, 8192, 16384)

WORKS = ("training", "forward")
"""What is timed: with a backward pass or without."""

CASES = {f"{work}-{length}": ReadingCase(length, work == "training") for length in LENGTHS for work in WORKS}

COLUMNS = {
    "work": "{work}",
    "tokens": "{length:,}",
    "side": "{name}",
    "seconds": "{median:.3f}",
    "slowest to fastest": "{slowest:.3f} to {fastest:.3f}",
    "over stock": "{ratio_to_stock:.2f}x",
    "memory, MiB": "{memory_mib:,.0f}",
    "stock's memory over it": "{memory_ratio:.2f}x",
}


def measure_case(case: ReadingCase, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Time all sides, and count the blocks that they read."""
    sides = measure(case, readers_of(case), conditions, options.rounds)
    relate(sides)
    work = WORKS[not case.trains]
    return {"work": work, "case": asdict(case), "blocks": blocks_per_query(case), "sides": sides}


def relate(sides: dict[str, dict[str, Any]]) -> None:
    """Add to each side's `seconds` their median and bounds, and its ratios to those of the stock model."""
    for side in sides.values():
        seconds = side["seconds"]
        side |= {"median": median(seconds), "slowest": max(seconds), "fastest": min(seconds)}
    for side in sides.values():
        side["ratio_to_stock"] = sides["stock"]["median"] / side["median"]
        side["memory_ratio"] = sides["stock"]["memory_mib"] / max(side["memory_mib"], 1)


def render(result: Result) -> str:
    """Write a run's result as Markdown: the machine, the times, their growth."""
    cases = [*result["cases"].values()]
    blocks = {case["case"]["length"]: case["blocks"] for case in cases}
    rows = [
        {"work": case["work"], "length": case["case"]["length"], "name": name} | side
        for case in sorted(cases, key=lambda case: WORKS.index(case["work"]))
        for name, side in case["sides"].items()
    ]
    head = ["work", "side", "from", "to", "time", "slope", "memory", "slope"]
    return "\n".join(
        [
            *describe_run(result),
            "",
            *(
                f"- {length:,} tokens: a block attends to {found['tercet']:.1f} blocks on average (tercet) "
                f"and {found['stock']:.1f} (stock)"
                for length, found in blocks.items()
            ),
            *(f"- {work}: {pays_from(cases, work)}" for work in WORKS),
            "",
            *table(COLUMNS, rows, "lrlr"),
            "",
            *lines_of(head, (row for work in WORKS for row in growth_rows(cases, work)), "llr"),
        ]
    )


LOOKS = {
    "tercet": (FIRST, "-"),
    "tercet-bf16": (FIRST, "--"),
    "tercet-full": (THIRD, "-"),
    "stock": (SECOND, "-"),
    "stock-bf16": (SECOND, "--"),
    "stock-full": (SECOND, ":"),
}
"""Colour and line of each side."""

QUANTITIES = {"median": "seconds", "memory_mib": "MiB"}
"""What grows, and its unit."""


def curve(cases: list[dict[str, Any]], work: str, side: str, quantity: str) -> dict[int, float]:
    """Return what a side needs, by length, from the shortest text to the longest."""
    found = {
        case["case"]["length"]: case["sides"][side][quantity]
        for case in cases
        if case["work"] == work and side in case["sides"]
    }
    return dict(sorted(found.items()))


def slope(values: dict[int, float], begin: int, end: int) -> float:
    """Return the power of the length by which a quantity grows between two lengths."""
    return log(values[end] / values[begin]) / log(end / begin)


def growth_rows(cases: list[dict[str, Any]], work: str) -> list[list[str]]:
    """Write how much more each side needs from each length to the next, and from 4,096 to the longest."""
    rows = []
    for side in dict.fromkeys(name for case in cases for name in case["sides"]):
        quantities = [curve(cases, work, side, quantity) for quantity in QUANTITIES]
        lengths = list(quantities[0])
        spans = list(pairwise(lengths))
        if 4096 in lengths[:-2]:
            spans.append((4096, lengths[-1]))
        for begin, end in spans:
            cells = [work, side, f"{begin:,}", f"{end:,}"]
            for values in quantities:
                cells += [f"{values[end] / values[begin]:.2f}x", f"{slope(values, begin, end):.2f}"]
            rows.append(cells)
    return rows


def pays_from(cases: list[dict[str, Any]], work: str) -> str:
    """Describe from which length on blocks are faster than full attention, of those that were measured."""
    sparse, full = (curve(cases, work, side, "median") for side in ("tercet", "tercet-full"))
    slower = [length for length in full if sparse[length] >= full[length]]
    faster = [length for length in full if length > max(slower, default=0)]
    if not faster:
        return "tercet is nowhere faster than tercet-full"
    ratios = ", ".join(f"{full[length] / sparse[length]:.2f}x at {length:,}" for length in faster)
    return f"tercet is faster than tercet-full from {faster[0]:,} tokens ({ratios})"


def draw(result: Result, file: Path) -> None:
    """Draw time and memory over the length into a PNG file, on logarithmic axes."""
    cases = [*result["cases"].values()]
    works = list(dict.fromkeys(case["work"] for case in cases))
    with rc_context(LOOK):
        figure = Figure(figsize=(10, 3.6 * len(works)), layout="constrained")
        panels = figure.subplots(len(works), len(QUANTITIES), squeeze=False)
        for row, work in zip(panels, works, strict=True):
            for axes, (quantity, unit) in zip(row, QUANTITIES.items(), strict=True):
                axes.set_title(f"{work}: {unit} over tokens", loc="left", fontsize=10.5, color=INK)
                for side, (colour, line) in LOOKS.items():
                    values = curve(cases, work, side, quantity)
                    axes.plot(list(values), list(values.values()), line, marker="o", color=colour, label=side)
                axes.set(xscale="log", yscale="log")
                axes.set_xticks(sorted({case["case"]["length"] for case in cases}), minor=False)
                axes.minorticks_off()
                axes.xaxis.set_major_formatter("{x:,.0f}")
                axes.yaxis.set_major_formatter("{x:,g}")
                axes.grid()
        panels[0, 0].legend(frameon=False, labelcolor=QUIET, fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=130, facecolor="white")


BENCHMARK = Benchmark(CASES, measure_case, draw=draw, text=render)
