"""transformers' BigBird in evaluation: equal alone, and the same in every layout and kernel of ours."""

import copy

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch.testing import assert_close
from transformers import BigBirdConfig, BigBirdModel

from tercet.modeling import TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig
from tercet.modeling.stock_big_bird_attention import StockBigBirdAttention
from tercet.stock import from_stock

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
KIND = "stock_big_bird_attention"
FIELDS = {"attention_block_size": 1, "attention_random_blocks": 1}
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
    return FIELDS | {"layer_types": [KIND, "full_attention"]} | fields


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


def test_keys_of_the_first_block_count_once_more_for_each_random_block():
    """Its keys repeated by hand have the weights that the addition gives them together."""
    pattern = StockBigBirdAttention(
        TercetEncoderConfig(attention_block_size=SIZE, attention_random_blocks=NUM_RANDOM), is_causal=False
    )
    scores, size = torch.randn(60, 60, dtype=torch.float64), SIZE
    positions = torch.arange(60)
    is_global = pattern.own_global_tokens(positions, torch.tensor(60))
    added = pattern.added_to(positions, is_global, torch.float64)
    allowed = pattern.map_of(60)
    weights = (scores + added).masked_fill(~allowed, -torch.inf).softmax(-1)
    for query in (0, size, 30, 55, 56, 59):
        is_inner = size <= query < 56
        num_counts = torch.ones(60, dtype=torch.long)
        num_counts[:size] += NUM_RANDOM * is_inner
        block = query // size
        seen = {0, block - 1, block, block + 1, 14} if is_inner else set(range(15))
        by_hand = [key for key in range(60) if key // size in seen for _ in range(num_counts[key])]
        repeated = torch.zeros(60, dtype=torch.float64).index_add(
            0, torch.tensor(by_hand), scores[query, by_hand].softmax(-1)
        )
        assert_close(weights[query], repeated)


@pytest.mark.parametrize("variant", ["modern", "t5", "alibi"])
def test_padded_is_packed_is_alone_is_the_definition(variant, builder, batch, monkeypatch):
    model = builder("encoder", variant, **fields_of())
    ids, mask = batch.padded()
    padded = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    assert_close(model(**batch.packed()).logits[0], padded, **CLOSE)
    left_ids, left_mask = batch.padded("left")
    left = model(input_ids=left_ids, attention_mask=left_mask).logits[left_mask.bool()]
    assert_close(left, padded, **CLOSE)
    alone = torch.cat([model(input_ids=ids[None]).logits[0] for ids in batch.sequences])
    assert_close(alone, padded, **CLOSE)
    definition = builder("encoder", variant, "eager", **fields_of())
    assert_close(definition(ids, mask).logits[mask.bool()], padded, **CLOSE)
    assert_close(definition(**batch.packed(), output_attentions=True).logits[0], padded, **CLOSE)
    uncounted = builder("encoder", variant, **fields_of())
    monkeypatch.setattr(StockBigBirdAttention, "adds_to_scores", False)
    assert not torch.allclose(uncounted(input_ids=ids, attention_mask=mask).logits[mask.bool()], padded)


@pytest.mark.parametrize("score", ["scaled_dot_product", "additive"])
def test_kernels_have_the_gradients_of_the_definition(score, builder, batch):
    ids, mask = batch.padded()
    labels = ids.masked_fill(mask == 0, -100)
    results = []
    for kernel, inputs in (
        ("eager", {"input_ids": ids, "attention_mask": mask, "labels": labels}),
        ("sdpa", {"input_ids": ids, "attention_mask": mask, "labels": labels}),
        ("sdpa", batch.packed() | {"labels": batch.packed()["input_ids"]}),
    ):
        model = builder("encoder", "grouped", kernel, **fields_of(attention_score=score))
        model(**inputs, reduction="sum").loss.backward()
        results.append({name: weight.grad for name, weight in model.named_parameters()})
    for result in results[1:]:
        assert_close(result, results[0], rtol=1e-3, atol=1e-4)


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


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TercetDecoderConfig(num_hidden_layers=1, layer_types=[KIND]), "has no causal form"),
        (
            lambda: TercetSeq2SeqConfig(num_hidden_layers=1, layer_types=[KIND]),
            "decoder_layer_types has layers of type 'stock_big_bird_attention', which has no causal form",
        ),
        (
            lambda: TercetEncoderConfig(num_hidden_layers=1, layer_types=[KIND], attention_block_size=0),
            "attention_block_size is 0, but layer_types has stock big bird layers: choose 1 or more",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line(build, message):
    with pytest.raises(StrictDataclassError, match=message):
        build()


def test_other_directions_and_kernels_are_refused(builder):
    model = builder("encoder", **fields_of())
    with pytest.raises(ValueError, match="has no causal form"):
        model(torch.tensor([[5, 6]]), is_causal=True)
    with pytest.raises(ValueError, match="'stock_big_bird_attention' add to scores: choose"):
        builder("encoder", kernel="flex_attention", **fields_of())
