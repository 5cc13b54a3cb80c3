"""Random blocks are drawn without repetition, evenly, and the same at any length and in any version."""

from math import sqrt

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from transformers import masking_utils

from tercet.modeling import TercetDecoderConfig, TercetEncoderConfig
from tercet.modeling.attention.big_bird import BigBirdAttention

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


def test_without_random_blocks_there_are_a_window_and_global_tokens():
    pattern = pattern_of(attention_random_blocks=0)
    positions = torch.arange(40)
    near = (positions[:, None] // 2 - positions // 2).abs() <= 1
    is_global = positions < FIELDS["attention_global_tokens"]
    found = pattern.allows(positions[:, None], positions)
    assert torch.equal(found, near | is_global | is_global[:, None])


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
