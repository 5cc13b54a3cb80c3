"""Read long texts side by side with transformers' BigBird: time and peak of memory.

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
"""

from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Literal

import torch
from benchmark import Benchmark
from cases import SEED, TINY
from measuring import Conditions, measure
from publishing import Result
from sides import Pass, Side, as_they_are
from torch import Tensor, nn
from transformers import BigBirdConfig, BigBirdModel

from tercet.modeling import TercetEncoderConfig, TercetEncoderModel
from tercet.modeling.attention.big_bird import BigBirdAttention
from tercet.modeling.generation.prepacked_weights import prepacked_weights
from tercet.training.devices.precision import fastest_float32_products

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


LENGTHS = (1024, 4096, 16384)

WORKS = ("training", "forward")
"""What is timed: with a backward pass or without."""

CASES = {f"{work}-{length}": ReadingCase(length, work == "training") for work in WORKS for length in LENGTHS}

SECONDS = "{SIDE[median]:.3g} ({SIDE[fastest]:.3g} to {SIDE[slowest]:.3g})"
"""A cell: the median of a side, its fastest and its slowest round."""

COLUMNS = {
    "work": "{work}",
    "tokens": "{length:,}",
    "stock, s": SECONDS.replace("SIDE", "stock"),
    "stock-bf16": "{stock-bf16[median]:.3g}",
    "tercet": SECONDS.replace("SIDE", "tercet"),
    "tercet-bf16": "{tercet-bf16[median]:.3g}",
    "over stock": "{tercet[ratio_to_stock]:.2f}x",
    "in bf16": "{tercet-bf16[ratio_to_stock]:.2f}x",
    "MiB, stock": "{stock[memory_mib]:,.0f}",
    "MiB, tercet": "{tercet[memory_mib]:,.0f}",
    "MiB, tercet-bf16": "{tercet-bf16[memory_mib]:,.0f}",
}


def measure_case(case: ReadingCase, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Time all sides, and count the blocks that they read."""
    sides = measure(case, readers_of(case), conditions, options.rounds)
    relate(sides)
    work = WORKS[not case.trains]
    about = {"work": work, "length": case.length, "case": asdict(case), "blocks": blocks_per_query(case)}
    return about | {"sides": sides}


def relate(sides: dict[str, dict[str, Any]]) -> None:
    """Add to each side's `seconds` their median and bounds, and its ratio to that of the stock model."""
    for side in sides.values():
        seconds = side["seconds"]
        side |= {"median": median(seconds), "slowest": max(seconds), "fastest": min(seconds)}
    for side in sides.values():
        side["ratio_to_stock"] = sides["stock"]["median"] / side["median"]


def lengths_that_pay(result: Result) -> list[str]:
    """Describe for each work from which length on blocks are faster."""
    return [f"- {work}: {pays_from([*result['cases'].values()], work)}" for work in WORKS]


def pays_from(cases: list[dict[str, Any]], work: str) -> str:
    """Describe from which length on blocks are faster than full attention, of those that were measured."""
    sparse, full = (
        {
            case["length"]: case["sides"][side]["median"]
            for case in cases
            if case["work"] == work and side in case["sides"]
        }
        for side in ("tercet", "tercet-full")
    )
    slower = [length for length in full if sparse[length] >= full[length]]
    faster = [length for length in full if length > max(slower, default=0)]
    if not faster:
        return "tercet is nowhere faster than tercet-full"
    ratios = ", ".join(f"{full[length] / sparse[length]:.2f}x at {length:,}" for length in faster)
    return f"tercet is faster than tercet-full from {faster[0]:,} tokens ({ratios})"


BENCHMARK = Benchmark(
    CASES, measure_case, COLUMNS, has_row_per_case=True, facts=lengths_that_pay, defaults={"rounds": 3}
)
