"""Attention patterns: masks against their definition, and a new one that is added in one place."""

import pytest
import torch
from torch.testing import assert_close
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, DynamicLayer
from transformers.masking_utils import and_masks, create_bidirectional_mask, create_causal_mask

from tercet.modeling import TercetDecoderConfig
from tercet.modeling.attention_patterns import PATTERNS, AttentionPattern

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
GREEDY = {"do_sample": False, "eos_token_id": None, "max_new_tokens": 4, "pad_token_id": 0}
WINDOW, LENGTH = 3, 9
STRIDED = ["strided_attention", "full_attention"]


class StridedAttention(AttentionPattern):
    """Every third key, and the neighbours (Child et al., 2019, section 4.2)."""

    is_window = False

    @classmethod
    def require(cls, sliding_window, layer_types):
        """Require nothing."""

    def allows(self, queries, keys):
        distances = queries - keys
        allowed = (distances % 3 == 0) | (distances.abs() < 2)
        return allowed & (distances >= 0) if self.is_causal else allowed

    def is_full(self, length):
        return length <= 2

    def build_mask(self, config, x, attention_mask, past_key_values, and_mask_function):
        create = create_causal_mask if self.is_causal else create_bidirectional_mask
        functions = [lambda batch, head, query, key: self.allows(query, key), and_mask_function]
        joined = and_masks(*(function for function in functions if function is not None))
        return create(config, x, attention_mask, past_key_values=past_key_values, and_mask_function=joined)


@pytest.fixture
def strided(monkeypatch):
    """Add a pattern; its layers are cached like full ones."""
    monkeypatch.setitem(PATTERNS, "strided_attention", StridedAttention)
    monkeypatch.setitem(DYNAMIC_LAYER_TYPE_MAPPING, "strided_attention", DynamicLayer)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", [*PATTERNS, "strided_attention"])
def test_masks_allow_what_the_definition_allows(kind, is_causal, strided):
    config = TercetDecoderConfig(sliding_window=WINDOW, attn_implementation="eager")
    pattern = PATTERNS[kind](config, is_causal=is_causal)
    positions = torch.arange(LENGTH)
    allowed = pattern.allows(positions[:, None], positions)
    mask = pattern.build_mask(config, torch.zeros(1, LENGTH, 1), torch.ones(1, LENGTH), None, None)
    expected = allowed if mask is None else mask[0, 0] == 0
    assert torch.equal(allowed, expected)
    assert mask is not None or allowed.all()


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", [*PATTERNS, "strided_attention"])
def test_full_sequences_have_no_pairs_to_forbid_but_the_future(kind, is_causal, strided):
    pattern = PATTERNS[kind](TercetDecoderConfig(sliding_window=WINDOW), is_causal=is_causal)
    for length in range(1, LENGTH):
        positions = torch.arange(length)
        forbidden = ~pattern.allows(positions[:, None], positions)
        if is_causal:
            forbidden &= positions <= positions[:, None]
        assert pattern.is_full(length) == (not forbidden.any())


@pytest.mark.parametrize("variant", ["modern", "t5"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_a_new_pattern_keeps_the_law_of_padded_and_packed(member, variant, strided, builder, batch):
    model = builder(member, variant, layer_types=STRIDED)
    ids, mask = batch.padded()
    padded = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    assert_close(model(**batch.packed()).logits[0], padded, **CLOSE)
    usual = builder(member, variant)
    assert not torch.allclose(usual(input_ids=ids, attention_mask=mask).logits[mask.bool()], padded)
    recorded = builder(member, variant, "eager", layer_types=STRIDED)(ids, mask, output_attentions=True)
    positions = torch.arange(ids.shape[1])
    far = ~StridedAttention(model.config, is_causal=False).allows(positions[:, None], positions)
    of_longest = [weights[2][..., far] for weights in recorded.attentions]
    assert of_longest[0].max() == 0 < of_longest[1].max()


@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_a_new_pattern_keeps_the_law_of_cached_and_uncached(member, strided, builder, batch):
    fields = {"layer_types": STRIDED, "decoder_layer_types": STRIDED}
    model = builder(member, **fields if member == "seq2seq" else {"layer_types": STRIDED})
    ids, mask = batch.padded("left")
    cached, uncached = (
        model.generate(ids, attention_mask=mask, use_cache=use_cache, **GREEDY) for use_cache in (True, False)
    )
    assert torch.equal(cached, uncached)


def test_a_kernel_that_knows_windows_only_is_refused_for_other_patterns(strided, builder):
    with pytest.raises(ValueError, match="takes no mask, as layers of type 'strided_attention' need one"):
        builder("decoder", kernel="flash_attention_2", layer_types=STRIDED)
