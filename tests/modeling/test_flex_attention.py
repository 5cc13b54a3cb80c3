"""flex attention over patterns equals eager attention, in texts of several of its blocks of 128 tokens.

Nothing is compiled: torch then computes the same pairs in plain operations, on a CPU without a backward pass.
"""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing import assert_close
from transformers import masking_utils
from transformers.integrations import flex_attention as integration

from tercet.modeling.attention.patterns import PATTERNS

from ..tolerances import CLOSE

LENGTH, PADDED = 300, 170
FIELDS = {
    "sliding_window": 40,
    "attention_stride": 30,
    "attention_block_size": 16,
    "attention_global_tokens": 5,
    "attention_random_blocks": 1,
    "max_position_embeddings": LENGTH,
    "hidden_size": 64,
}
KINDS = [kind for kind, pattern in PATTERNS.items() if not pattern.adds_to_scores]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Compile neither the kernel nor what makes its mask, which takes minutes on a CPU."""
    monkeypatch.setattr(integration, "WrappedFlexAttention", lambda training: lambda: flex_attention)
    monkeypatch.setattr(
        masking_utils,
        "create_block_mask",
        lambda **options: create_block_mask(**options | {"_compile": False}),
    )


def long_batch(side):
    """Draw two texts, the second of which has pads on a side."""
    ids = torch.randint(3, 61, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, PADDED:] = 0
    return ids, mask if side == "right" else mask.flip(-1)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_padded_texts_have_the_states_of_eager_attention(kind, member, side, builder):
    model = builder(member, kernel="eager", layer_types=[kind, "full_attention"], **FIELDS)
    ids, mask = long_batch(side)
    expected = model(ids, mask).logits[mask.bool()]
    model.set_attn_implementation("flex_attention")
    assert_close(model(ids, mask).logits[mask.bool()], expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_packed_texts_have_the_states_that_they_have_alone(kind, member, builder):
    model = builder(member, kernel="eager", layer_types=[kind, "full_attention"], **FIELDS)
    ids, mask = long_batch("right")
    expected = model(ids, mask).logits[mask.bool()]
    model.set_attn_implementation("flex_attention")
    bounds = torch.tensor([0, LENGTH, LENGTH + PADDED]).int()
    assert_close(model(ids[mask.bool()][None], cu_seq_lens_q=bounds).logits[0], expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_chosen_global_tokens_are_in_the_mask(kind, builder):
    model = builder("encoder", kernel="eager", layer_types=[kind, "full_attention"], **FIELDS)
    ids, mask = long_batch("right")
    chosen = (torch.arange(LENGTH) == 100).long().expand_as(ids)
    expected = model(ids, mask, global_attention_mask=chosen).logits[mask.bool()]
    model.set_attn_implementation("flex_attention")
    assert_close(model(ids, mask, global_attention_mask=chosen).logits[mask.bool()], expected, **CLOSE)


@torch.no_grad()
def test_masks_of_pairs_are_those_of_eager_attention(builder):
    model = builder("encoder", kernel="eager")
    ids = torch.randint(3, 61, (2, 8), generator=torch.Generator().manual_seed(0))
    pairs = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.6
    pairs |= torch.eye(8).bool()
    expected = model(ids, pairs).logits
    model.set_attn_implementation("flex_attention")
    added = torch.zeros(2, 1, 8, 8).masked_fill(~pairs, -torch.inf)
    for mask in (pairs, pairs[:, 0].long(), pairs.float(), added):
        assert_close(model(ids, mask).logits, expected, **CLOSE)
    blocks = create_block_mask(lambda row, head, q, k: pairs[row, 0, q, k], 2, None, 8, 8, device="cpu")
    assert_close(model(ids, blocks).logits, expected, **CLOSE)
    keys = added[:1, :, :1]  # which are the same for all rows and queries
    assert_close(model(ids, keys).logits, builder("encoder")(ids, keys).logits, **CLOSE)
    with pytest.raises(ValueError, match="takes one mask for all heads"):
        model(ids, pairs.expand(2, 4, 8, 8))
