"""What reads long texts: encoders of equal sizes, by patterns of attention, without heads.

    tercet        ours in big bird's pattern: a window of three blocks, a block of global tokens, drawn blocks
    tercet-full   ours, every token attending to every other
    stock         transformers' BigBird, block_sparse: the same window, two global blocks, drawn blocks
    stock-full    the same, original_full

These compute in float32. `tercet-bf16` is ours in big bird's pattern under bfloat16 autocast, in which the
block_sparse attention of transformers 5.23 raises an error. None drops anything: where weights of attention
are dropped, ours is dense. Each block draws as many blocks on both sides. Ours attend to those that drew them
as well, so that they read more.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from cases import SEED, TINY
from sides import Pass, Side, as_they_are
from torch import Tensor, nn
from transformers import BigBirdConfig, BigBirdModel

from tercet.modeling import TercetEncoderConfig, TercetEncoderModel

LONGEST_FULL = 4096
"""Tokens of the longest text that transformers' full attention reads."""


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

    def shrunk(self) -> "ReadingCase":
        """Give the same so small that it takes no time: to see that everything runs."""
        return replace(self, block_size=8, **TINY)

    def sizes(self) -> dict[str, Any]:
        """Name what both sides have, as both name it."""
        return {
            "vocab_size": 1000,
            "hidden_size": self.hidden_size,
            "intermediate_size": 4 * self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "max_position_embeddings": self.length,
        }

    def build_tercet(self, pattern: str) -> nn.Module:
        """Build our encoder with one pattern in all layers."""
        config = TercetEncoderConfig(
            **self.sizes(),
            layer_types=[pattern] * self.num_hidden_layers,
            attention_block_size=self.block_size,
            attention_global_tokens=self.block_size,
            attention_random_blocks=self.num_random_blocks,
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
        return TercetEncoderModel(config)

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

    def read() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            return model(ids).last_hidden_state

    def train_once() -> None:
        read().float().square().mean().backward()
        model.zero_grad()

    def read_once() -> None:
        with torch.inference_mode():
            read()

    return train_once if case.trains else read_once


def reader(
    build: Callable[[ReadingCase, str], nn.Module], pattern: str, precision: Literal["fp32", "bf16"] = "fp32"
) -> Side:
    """Make a side of a model that is built by a pattern's name."""
    function = partial(prepare, build, pattern, precision)
    return Side(function, precision=precision, retains_heap=True, products=as_they_are)


READERS: dict[str, Side] = {
    "tercet": reader(ReadingCase.build_tercet, "big_bird_attention"),
    "tercet-bf16": reader(ReadingCase.build_tercet, "big_bird_attention", "bf16"),
    "tercet-full": reader(ReadingCase.build_tercet, "full_attention"),
    "stock": reader(ReadingCase.build_stock, "block_sparse"),
    "stock-full": reader(ReadingCase.build_stock, "original_full"),
}


def readers_of(length: int) -> dict[str, Side]:
    """Give the sides that read a text of a length."""
    return {name: side for name, side in READERS.items() if name != "stock-full" or length <= LONGEST_FULL}
