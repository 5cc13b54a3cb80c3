"""T5 and its version 1.1 (also mT5 and Flan-T5): ours and transformers' compute, learn and generate the same.

T5 divides no scores by the root of a head's width, but the states before its tied head by that of the
model's: here, these factors are in the weights of the queries and of the final norm.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

from tercet.modeling import TercetEncoderConfig, TercetSeq2SeqForConditionalGeneration
from tercet.modeling.attention.relative_bias import RelativeBias
from tercet.modeling.configuration_tercet import TercetDecoderConfig

BIAS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}
IDS: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


def attention(ours: str, stock: str, head_dim: int) -> dict[str, str | tuple[str, float]]:
    """Place the projections of one attention."""
    return {
        f"{ours}.q_proj.*": (f"{stock}.q.*", head_dim**0.5),
        f"{ours}.k_proj.*": f"{stock}.k.*",
        f"{ours}.v_proj.*": f"{stock}.v.*",
        f"{ours}.o_proj.*": f"{stock}.o.*",
    }


def stack(name: str, head_dim: int, feed_forward_idx: int) -> dict[str, str | tuple[str, float]]:
    """Place what both stacks have, in either version."""
    ours, stock = f"model.{name}.layers.#", f"{name}.block.#.layer"
    first, last = f"{name}.block.0.layer.0", f"{stock}.{feed_forward_idx}"
    return attention(f"{ours}.self_attention", f"{stock}.0.SelfAttention", head_dim) | {
        f"model.{name}.relative_bias.table.*": f"{first}.SelfAttention.relative_attention_bias.*",
        f"{ours}.self_attention_norm.*": f"{stock}.0.layer_norm.*",
        f"{ours}.feed_forward.up_proj.*": f"{last}.DenseReluDense.wi.*",
        f"{ours}.feed_forward.down_proj.*": f"{last}.DenseReluDense.wo.*",
        f"{ours}.feed_forward_norm.*": f"{last}.layer_norm.*",
        f"model.{name}.norm.*": f"{name}.final_layer_norm.*",
    }


def table(width: int, head_dim: int) -> dict[str, str | tuple[str, float]]:
    """Place all parameters of T5."""
    reading, layer = "model.decoder.layers.#.cross_attention", "decoder.block.#.layer.1"
    return {
        "model.encoder.embeddings.embed_tokens.*": "shared.*",
        **stack("encoder", head_dim, 1),
        **stack("decoder", head_dim, 2),
        **attention(reading, f"{layer}.EncDecAttention", head_dim),
        f"{reading}_norm.*": f"{layer}.layer_norm.*",
        "model.decoder.norm.*": ("decoder.final_layer_norm.*", width**-0.5),
    }


def gated(places: dict[str, str | tuple[str, float]]) -> dict[str, str | tuple[str, float]]:
    """Place the parameters of version 1.1, whose head is scaled by nothing and has a table of its own."""
    gates = {
        f"model.{name}.layers.#.feed_forward.{ours}.*": f"{name}.block.#.layer.{idx}.DenseReluDense.{stock}.*"
        for name, idx in (("encoder", 1), ("decoder", 2))
        for ours, stock in (("gate_proj", "wi_0"), ("up_proj", "wi_1"))
    }
    return places | gates | {"model.decoder.norm.*": "decoder.final_layer_norm.*", "lm_head.*": "lm_head.*"}


def build_stock(sizes: dict[str, Any], **fields: Any) -> T5ForConditionalGeneration:
    config = T5Config(
        vocab_size=sizes["vocab_size"],
        d_model=sizes["hidden_size"],
        d_kv=sizes["hidden_size"] // sizes["num_attention_heads"],
        d_ff=sizes["intermediate_size"],
        num_layers=sizes["num_hidden_layers"],
        num_heads=sizes["num_attention_heads"],
        dropout_rate=0.0,
        **BIAS | IDS | fields,
    )
    return T5ForConditionalGeneration._from_config(config, attn_implementation="eager")


@pytest.fixture(params=["t5", "version 1.1"])
def pair(request, beside, sizes):
    width = sizes["hidden_size"]
    places = table(width, width // sizes["num_attention_heads"])
    fields: dict[str, Any] = {"position_embedding_type": "relative_bias", **BIAS, **IDS}
    if request.param == "t5":
        stock = build_stock(sizes)
        fields |= {"feed_forward_type": "plain", "hidden_act": "relu"}
    else:
        stock = build_stock(sizes, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
        # The stock class ties what it has not loaded apart.
        stock.lm_head.weight = nn.Parameter(torch.empty_like(stock.lm_head.weight))
        places = gated(places)
        fields |= {
            "hidden_act": "gelu_new",
            "tie_word_embeddings": False,
            "share_encoder_decoder_embeddings": True,
        }
    return beside("seq2seq-tiny", TercetSeq2SeqForConditionalGeneration, stock, places, **fields)


@pytest.fixture(params=["left", "right"])
def batch(request, ragged) -> dict[str, Tensor]:
    return ragged(7, 12, 2, 5, side=request.param)


@pytest.fixture
def target(ragged) -> dict[str, Tensor]:
    return ragged(5, 3, 11, 1)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 6), (20, 300), (7, 9)])
def test_buckets_equal_the_stock_model(is_causal, num_buckets, max_distance):
    config = (TercetDecoderConfig if is_causal else TercetEncoderConfig)(
        relative_attention_num_buckets=num_buckets, relative_attention_max_distance=max_distance
    )
    distances = torch.arange(-600, 601)
    expected = T5Attention._relative_position_bucket(distances, not is_causal, num_buckets, max_distance)
    assert torch.equal(RelativeBias(config, is_causal=is_causal).buckets(distances), expected)


def test_logits_equal_the_stock_model(pair, batch, target, is_packed):
    pair.ours.train(is_packed)
    pair.assert_same_target_tokens(batch, target)


@pytest.mark.parametrize("has_decoder_mask", [True, False])
def test_loss_and_gradients_equal_the_stock_model(pair, batch, target, has_decoder_mask, is_packed):
    pair.ours.train(is_packed)
    pair.assert_same_target_lesson(batch, target, has_decoder_mask=has_decoder_mask)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_equals_the_stock_model(pair, batch, num_beams):
    pair.assert_same_texts(batch, max_new_tokens=12, num_beams=num_beams, eos_token_id=None)
