"""Sparse attention for long texts: near blocks, global tokens and random blocks (Zaheer et al., 2020).

The paper calls its model BigBird, and this form "internal transformer construction" (section 2): the global
tokens, which attend to all and to which all attend, are tokens of the text. Without random blocks the pattern
is that of Longformer (Beltagy et al., 2020, section 3.1) in blocks.

A sequence is cut into blocks of `attention_block_size` tokens from its own beginning; the last one may be
shorter. A query attends to

- the blocks less than `attention_window_blocks` away from its own. With 2 these are its own and one on either
  side: the paper's window of three blocks;
- the first `attention_global_tokens` tokens, which themselves attend to everything;
- random blocks. Each block draws `attention_random_blocks` of the earlier blocks that it would not see
  otherwise, or all if there are fewer. In a decoder its queries attend to these. In an encoder the two blocks
  of a draw attend to each other. A block then has twice as many random blocks on average: those that it drew,
  and those behind it that drew it. Early blocks have more of the latter.

What a block draws depends on its number and on `attention_random_seed` alone: by a hash, and by Floyd's
choice of different numbers (Bentley and Floyd, 1987). It is therefore the same at any length of the text, on
any device, in training, evaluation and generation, and the pattern of a decoder is the lower triangle of an
encoder's. The price is that no block draws among those behind it: pairs at the beginning of a text are more
likely to attend than later ones. All heads and all layers draw the same, so that one mask serves them.

`BigBirdModel` of transformers 5.23 differs. The first and the last block are global. Each head and layer
draws for itself, among blocks on both sides, by a plan for the length of the text; at 1,024, 3,072 and 4,096
tokens, among the first 1,024 only. It draws in training alone: in evaluation every draw is block 0. A short
text changes the model to full attention for good.

`StockBigBirdAttention` is the sparse pattern of that `BigBirdModel` in evaluation, for checkpoints that come
from there; new models should use `BigBirdAttention`.

A text of more than `5 + 2 * attention_random_blocks` blocks of `attention_block_size` tokens is cut into
blocks from its beginning. A query attends to its own block, to the one on either side, and to the first and
the last block of the text, which attend to everything. In shorter texts all attend to all.

Random blocks are where transformers 5.23 has a defect. It draws them in training alone, from
`numpy.random.seed(layer)`. In evaluation each of them is the first block (`_bigbird_block_rand_mask` returns
zeros), which is gathered beside its place as a global block, so that the softmax counts its keys once more
for each of the `attention_random_blocks`. To count a key n times is to add log n to its score. The pattern
here does so for queries between the first and the last block, in training as in evaluation.

In transformers, the last block is that of the padded batch, so that the states of a text depend on what it is
batched with. Here it is the text's own, as in transformers if the text is alone.
"""

from math import log
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .abstract_pattern import MappedPattern

Number = TypeVar("Number", int, Tensor)

NO_BLOCK = -1
"""What is drawn where nothing is left."""

MULTIPLIER = 0x45D9F3B
"""Of the hash: its products with numbers of 32 bits fit into the 64 bits of torch's integers."""

LARGEST = 2**32 - 1
"""The numbers that are hashed, and all bits of them."""

SMALLEST_FIELDS = {
    "attention_block_size": 1,
    "attention_window_blocks": 1,
    "attention_global_tokens": 0,
    "attention_random_blocks": 0,
    "attention_random_seed": 0,
}
"""The fields of the pattern, and their smallest values."""


class BigBirdAttention(MappedPattern):
    """Near blocks, the first tokens, and random blocks (Zaheer et al., 2020, section 2)."""

    fields = tuple(SMALLEST_FIELDS)

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.block_size: int = config.attention_block_size

    @classmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        for name, smallest in SMALLEST_FIELDS.items():
            if getattr(config, name) < smallest:
                raise ValueError(
                    f"{name} is {getattr(config, name)}, but {layer_types} has big bird layers: "
                    f"choose {smallest} or more"
                )
        if config.attention_random_seed > LARGEST:
            raise ValueError(
                f"attention_random_seed is {config.attention_random_seed}, but the largest is {LARGEST}: "
                "choose a smaller one"
            )
        if config.attention_global_tokens > config.max_position_embeddings:
            raise ValueError(
                f"attention_global_tokens is {config.attention_global_tokens}, but sequences have at most "
                f"max_position_embeddings={config.max_position_embeddings} tokens: choose so many or fewer"
            )

    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        size, num_global = self.config.attention_block_size, self.config.attention_global_tokens
        query_blocks, key_blocks = queries // size, keys // size
        allowed = (query_blocks - key_blocks).abs() < self.config.attention_window_blocks
        allowed = allowed | (keys < num_global) | (queries < num_global)
        for block, other in ((query_blocks, key_blocks), (key_blocks, query_blocks)):
            for drawn in self.draw_blocks(block):
                allowed = allowed | (drawn == other)
        return allowed & (queries >= keys) if self.is_causal else allowed

    def is_full(self, length: int) -> bool:
        # The last block of a short sequence draws every block that it does not see otherwise.
        num_blocks = -(-length // self.config.attention_block_size)
        return self.num_choices(num_blocks - 1) <= self.config.attention_random_blocks

    def num_choices(self, block: int) -> int:
        """Count the blocks before the window of a block that have a token which is not global."""
        num_global = self.config.attention_global_tokens // self.config.attention_block_size
        return block - (self.config.attention_window_blocks - 1) - num_global

    def key_blocks(self, num_blocks: int) -> list[list[int]]:
        num_global = -(-self.config.attention_global_tokens // self.block_size)
        reach = self.config.attention_window_blocks
        seen = [{*range(num_global), *range(block - reach + 1, block + reach)} for block in range(num_blocks)]
        for drawn in self.draw_blocks(torch.arange(num_blocks)):
            for block, number in enumerate(drawn.tolist()):
                seen[block].add(number)
                if number != NO_BLOCK:
                    seen[number].add(block)
        seen[:num_global] = [set(range(num_blocks))] * min(num_global, num_blocks)
        ends = (block + 1 if self.is_causal else num_blocks for block in range(num_blocks))
        return [sorted(numbers & set(range(end))) for numbers, end in zip(seen, ends, strict=True)]

    def draw_blocks(self, blocks: Tensor) -> list[Tensor]:
        """Draw different earlier blocks for each of `blocks`, of any shape: one tensor of numbers for a draw.

        Where nothing is left to draw, it is `NO_BLOCK`.
        """
        first = self.config.attention_global_tokens // self.config.attention_block_size
        blocks = blocks.long()  # kernels may count in 32 bits
        num_choices = blocks - (self.config.attention_window_blocks - 1) - first
        num_draws, hashed = self.config.attention_random_blocks, scramble(self.config.attention_random_seed)
        drawn: list[Tensor] = []
        for draw in range(num_draws):
            # Of the numbers up to `last`; if that was drawn before, it is `last`, which was not.
            last = num_choices - num_draws + draw
            number = first + scramble(scramble(blocks ^ hashed) + draw) % (last + 1).clamp(min=1)
            for earlier in drawn[:draw]:
                number = torch.where(number == earlier, first + last, number)
            drawn.append(torch.where(last < 0, NO_BLOCK, number))
        return drawn


def scramble(number: Number) -> Number:
    """Hash integers to 32 bits: differences in any bit change about half of all (T. Mueller's, 2012)."""
    number = number & LARGEST
    for _ in range(2):
        number = ((number >> 16) ^ number) * MULTIPLIER & LARGEST
    return (number >> 16) ^ number


NUM_FIXED_BLOCKS = 5
"""Two global blocks and a window of three."""


class StockBigBirdAttention(MappedPattern):
    """Near blocks, and the first and last block, of which the first counts more. It has no causal form."""

    fields = ("attention_block_size", "attention_random_blocks")
    adds_to_scores = True
    depends_on_length = True
    is_bidirectional_only = True

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.block_size: int = config.attention_block_size

    @classmethod
    def require(cls, config: PreTrainedConfig, layer_types: str) -> None:
        for name in cls.fields:
            if getattr(config, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(config, name)}, but {layer_types} has stock big bird layers: choose "
                    "1 or more"
                )

    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        query_blocks, key_blocks = (x // self.config.attention_block_size for x in (queries, keys))
        near = (query_blocks - key_blocks).abs() <= 1
        return near | (query_blocks == 0) | (key_blocks == 0)  # the last block: `own_global_tokens`

    def own_global_tokens(self, positions: Tensor, lengths: Tensor | int) -> Tensor:
        size = self.config.attention_block_size
        return (positions // size == (lengths - 1) // size) | (lengths <= self.longest_full)

    def added(self, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
        size, num_counts = self.config.attention_block_size, 1 + self.config.attention_random_blocks
        return ((queries >= size) & (keys < size)).to(dtype) * log(num_counts)

    def is_full(self, length: int) -> bool:
        return length <= self.longest_full

    def key_blocks(self, num_blocks: int) -> list[list[int]]:
        near = [
            sorted({0, *range(max(0, block - 1), min(num_blocks, block + 2))}) for block in range(num_blocks)
        ]
        return [list(range(num_blocks)), *near[1:]]

    @property
    def longest_full(self) -> int:
        """Length up to which a text has full attention."""
        return (NUM_FIXED_BLOCKS + 2 * self.config.attention_random_blocks) * self.config.attention_block_size
