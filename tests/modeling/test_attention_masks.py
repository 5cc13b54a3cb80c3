"""One mask has many spellings: all are read alike, by every member and kernel, and others are refused.

Padding masks of any numbers, and with pads between tokens: training reads them as evaluation does.
"""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.testing import assert_close
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel, StaticCache

from tercet.modeling import (
    TercetCharacterConfig,
    TercetCharacterModel,
    TercetDecoderForMaskedLM,
    TercetElmoConfig,
    TercetElmoModel,
    TercetSeq2SeqForSequenceClassification,
)
from tercet.modeling.stock.models import from_stock

from ..tolerances import CLOSE

LOWEST = torch.finfo(torch.float32).min


KERNELS = ("sdpa", "eager")


SPELLINGS = {
    "boolean": lambda pairs: pairs[:, None],
    "integer": lambda pairs: pairs[:, None].long(),
    "bytes": lambda pairs: pairs[:, None].to(torch.uint8),
    "floating": lambda pairs: pairs[:, None].float(),
    "half": lambda pairs: pairs[:, None].bfloat16(),
    "added, lowest": lambda pairs: added(pairs[:, None], LOWEST),
    "added, infinite": lambda pairs: added(pairs[:, None], -torch.inf),
    "added, -10000": lambda pairs: added(pairs[:, None], -1e4),
    "without heads, boolean": lambda pairs: pairs,
    "without heads, integer": lambda pairs: pairs.int(),
    "without heads, floating": lambda pairs: pairs.float(),
    "without heads, added": lambda pairs: added(pairs, LOWEST),
    "by head": lambda pairs: pairs[:, None].expand(-1, 4, -1, -1),
    "by head, added": lambda pairs: added(pairs[:, None].expand(-1, 4, -1, -1), LOWEST),
    "by type": lambda pairs: dict.fromkeys(("full_attention", "sliding_attention"), pairs[:, None].long()),
}
"""How a mask of pairs (B, T, S) may be written, true where a query may attend."""


def added(pairs: torch.Tensor, forbidden: float) -> torch.Tensor:
    """Write what is added to scores."""
    return torch.zeros(pairs.shape).masked_fill(~pairs, forbidden)


@pytest.fixture
def ids():
    """Three rows of two texts each, (B, T)."""
    return torch.randint(3, 61, (3, 8), generator=torch.Generator().manual_seed(0))


def two_texts(is_causal: bool) -> torch.Tensor:
    """Let each half of a row attend to itself, (3, 8, 8)."""
    pairs = torch.block_diag(*[torch.ones(4, 4)] * 2).bool()
    return (pairs.tril() if is_causal else pairs).expand(3, 8, 8)


POSITIONS = torch.arange(4).repeat(2)[None]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("variant", ["modern", "t5", "sliding"])
@pytest.mark.parametrize("member", ["encoder", "decoder", "hybrid"])
def test_all_spellings_of_pairs_are_one_mask(member, variant, kernel, builder, task_builder, ids):
    fields = {"sliding_window": 8} if variant == "sliding" else {}
    if member == "hybrid":
        model = task_builder(TercetDecoderForMaskedLM, variant, kernel, **fields)
    else:
        model = builder(member, variant, kernel, **fields)
    pairs = two_texts(member == "decoder")
    halves = [model(input_ids=half).logits for half in ids.split(4, dim=1)]
    expected = torch.cat(halves, dim=1)
    # Of a hybrid, the logits are those of the position before.
    where = [0, 1, 2, 3, 5, 6, 7] if member == "hybrid" else range(8)
    inputs = {"input_ids": ids, "position_ids": POSITIONS}
    for spell in SPELLINGS.values():
        for is_training in (False, True):
            logits = model.train(is_training)(**inputs, attention_mask=spell(pairs)).logits
            assert_close(logits[:, where], expected[:, where], **CLOSE)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_half_precision_and_autocast_read_all_spellings(spelling, builder, ids):
    pairs = two_texts(True)
    inputs = {"input_ids": ids, "position_ids": POSITIONS}
    for model, is_automatic in ((builder("decoder").bfloat16(), False), (builder("decoder"), True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_automatic):
            expected = model(**inputs, attention_mask=pairs[:, None]).logits
            found = model(**inputs, attention_mask=SPELLINGS[spelling](pairs)).logits
        assert_close(found, expected, rtol=0, atol=0.1)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_pads_may_be_spelled_as_pairs_of_source_and_target(spelling, kernel, builder, task_builder, ids):
    if spelling == "by type":
        pytest.skip("a decoder that reads an encoder takes one mask of the source")
    source = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 2 + [0] * 6])
    target = torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] * 4 + [0]])
    keys, own = (
        source[:, None].bool().expand(3, 8, 8),
        target[:, None].bool() & torch.ones(5, 5).bool().tril(),
    )
    spelled = {
        "attention_mask": SPELLINGS[spelling](keys),
        "decoder_attention_mask": SPELLINGS[spelling](own),
    }
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :5]}
    for is_training in (False, True):
        model = builder("seq2seq", "modern", kernel).train(is_training)
        expected = model(**inputs, attention_mask=source, decoder_attention_mask=target).logits
        assert_close(model(**inputs, **spelled).logits[target.bool()], expected[target.bool()], **CLOSE)
        model = task_builder(TercetSeq2SeqForSequenceClassification, "modern", kernel).train(is_training)
        expected = model(ids, attention_mask=source).logits
        assert_close(model(ids, attention_mask=spelled["attention_mask"]).logits, expected, **CLOSE)


def test_a_source_may_have_another_mask_for_each_target(builder, ids):
    decoder = builder("seq2seq").model.decoder
    source, pairs = torch.randn(3, 6, 32), torch.ones(3, 8, 6, dtype=torch.bool)
    pairs[:, :4, 3:] = pairs[:, 4:, :2] = False
    states = decoder(ids, encoder_hidden_states=source, encoder_attention_mask=pairs).last_hidden_state
    for is_training in (False, True):
        decoder.train(is_training)
        for spell in (SPELLINGS["integer"], SPELLINGS["added, infinite"], SPELLINGS["floating"]):
            found = decoder(
                ids,
                attention_mask=torch.ones_like(ids),
                encoder_hidden_states=source,
                encoder_attention_mask=spell(pairs),
            )
            assert_close(found.last_hidden_state, states, **CLOSE)
    first = decoder(ids[:, :4], encoder_hidden_states=source[:, :3]).last_hidden_state
    assert_close(states[:, :4], first, **CLOSE)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("variant", ["modern", "sliding", "t5"])
def test_pairs_reach_into_a_cache(variant, spelling, builder, ids):
    model = builder("decoder", variant)
    window = torch.ones(8, 8).bool().tril()
    if variant == "sliding":  # whose cache drops what no window reaches
        window &= ~torch.ones(8, 8).bool().tril(-2)
    pairs = window.expand(3, 8, 8)
    expected = model(ids, attention_mask=SPELLINGS[spelling](pairs)).logits
    cache = DynamicCache(config=model.config)
    model(ids[:, :6], attention_mask=SPELLINGS[spelling](pairs[:, :6, :6]), past_key_values=cache)
    mask = SPELLINGS[spelling](pairs[:, 6:])
    if variant == "sliding" and spelling == "by type":
        mask["sliding_attention"] = mask["sliding_attention"][..., -3:]
    assert_close(
        model(ids[:, 6:], attention_mask=mask, past_key_values=cache).logits, expected[:, 6:], **CLOSE
    )


@pytest.mark.parametrize("cache_implementation", ["dynamic", "static"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32])
def test_a_mask_of_tokens_of_any_type_generates_alike(dtype, kernel, cache_implementation, builder, ids):
    mask = torch.tensor([[1] * 8, [0] * 3 + [1] * 5, [0] * 6 + [1] * 2])
    for member in ("decoder", "seq2seq"):
        model = builder(member, "modern", kernel)
        options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        options["cache_implementation"] = cache_implementation
        expected = model.generate(ids, attention_mask=mask, **options)
        assert model.generate(ids, attention_mask=mask.to(dtype), **options).tolist() == expected.tolist()


def test_blocks_are_for_flex_attention_alone(builder, ids):
    blocks = create_block_mask(lambda row, head, query, key: query >= key, 3, None, 8, 8, device="cpu")
    with pytest.raises(ValueError, match="is a BlockMask, which attn_implementation='sdpa' does not take"):
        builder("encoder")(ids, attention_mask=blocks)


@pytest.mark.slow
def test_a_compiled_model_reads_all_spellings(builder, ids):
    model, pairs = builder("decoder", "modern", "eager"), two_texts(True)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for name in ("boolean", "floating", "added, infinite", "without heads, integer"):
        inputs = {"input_ids": ids, "position_ids": POSITIONS, "attention_mask": SPELLINGS[name](pairs)}
        assert_close(compiled(**inputs).logits, model(**inputs).logits, **CLOSE)


def test_what_is_added_may_be_learned(builder, ids):
    bias = torch.zeros(1, 4, 8, 8, requires_grad=True)
    builder("encoder", "modern", "eager")(ids, attention_mask=bias).logits.square().sum().backward()
    assert bias.grad is not None
    assert bias.grad.isfinite().all()
    assert bias.grad.any()


WRONG = {
    "one dimension": (torch.ones(8), r"has the size \(8,\): give \(3, 8\), one number for each token"),
    "one row": (torch.ones(1, 8), r"has the size \(1, 8\)"),
    "more rows": (torch.ones(5, 8), r"has the size \(5, 8\)"),
    "shorter": (torch.ones(3, 7), r"has the size \(3, 7\)"),
    "pairs without rows": (torch.ones(8, 8), r"has the size \(8, 8\): .* or \(3, 4 or 1, 8, 8\), true where"),
    "rows of others": (torch.ones(2, 8, 8), r"has the size \(2, 8, 8\)"),
    "shorter keys": (torch.ones(3, 1, 8, 7), r"has the size \(3, 1, 8, 7\)"),
    "other queries": (torch.ones(3, 1, 5, 8), r"has the size \(3, 1, 5, 8\)"),
    "other heads": (torch.ones(3, 3, 8, 8), r"has the size \(3, 3, 8, 8\)"),
    "five dimensions": (torch.ones(1, 1, 1, 8, 8), r"has the size \(1, 1, 1, 8, 8\)"),
    "a list": ([[1] * 8] * 3, "is a list: give a tensor of size"),
    "addends of tokens": (torch.zeros(3, 8).log(), r"holds -inf .*attention_mask\[:, None, None\]"),
    "another type of layer": ({"sliding_attention": None}, "some of type 'full_attention'"),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", WRONG)
def test_other_masks_are_refused_with_what_to_give(member, case, kernel, builder, ids):
    mask, words = WRONG[case]
    for is_training in (False, True):
        model = builder(member, "modern", kernel).train(is_training)
        own = {"decoder_input_ids": ids} if member == "seq2seq" else {}
        with pytest.raises(ValueError, match=words):
            model(input_ids=ids, attention_mask=mask, **own)
        if member == "seq2seq":
            with pytest.raises(ValueError, match=words):
                model(input_ids=ids, decoder_input_ids=ids, decoder_attention_mask=mask)
            if not isinstance(mask, dict):
                states = torch.zeros(3, 8, 32)
                with pytest.raises(ValueError, match=f"encoder_attention_mask.* {words.split()[-1]}"):
                    model.model.decoder(ids, encoder_hidden_states=states, encoder_attention_mask=mask)


def test_a_mask_that_does_not_fit_the_cache_is_refused(builder, ids):
    model = builder("decoder")
    cache = model(ids[:, :5], use_cache=True).past_key_values
    for mask in (torch.ones(3, 3), torch.ones(3, 9), torch.ones(3, 1, 3, 3), torch.ones(3, 3, 3)):
        with pytest.raises(ValueError, match=r"has the size .*: give \(3, 8\), one number for each token"):
            model(ids[:, 5:], attention_mask=mask, past_key_values=cache)
    static = StaticCache(config=model.config, max_cache_len=12)
    with pytest.raises(ValueError, match="the cache keeps 12 keys from position 0 on"):
        model(ids, attention_mask=torch.ones(3, 1, 8, 8), past_key_values=static)


def test_flash_kernels_and_packed_sequences_take_no_mask_of_pairs(builder, ids):
    model = builder("encoder")
    bounds = torch.tensor([0, 5, 8], dtype=torch.int32)
    for mask in (torch.ones(1, 1, 8, 8), torch.tensor([[1] * 7 + [0]])):
        with pytest.raises(ValueError, match="given beside cumulative lengths"):
            model(ids[:1], attention_mask=mask, cu_seq_lens_q=bounds)
    model.model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ValueError, match="'flash_attention_2' takes no mask of pairs: give one of tokens"):
        model(ids, attention_mask=two_texts(False))


@pytest.mark.parametrize("size", [(3, 1, 8, 8), (3, 8, 8), (8,), (2, 8)])
def test_members_without_attention_read_masks_of_tokens_alone(size, ids):
    character = TercetCharacterModel(TercetCharacterConfig(vocab_size=61, hidden_size=16))
    elmo = TercetElmoModel(TercetElmoConfig(vocab_size=61, hidden_size=16, lstm_cell_size=32))
    mask = torch.ones(size)
    with pytest.raises(ValueError, match=r"has the size .*: give \(3, 8\), one number for each token"):
        character(ids, mask)
    with pytest.raises(ValueError, match=r"has the size .*: give \(3, 8\), one number for each token"):
        elmo(attention_mask=mask, character_ids=ids[..., None])


LENGTHS = (9, 6, 7, 2)


@pytest.fixture
def texts():
    """Ids (B, T) and a mask of ones and zeros, with pads on the left of one row, on the right of others."""
    mask = (torch.arange(9) < torch.tensor(LENGTHS)[:, None]).long()
    mask[2] = mask[2].flip(0)
    return torch.randint(3, 61, mask.shape, generator=torch.Generator().manual_seed(0)), mask


@pytest.fixture
def texts_with_holes(texts):
    """The same, with pads between tokens in two rows."""
    ids, mask = texts
    mask[0, 3:5] = 0
    mask[1, 2] = 0
    return ids, mask


def loss_of(model, ids, mask, is_training):
    """Loss and gradients of a batch, in training or evaluation."""
    model.train(is_training).zero_grad()
    decoder = {"decoder_attention_mask": mask} if model.config.is_encoder_decoder else {}
    loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100), **decoder).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("values", [2, -1, 0.5, True])
@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("variant", ["bert", "modern", "sliding_t5"])
def test_whatever_is_not_zero_marks_a_token(member, variant, is_training, values, builder, texts):
    model = builder(member, variant)
    ids, mask = texts
    given = mask.bool() if values is True else mask * values
    assert_close(loss_of(model, ids, given, is_training), loss_of(model, ids, mask, is_training))


def test_masks_with_holes_give_training_the_loss_of_evaluation(member, variant, builder, texts_with_holes):
    model = builder(member, variant)
    ids, mask = texts_with_holes
    assert_close(loss_of(model, ids, mask, True), loss_of(model, ids, mask, False), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("is_training", [True, False])
def test_masks_with_holes_give_the_stock_models_loss(is_training, texts_with_holes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
    stock = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).eval()
    ours = from_stock(stock).train(is_training)
    ids, mask = texts_with_holes
    # Stock counts columns, and the first token behind a pad as its target: ours does neither.
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    is_inner = (mask != 0) & (positions > 0)
    labels = ids.masked_fill(~is_inner, -100)
    expected = stock(ids, attention_mask=mask, position_ids=positions, labels=labels).loss
    assert_close(ours(ids, attention_mask=mask, labels=labels).loss, expected)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])
def test_a_batch_without_any_token_teaches_nothing(member, is_training, builder):
    model = builder(member).train(is_training)
    ids = torch.zeros(1, 4, dtype=torch.long)
    inputs = {"input_ids": ids, "attention_mask": ids, "labels": ids}
    model(**inputs | ({"decoder_attention_mask": ids} if member == "seq2seq" else {})).loss.backward()
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
