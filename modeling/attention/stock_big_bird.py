"""The sparse pattern of transformers' `BigBirdModel` in evaluation, for checkpoints that come from there.

It is near to that of Zaheer et al. (2020, section 2). New models should use `attention/big_bird.py`.

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

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .abstract_pattern import MappedPattern

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
        """Raise a `ValueError` unless there are blocks, random ones too, which transformers needs."""
        for name in cls.fields:
            if getattr(config, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(config, name)}, but {layer_types} has stock big bird layers: choose "
                    "1 or more"
                )

    def allows(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Allow near blocks and the first one; the last one and short texts are `own_global_tokens`."""
        query_blocks, key_blocks = (x // self.config.attention_block_size for x in (queries, keys))
        near = (query_blocks - key_blocks).abs() <= 1
        return near | (query_blocks == 0) | (key_blocks == 0)

    def own_global_tokens(self, positions: Tensor, lengths: Tensor | int) -> Tensor:
        """Make the tokens of the last block global, and all those of short texts."""
        size = self.config.attention_block_size
        return (positions // size == (lengths - 1) // size) | (lengths <= self.longest_full)

    def added(self, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
        """Let queries behind the first block count its keys once more for each random block."""
        size, num_counts = self.config.attention_block_size, 1 + self.config.attention_random_blocks
        return ((queries >= size) & (keys < size)).to(dtype) * log(num_counts)

    def is_full(self, length: int) -> bool:
        """Short texts have full attention, as transformers changes to it there."""
        return length <= self.longest_full

    def key_blocks(self, num_blocks: int) -> list[list[int]]:
        """List near blocks and the first one; the first sees all."""
        near = [
            sorted({0, *range(max(0, block - 1), min(num_blocks, block + 2))}) for block in range(num_blocks)
        ]
        return [list(range(num_blocks)), *near[1:]]

    @property
    def longest_full(self) -> int:
        """Length up to which a text has full attention."""
        return (NUM_FIXED_BLOCKS + 2 * self.config.attention_random_blocks) * self.config.attention_block_size
