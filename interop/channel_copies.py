"""Copies of channels: how a tensor becomes wider without a change of what it computes.

A wider layer has every channel of the narrow one several times (Chen et al., 2016: Net2Net, section 2.2; Chen
et al., 2022: bert2BERT, section 3.2). What writes into a channel writes the same into all copies. What reads
them divides its weights among them, so that their sum is what it was.

Shapes: n channels of the wide layer, m of the narrow one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Copies:
    """Which channel of a narrow layer each channel of a wide one copies.

    Args:
        origins: (n,), each from 0 to m - 1, and every one of these among them.
    """

    origins: Tensor

    @property
    def counts(self) -> Tensor:
        """How many copies there are of what each channel copies, (n,)."""
        return torch.bincount(self.origins)[self.origins]

    def written(self, tensor: Tensor, axis: int) -> Tensor:
        """Write the same into all copies: `tensor` with n instead of m entries along an axis."""
        return tensor.index_select(axis, self.origins)

    def read(self, weight: Tensor, noise: float = 0.0) -> Tensor:
        """Divide the weights (o, m) of what reads the channels among the copies: (o, n).

        Args:
            weight: Of a linear layer that reads m channels.
            noise: Standard deviation of what is added to the weights of copies, as a part of theirs. It adds
                up to zero over the copies of a channel, so that the sum stays what it was.
        """
        divided = self.written(weight, 1) / self.counts
        if not noise or len(self.origins) == weight.shape[1]:
            return divided
        drawn = torch.randn_like(divided) * (noise * divided.std())
        sums = torch.zeros_like(weight).index_add(1, self.origins, drawn)
        return divided + drawn - self.written(sums, 1) / self.counts


def repeated(num_channels: int, of: int) -> Copies:
    """Repeat `of` channels one after another until there are `num_channels`."""
    return Copies(torch.arange(num_channels) % of)


def copied_heads(
    num_heads: int, num_key_value_heads: int, of_heads: int, of_key_value_heads: int
) -> tuple[Copies, Copies]:
    """Copy heads of queries, and those of keys and values, such that each pair that meets has met before.

    Heads of keys are repeated. The heads of queries that read the copies of one are copies of those that have
    read it, in turn. If there are no more heads of queries, these stay where they are, since biases may be
    theirs by number (ALiBi): then the copies of a head of keys stand beside each other.

    Args:
        num_heads: Of the wide layer.
        num_key_value_heads: Of the wide layer; a multiple of `of_key_value_heads`.
        of_heads: Of the narrow layer, of which `num_heads` is a multiple.
        of_key_value_heads: Of the narrow layer.
    """
    keys = repeated(num_key_value_heads, of_key_value_heads)
    if num_heads == of_heads:
        keys = Copies(keys.origins.sort().values)
    per_key, of_per_key = num_heads // num_key_value_heads, of_heads // of_key_value_heads
    readers = [0] * of_key_value_heads
    queries = []
    for head in range(num_heads):
        key = int(keys.origins[head // per_key])
        queries.append(key * of_per_key + readers[key] % of_per_key)
        readers[key] += 1
    return Copies(torch.tensor(queries)), keys


def widened(heads: Copies, head_dim: int) -> Copies:
    """Copy all channels of heads."""
    return Copies((heads.origins[:, None] * head_dim + torch.arange(head_dim)).flatten())
