"""Streams and their groups: nothing lost, nothing mixed, gradients exact."""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling.attention.packing import MOST_GROUPS, group_sequences


def bounds(lengths: list[int]) -> torch.Tensor:
    return torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int()


@pytest.mark.parametrize("lengths", [[1], [5, 5, 5], [3, 9, 1, 4, 4, 7, 2, 8], list(range(1, 40))])
def test_a_stream_comes_back_from_its_groups(lengths):
    slots = group_sequences(bounds(lengths)).queries
    stream = torch.randn(sum(lengths), 2, 3, dtype=torch.double, requires_grad=True)
    parts = list(slots.split(stream))
    assert len(parts) <= MOST_GROUPS
    assert sum(len(part) for part in parts) == len(lengths)
    assert torch.equal(slots.join(parts), stream)
    assert torch.autograd.gradcheck(lambda x: slots.join([part * 2 for part in slots.split(x)]), stream)


def test_pads_stand_behind_and_are_known():
    slots = group_sequences(bounds([3, 9, 1, 4])).queries
    for group, (part, lengths) in enumerate(zip(slots.split(torch.arange(17.0)), slots.lengths, strict=True)):
        mask = slots.key_mask(group)
        assert part.shape[1] == lengths.max()
        if mask is not None:
            assert torch.equal(mask.sum(-1).flatten(), lengths)


def test_sources_follow_their_targets():
    """In cross-attention the groups are made by the targets' lengths, and every source stays with its own."""
    targets, sources = [2, 7, 4], [9, 1, 5]
    groups = group_sequences(bounds(targets), bounds(sources))
    of_targets = torch.repeat_interleave(torch.arange(3.0), torch.tensor(targets))
    of_sources = torch.repeat_interleave(torch.arange(3.0), torch.tensor(sources))
    for q, k in zip(groups.queries.split(of_targets), groups.keys.split(of_sources), strict=True):
        assert_close(q[:, 0], k[:, 0])
