"""Decoders since GPT-2: ours and transformers' compute, learn and generate the same from the same weights."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from torch import Tensor
from transformers import (
    GPTNeoXForCausalLM,
    LlamaForCausalLM,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from tercet.modeling import TercetDecoderForCausalLM

HEADS = 2
"""Of GPT-NeoX, so that a quarter of each is two pairs of channels."""

LLAMA = {
    "model.embeddings.embed_tokens.*": "model.embed_tokens.*",
    "model.layers.#.self_attention_norm.*": "model.layers.#.input_layernorm.*",
    "model.layers.#.self_attention.q_proj.*": "model.layers.#.self_attn.q_proj.*",
    "model.layers.#.self_attention.k_proj.*": "model.layers.#.self_attn.k_proj.*",
    "model.layers.#.self_attention.v_proj.*": "model.layers.#.self_attn.v_proj.*",
    "model.layers.#.self_attention.o_proj.*": "model.layers.#.self_attn.o_proj.*",
    "model.layers.#.self_attention.q_norm.*": "model.layers.#.self_attn.q_norm.*",
    "model.layers.#.self_attention.k_norm.*": "model.layers.#.self_attn.k_norm.*",
    "model.layers.#.feed_forward_norm.*": "model.layers.#.post_attention_layernorm.*",
    "model.layers.#.feed_forward.gate_proj.*": "model.layers.#.mlp.gate_proj.*",
    "model.layers.#.feed_forward.up_proj.*": "model.layers.#.mlp.up_proj.*",
    "model.layers.#.feed_forward.down_proj.*": "model.layers.#.mlp.down_proj.*",
    "model.norm.*": "model.norm.*",
    "lm_head.*": "lm_head.*",
}
GPT_NEOX = {
    "model.embeddings.embed_tokens.*": "gpt_neox.embed_in.*",
    "model.layers.#.self_attention_norm.*": "gpt_neox.layers.#.input_layernorm.*",
    "model.layers.#.self_attention.q_proj.*": ("gpt_neox.layers.#.attention.query_key_value.*", 0, HEADS),
    "model.layers.#.self_attention.k_proj.*": ("gpt_neox.layers.#.attention.query_key_value.*", 1, HEADS),
    "model.layers.#.self_attention.v_proj.*": ("gpt_neox.layers.#.attention.query_key_value.*", 2, HEADS),
    "model.layers.#.self_attention.o_proj.*": "gpt_neox.layers.#.attention.dense.*",
    "model.layers.#.feed_forward_norm.*": "gpt_neox.layers.#.post_attention_layernorm.*",
    "model.layers.#.feed_forward.up_proj.*": "gpt_neox.layers.#.mlp.dense_h_to_4h.*",
    "model.layers.#.feed_forward.down_proj.*": "gpt_neox.layers.#.mlp.dense_4h_to_h.*",
    "model.norm.*": "gpt_neox.final_layer_norm.*",
    "lm_head.*": "lm_head.*",
}
OPT = {
    "model.embeddings.embed_tokens.*": "model.decoder.embed_tokens.*",
    "model.embeddings.positions.embed_positions.*": "model.decoder.embed_positions.*",
    "model.layers.#.self_attention_norm.*": "model.decoder.layers.#.self_attn_layer_norm.*",
    "model.layers.#.self_attention.q_proj.*": "model.decoder.layers.#.self_attn.q_proj.*",
    "model.layers.#.self_attention.k_proj.*": "model.decoder.layers.#.self_attn.k_proj.*",
    "model.layers.#.self_attention.v_proj.*": "model.decoder.layers.#.self_attn.v_proj.*",
    "model.layers.#.self_attention.o_proj.*": "model.decoder.layers.#.self_attn.out_proj.*",
    "model.layers.#.feed_forward_norm.*": "model.decoder.layers.#.final_layer_norm.*",
    "model.layers.#.feed_forward.up_proj.*": "model.decoder.layers.#.fc1.*",
    "model.layers.#.feed_forward.down_proj.*": "model.decoder.layers.#.fc2.*",
    "model.norm.*": "model.decoder.final_layer_norm.*",
}
IDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
LONGER = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 0.1,
    "high_freq_factor": 2.0,
    "original_max_position_embeddings": 16,
}


@dataclass(frozen=True)
class Family:
    """A stock model, and the fields that make ours equal to it."""

    stock: type[PreTrainedModel]
    table: dict[str, Any]
    preset: str
    same: dict[str, Any] = field(default_factory=dict)
    """Fields that both have."""
    theirs: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)


def gpt_neox(is_parallel: bool) -> Family:
    return Family(
        GPTNeoXForCausalLM,
        GPT_NEOX,
        "gpt2",
        same={"num_attention_heads": HEADS, "hidden_act": "gelu", "tie_word_embeddings": False},
        theirs={"rotary_pct": 0.25, "use_parallel_residual": is_parallel},
        ours={
            "position_embedding_type": "rotary",
            "partial_rotary_factor": 0.25,
            "norm_placement": "parallel" if is_parallel else "pre",
        },
    )


def llama(theirs: dict[str, Any] | None = None, ours: dict[str, Any] | None = None, **same: Any) -> Family:
    # The preset consists of our defaults and of sizes.
    return Family(LlamaForCausalLM, LLAMA, "decoder-tiny", same, theirs or {}, ours or {})


FAMILIES = {
    "GPT-NeoX": gpt_neox(is_parallel=True),
    "GPT-NeoX, one after the other": gpt_neox(is_parallel=False),
    "OPT": Family(
        OPTForCausalLM,
        OPT,
        "gpt2",
        theirs={"ffn_dim": 48, "activation_function": "relu", "do_layer_norm_before": True},
        ours={"position_offset": 2, "hidden_act": "relu"},
    ),
    "Llama": llama(num_key_value_heads=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    "Llama, squared ReLU": llama(hidden_act="relu2", tie_word_embeddings=False),
    "Llama 3": llama(
        theirs={"rope_parameters": LONGER | {"rope_theta": 500.0}},
        ours={"rope_scaling": LONGER, "rope_theta": 500.0},
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    ),
    "Llama, linear": llama(
        theirs={"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}},
        ours={"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        tie_word_embeddings=False,
    ),
    "SmolLM": llama(
        theirs={"rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0}},
        ours={"rope_theta": 100_000.0},
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ),
    "Qwen2": Family(
        Qwen2ForCausalLM,
        LLAMA,
        "decoder-tiny",
        same={"num_key_value_heads": 2, "tie_word_embeddings": True},
        ours={"attention_bias": True, "attention_out_bias": False},
    ),
    "Qwen3": Family(
        Qwen3ForCausalLM,
        LLAMA,
        "decoder-tiny",
        same={"num_key_value_heads": 2, "head_dim": 12, "tie_word_embeddings": False},
        theirs={"rms_norm_eps": 0.01},
        ours={"use_qk_norm": True, "norm_eps": 0.01},
    ),
}


@pytest.fixture(params=FAMILIES)
def pair(request, beside, sizes):
    family = FAMILIES[request.param]
    config_class: Any = family.stock.config_class
    config = config_class(**sizes | IDS | family.same | family.theirs)
    stock = family.stock._from_config(config, attn_implementation="eager")
    return beside(
        family.preset, TercetDecoderForCausalLM, stock, family.table, **IDS | family.same | family.ours
    )


@pytest.fixture
def batch(ragged) -> dict[str, Tensor]:
    return ragged(9, 4, 6, 1, side="left")


def test_logits_equal_the_stock_model(pair, batch, is_packed):
    pair.ours.train(is_packed)
    pair.assert_same_next_tokens(batch)


def test_loss_and_gradients_equal_the_stock_model(pair, batch, is_packed):
    pair.ours.train(is_packed)
    pair.assert_same_causal_lesson(batch)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_from_left_padded_prompts_equals_the_stock_model(pair, ragged, num_beams):
    batch = ragged(6, 3, 4, 1, side="left")
    pair.assert_same_texts(batch, max_new_tokens=9, num_beams=num_beams, pad_token_id=0)
