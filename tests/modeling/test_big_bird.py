"""Random blocks are drawn without repetition, evenly, and the same at any length and in any version.

transformers' BigBird in evaluation: equal alone, and the same in every layout and kernel of ours.
"""

import copy
from math import sqrt

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.testing import assert_close
from transformers import BigBirdConfig, BigBirdModel, masking_utils

from tercet.modeling import TercetDecoderConfig, TercetEncoderConfig
from tercet.modeling.attention.big_bird import BigBirdAttention, StockBigBirdAttention
from tercet.modeling.stock import from_stock

from ..tolerances import CLOSE
from .one_lesson import assert_one_lesson

FIELDS = {
    "attention_block_size": 2,
    "attention_window_blocks": 2,
    "attention_global_tokens": 5,
    "attention_random_blocks": 3,
}


NUM_DRAWS = FIELDS["attention_random_blocks"]


FIRST = 2
"""The first block that has a token which is not global."""


def pattern_of(is_causal=False, **fields):
    """Build the pattern alone."""
    return BigBirdAttention(TercetEncoderConfig(**FIELDS | fields), is_causal=is_causal)


def scramble(number):
    """Hash an integer, in Python's own."""
    for _ in range(2):
        number = ((number >> 16) ^ number) * 0x45D9F3B % 2**32
    return (number >> 16) ^ number


def drawn_by_hand(block, seed):
    """Choose different numbers by Floyd's algorithm, with a set."""
    chosen = set()
    num_choices = max(0, block - 1 - FIRST)
    for draw in range(NUM_DRAWS):
        last = num_choices - NUM_DRAWS + draw
        if last >= 0:
            number = scramble(scramble(block ^ scramble(seed)) + draw) % (last + 1)
            chosen.add(last if number in chosen else number)
    return {FIRST + number for number in chosen}


def drawn(pattern, blocks):
    """List what each of the blocks draws."""
    columns = torch.stack(pattern.draw_blocks(blocks), dim=-1).tolist()
    return [[number for number in row if number >= 0] for row in columns]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("seed", [0, 7, 2**31])
def test_each_block_draws_different_earlier_blocks_that_it_does_not_see_otherwise(seed, dtype):
    rows = drawn(pattern_of(attention_random_seed=seed), torch.arange(40, dtype=dtype))
    for block, row in enumerate(rows):
        assert set(row) == drawn_by_hand(block, seed)
        assert len(set(row)) == len(row) == min(NUM_DRAWS, max(0, block - 1 - FIRST))
        assert all(FIRST <= number < block - 1 for number in row)


def test_saved_models_keep_their_blocks():
    """A change of these numbers would change what saved models compute."""
    rows = drawn(pattern_of(), torch.tensor([5, 6, 100, 101, 100_000]))
    assert rows == [[2, 3], [2, 3, 4], [5, 82, 9], [2, 42, 96], [48293, 48548, 81409]]


def test_every_choice_is_equally_likely():
    block, num_seeds = 12, 800
    counts, pattern = torch.zeros(block - 1), pattern_of()
    for pattern.config.attention_random_seed in range(num_seeds):
        counts[drawn(pattern, torch.tensor([block]))[0]] += 1
    choices = block - 1 - FIRST
    share = NUM_DRAWS / choices
    deviation = sqrt(num_seeds * share * (1 - share))
    assert counts[:FIRST].sum() == 0
    assert ((counts[FIRST:] - num_seeds * share).abs() < 3 * deviation).all()


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_longer_text_changes_no_earlier_pair(is_causal):
    pattern = pattern_of(is_causal)
    positions = torch.arange(80)
    whole = pattern.allows(positions[:, None], positions)
    assert torch.equal(whole[:30, :30], pattern.allows(positions[:30, None], positions[:30]))
    assert torch.equal(whole, whole.T) != is_causal


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("packs", [True, False])
def test_flex_attention_gets_the_same_pairs(packs, is_causal, monkeypatch):
    # transformers compiles what makes the mask, which takes minutes and changes nothing in it.
    monkeypatch.setattr(
        masking_utils,
        "create_block_mask",
        lambda **options: create_block_mask(**options | {"_compile": False}),
    )
    pattern = pattern_of(is_causal)
    config = TercetDecoderConfig(**FIELDS, attn_implementation="flex_attention")
    ids = torch.tensor([[0] * 7 + [1] * 33])
    mask = None if packs else (ids == 1).long()
    found = pattern.build_mask(config, torch.zeros(1, 40, 1), mask, None, ids if packs else None)
    places = torch.arange(40)
    zero = torch.zeros((), dtype=torch.long)
    pairs = found.mask_mod(zero, zero, places[:, None], places)
    positions = torch.arange(33)
    expected = pattern.allows(positions[:, None], positions)
    assert torch.equal(pairs[7:, 7:], expected)
    assert not pairs[7:, :7].any()
    if packs:
        assert torch.equal(pairs[:7, :7], expected[:7, :7])


KIND = "stock_big_bird_attention"


STOCK_FIELDS = {"attention_block_size": 1, "attention_random_blocks": 1}
"""Texts of up to seven tokens have full attention."""


SIZE, NUM_RANDOM, LONGEST_FULL = 4, 2, 36
"""Of the stock model: tokens of a block, random blocks, and where its sparse attention begins."""


def stock_model(**options):
    """Build a stock model with random weights, in float64."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BigBirdConfig(
        vocab_size=61,
        **sizes,
        max_position_embeddings=208,
        block_size=SIZE,
        num_random_blocks=NUM_RANDOM,
        sep_token_id=5,
        **options,
    )
    model = BigBirdModel(config, add_pooling_layer=False)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.2)
    return model.double().eval()


def stock_states(model, ids):
    """Let a stock model read that has not yet changed to full attention."""
    return copy.deepcopy(model)(ids).last_hidden_state


def fields_of(**fields):
    """Give fields for a model of two layers, the first of the type."""
    return STOCK_FIELDS | {"layer_types": [KIND, "full_attention"]} | fields


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [LONGEST_FULL, LONGEST_FULL + 1, 40, 41, 103, 208])
def test_states_are_those_of_transformers(length, kernel):
    stock = stock_model()
    ours = from_stock(stock)
    ours.set_attn_implementation(kernel)
    ids = torch.randint(3, 61, (2, length), generator=torch.Generator().manual_seed(length))
    expected = stock_states(stock, ids)
    assert_close(ours(ids).last_hidden_state, expected, rtol=0, atol=1e-12)
    bounds = torch.tensor([0, length, 2 * length]).int()
    packed = ours(ids.flatten()[None], cu_seq_lens_q=bounds).last_hidden_state
    assert_close(packed.view_as(expected), expected, rtol=0, atol=1e-12)
    full = stock_states(stock_model(attention_type="original_full"), ids)
    assert torch.equal(full, expected) == (length <= LONGEST_FULL)


def test_a_text_that_is_padded_has_the_states_that_transformers_gives_it_alone():
    stock = stock_model()
    ours = from_stock(stock)
    ids = torch.randint(3, 61, (2, 60), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 45:] = 0
    padded = ours(ids, attention_mask=mask).last_hidden_state[1, :45]
    assert_close(padded, stock_states(stock, ids[1:, :45])[0], rtol=0, atol=1e-12)
    theirs = copy.deepcopy(stock)(ids, attention_mask=mask).last_hidden_state[1, :45]
    assert not torch.allclose(theirs, padded), "transformers' last block is that of the batch"


@pytest.mark.parametrize(
    ("variant", "score"),
    [(variant, "scaled_dot_product") for variant in ("modern", "t5", "alibi", "grouped")]
    + [("grouped", "additive")],
)
def test_every_layout_and_kernel_counts_keys_alike(variant, score, builder, batch, targets, monkeypatch):
    def build(kernel):
        return builder("encoder", variant, kernel, **fields_of(attention_score=score))

    assert_one_lesson(build, "encoder", batch, targets)
    (ids, mask), counted = batch.padded(), build("sdpa")
    logits = counted(ids, mask).logits
    monkeypatch.setattr(StockBigBirdAttention, "adds_to_scores", False)
    assert not torch.allclose(counted(ids, mask).logits, logits)


@pytest.mark.parametrize("length", [300, 20])
def test_the_fused_kernel_takes_what_is_added(length, builder):
    """The longer text is beyond what the kernel of short texts computes."""
    model = builder("encoder", max_position_embeddings=400, **fields_of(attention_block_size=8))
    ids = torch.randint(3, 61, (1, length), generator=torch.Generator().manual_seed(0))
    packed = model(ids, cu_seq_lens_q=torch.tensor([0, length]).int()).logits
    model.set_attn_implementation("eager")
    assert_close(packed, model(ids).logits, **CLOSE)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_a_given_mask_of_pairs_is_used_as_it_is(kernel, builder):
    model = builder("encoder", kernel=kernel, **fields_of())
    plain = builder("encoder", kernel=kernel)
    plain.load_state_dict(model.state_dict())
    ids = torch.randint(3, 61, (2, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(2, 1, 12, 12)
    mask[..., 3:5] = mask[1, :, :, :2] = torch.finfo(torch.float32).min
    assert_close(model(ids, attention_mask=mask).logits, plain(ids, attention_mask=mask).logits)
    by_type = dict.fromkeys(model.config.types_of_layers, mask)
    assert_close(model(ids, attention_mask=by_type).logits, plain(ids, attention_mask=mask).logits)


def test_other_directions_and_kernels_are_refused(builder):
    model = builder("encoder", **fields_of())
    with pytest.raises(ValueError, match="has no causal form"):
        model(torch.tensor([[5, 6]]), is_causal=True)
    with pytest.raises(ValueError, match="'stock_big_bird_attention' add to scores: choose"):
        builder("encoder", kernel="flex_attention", **fields_of())
