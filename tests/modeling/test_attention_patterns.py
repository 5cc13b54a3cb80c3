"""Attention patterns: masks against their definition, and a new one that is added in one place."""

import pytest
import torch
from torch.testing import assert_close
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, DynamicLayer

from tercet.modeling import TercetDecoderConfig
from tercet.modeling.attention.patterns import PATTERNS, MappedPattern

from .one_lesson import assert_one_lesson

GREEDY = {"do_sample": False, "eos_token_id": None, "max_new_tokens": 4, "pad_token_id": 0}
WINDOW, LENGTH = 3, 9
BIG_BIRD = {
    "attention_block_size": 2,
    "attention_window_blocks": 1,
    "attention_global_tokens": 1,
    "attention_random_blocks": 1,
    "attention_random_seed": 1,
}
FIELDS = {"sliding_window": WINDOW, "attention_stride": 3} | BIG_BIRD
DRAWN = [None, 0, 0, 0, 2, 0, 4, 5, 5, 4, 9, 5]
"""Which block each block draws; the first has none before it."""
OF_BOTH_DIRECTIONS = [kind for kind, pattern in PATTERNS.items() if not pattern.is_bidirectional_only]
MAPPED = [kind for kind in OF_BOTH_DIRECTIONS if not PATTERNS[kind].is_window]
NEW = "even_attention"


class EvenAttention(MappedPattern):
    """Every second key, as a pattern that somebody adds."""

    @classmethod
    def require(cls, config, layer_types):
        """Require nothing."""

    def allows(self, queries, keys):
        distances = queries - keys
        allowed = distances % 2 == 0
        return allowed & (distances >= 0) if self.is_causal else allowed

    def is_full(self, length):
        return length <= 1


@pytest.fixture(autouse=True)
def new_pattern(monkeypatch):
    """Add a pattern; its layers are cached like full ones."""
    monkeypatch.setitem(PATTERNS, NEW, EvenAttention)
    monkeypatch.setitem(DYNAMIC_LAYER_TYPE_MAPPING, NEW, DynamicLayer)


def fields_of(kind):
    """Give fields for a model of two layers, the first of the type."""
    return FIELDS | {"layer_types": [kind, "full_attention"]}


def by_hand(kind, query, key, is_causal):
    """Tell whether a query sees a key, as the papers say it in words."""
    if is_causal and key > query:
        return False
    distance = abs(query - key)
    if kind == "strided_attention":
        return distance <= FIELDS["attention_stride"] or distance % FIELDS["attention_stride"] == 0
    if kind == "big_bird_attention":
        late, early = max(query, key) // 2, min(query, key) // 2
        return late == early or min(query, key) == 0 or DRAWN[late] == early
    raise AssertionError(kind)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", MAPPED)
def test_maps_are_those_of_the_papers(kind, is_causal):
    pattern = PATTERNS[kind](TercetDecoderConfig(**FIELDS), is_causal=is_causal)
    positions = torch.arange(23)
    found = pattern.allows(positions[:, None], positions)
    expected = [[by_hand(kind, query, key, is_causal) for key in range(23)] for query in range(23)]
    assert found.tolist() == expected
    assert found.diagonal().all()
    causal = PATTERNS[kind](pattern.config, is_causal=True).allows(positions[:, None], positions)
    assert torch.equal(causal, found.tril())


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", [*OF_BOTH_DIRECTIONS, NEW])
def test_masks_allow_what_the_definition_allows(kind, is_causal):
    config = TercetDecoderConfig(**FIELDS, attn_implementation="eager")
    pattern = PATTERNS[kind](config, is_causal=is_causal)
    positions = torch.arange(LENGTH)
    allowed = pattern.allows(positions[:, None], positions)
    mask = pattern.build_mask(config, torch.zeros(1, LENGTH, 1), torch.ones(1, LENGTH), None, None)
    expected = allowed if mask is None else mask[0, 0] == 0
    assert torch.equal(allowed, expected)
    assert mask is not None or allowed.all()


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", [*OF_BOTH_DIRECTIONS, NEW])
def test_full_sequences_have_no_pairs_to_forbid_but_the_future(kind, is_causal):
    pattern = PATTERNS[kind](TercetDecoderConfig(**FIELDS), is_causal=is_causal)
    for length in range(1, LENGTH):
        positions = torch.arange(length)
        forbidden = ~pattern.allows(positions[:, None], positions)
        if is_causal:
            forbidden &= positions <= positions[:, None]
        assert pattern.is_full(length) == (not forbidden.any())


@pytest.mark.parametrize("variant", ["modern", "t5", "grouped"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("kind", [*MAPPED, NEW])
def test_every_layout_and_kernel_has_the_pattern(kind, member, variant, builder, batch, targets):
    fields = fields_of(kind)
    assert_one_lesson(lambda kernel: builder(member, variant, kernel, **fields), member, batch, targets)
    (ids, mask), usual = batch.padded(), builder(member, variant)
    assert not torch.allclose(builder(member, variant, **fields)(ids, mask).logits, usual(ids, mask).logits)


@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("kind", [*MAPPED, NEW])
def test_weights_beyond_the_map_are_zero(kind, member, builder, batch):
    model = builder(member, "modern", "eager", **fields_of(kind))
    ids, mask = batch.padded()
    recorded = model(ids, mask, output_attentions=True)
    positions = torch.arange(ids.shape[1])
    pattern = PATTERNS[kind](model.config, is_causal=False)
    far = ~pattern.allows(positions[:, None], positions)
    of_longest = [weights[2][..., far] for weights in recorded.attentions]
    assert of_longest[0].max() == 0 < of_longest[1].max()


@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
@pytest.mark.parametrize("kind", MAPPED)
def test_a_static_cache_writes_what_none_does(kind, member, builder, batch):
    fields = fields_of(kind)
    model = builder(member, **fields)
    ids, mask = batch.padded("left")
    cached = model.generate(
        ids, attention_mask=mask, cache_implementation="static", disable_compile=True, **GREEDY
    )
    assert torch.equal(cached, model.generate(ids, attention_mask=mask, use_cache=False, **GREEDY))


@pytest.mark.parametrize("kind", MAPPED)
def test_patterns_survive_saving(kind, builder, batch, tmp_path):
    model = builder("decoder", **fields_of(kind))
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert {name: getattr(again.config, name) for name in FIELDS} == FIELDS
    assert_close(again(**batch.packed()).logits, model(**batch.packed()).logits)


def test_a_kernel_that_knows_windows_only_is_refused_for_other_patterns(builder):
    with pytest.raises(ValueError, match="takes no mask, as layers of type 'strided_attention' need one"):
        builder("decoder", kernel="flash_attention_2", **fields_of("strided_attention"))
    with pytest.raises(ValueError, match="know no layers of type 'strided_attention'"):
        builder("decoder", **fields_of("strided_attention")).init_continuous_batching()
