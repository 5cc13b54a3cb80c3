"""The operator of packed attention: groups of sequences, with the gradients of the definition."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling.attention import packed as attention_operator
from tercet.modeling.attention.packed import ENDLESS, packed_attention
from tercet.modeling.attention.packing import cumulative

LENGTHS = (torch.tensor([7, 3, 9, 0, 3, 1, 12]), torch.tensor([4, 8, 2, 1, 5, 6, 3]))
"""Queries and keys of sequences; one has no query."""
SETTINGS = [(False, ENDLESS), (True, ENDLESS), (False, 3), (True, 3)]
"""Whether a query sees no later key, and how many on one side."""


def streams(is_self: bool, num_key_heads: int = 4):
    """Random queries, keys and values in float64, and the bounds of their sequences."""
    generator = torch.Generator().manual_seed(0)
    lengths = (LENGTHS[0], LENGTHS[0] if is_self else LENGTHS[1])
    bounds = [cumulative(each) for each in lengths]
    sizes = [(int(bounds[0][-1]), 4), *[(int(bounds[1][-1]), num_key_heads)] * 2]
    tensors = (torch.randn(*size, 8, generator=generator, dtype=torch.float64) for size in sizes)
    return [tensor.requires_grad_() for tensor in tensors], bounds


def by_definition(query, key, value, cu_q, cu_k, bias, is_causal, window):
    """Let each sequence attend by itself."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    attended = []
    for (q_from, q_to), (k_from, k_to) in zip(
        torch.stack((cu_q[:-1], cu_q[1:]), 1).tolist(),
        torch.stack((cu_k[:-1], cu_k[1:]), 1).tolist(),
        strict=True,
    ):
        scores = torch.einsum("thd,shd->hts", query[q_from:q_to], key[k_from:k_to]) * 0.3
        distances = torch.arange(q_to - q_from)[:, None] - torch.arange(k_to - k_from)
        seen = (distances >= 0) if is_causal else torch.ones_like(distances, dtype=torch.bool)
        if window != ENDLESS:
            seen = seen & (distances.abs() < window)
        if bias is not None:
            scores = scores + bias[0, :, : q_to - q_from, : k_to - k_from]
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        attended.append(torch.einsum("hts,shd->thd", weights, value[k_from:k_to]))
    return torch.cat(attended)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_key_heads", [4, 2])
@pytest.mark.parametrize(("is_causal", "window"), SETTINGS)
def test_values_and_gradients_are_those_of_the_definition(is_causal, window, num_key_heads, has_bias):
    inputs, bounds = streams(True, num_key_heads)
    bias = torch.randn(1, 4, 16, 16, dtype=torch.float64, requires_grad=True) if has_bias else None
    expected = by_definition(*inputs, *bounds, bias, is_causal, window)
    found = packed_attention(*inputs, *bounds, bias, None, 0.3, 0.0, is_causal, window)
    leaves = inputs if bias is None else [*inputs, bias]
    weights = torch.randn_like(expected)
    assert_close(found, expected)
    assert_close(torch.autograd.grad(found, leaves, weights), torch.autograd.grad(expected, leaves, weights))


def test_targets_attend_to_sources_of_other_lengths():
    inputs, bounds = streams(False)
    expected = by_definition(*inputs, *bounds, None, False, ENDLESS)
    found = packed_attention(*inputs, *bounds, None, None, 0.3, 0.0, False, ENDLESS)
    assert_close(found, expected)
    weights = torch.randn_like(expected)
    assert_close(torch.autograd.grad(found, inputs, weights), torch.autograd.grad(expected, inputs, weights))


def test_the_backward_pass_drops_the_weights_of_the_forward_pass():
    """Its gradient is that of finite differences, with the same seed."""
    inputs, bounds = streams(True)
    seed = torch.tensor(5)

    def attend(*tensors):
        return packed_attention(*tensors, *bounds, None, seed, 0.3, 0.4, False, ENDLESS)

    assert not torch.equal(
        attend(*inputs), packed_attention(*inputs, *bounds, None, None, 0.3, 0.0, False, ENDLESS)
    )
    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)
    state = torch.get_rng_state()
    attend(*inputs)
    assert torch.equal(torch.get_rng_state(), state)


def test_compilers_know_the_operator():
    inputs, bounds = streams(True)
    torch.library.opcheck(packed_attention, (*inputs, *bounds, None, None, 0.3, 0.0, True, ENDLESS))


def test_other_code_in_the_same_process_leaves_the_operator_alone():
    """As that beside weights of another version: torch lets a second definition replace the first one."""
    inputs, bounds = streams(True)
    found = packed_attention(*inputs, *bounds, None, None, 0.3, 0.0, True, ENDLESS)
    other = ModuleType(f"{attention_operator.__package__}.a copy-1")
    exec(
        Path(attention_operator.__file__)
        .read_text()
        .replace("self.scaling, self.d", "2 * self.scaling, self.d"),
        vars(other),
    )
    assert torch.equal(packed_attention(*inputs, *bounds, None, None, 0.3, 0.0, True, ENDLESS), found)
    assert not torch.equal(
        other.packed_attention(*inputs, *bounds, None, None, 0.3, 0.0, True, ENDLESS), found
    )
