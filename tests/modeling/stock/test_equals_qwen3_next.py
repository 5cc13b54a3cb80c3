"""Qwen3-Next without its linear attention: gated attention computes, learns and generates the same."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

from tercet.modeling import TercetDecoderForCausalLM

HEADS = 4
QWEN3_NEXT = {
    "model.embeddings.embed_tokens.*": "model.embed_tokens.*",
    "model.layers.#.self_attention_norm.*": "model.layers.#.input_layernorm.*",
    "model.layers.#.self_attention.q_proj.*": ("model.layers.#.self_attn.q_proj.*", 0, HEADS),
    "model.layers.#.self_attention.gate.g_proj.*": ("model.layers.#.self_attn.q_proj.*", 1, HEADS),
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
IDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
SHARED = {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": False, "attention_bias": True}
OURS = {"attention_gate": "elementwise", "use_qk_norm": True, "partial_rotary_factor": 0.25}
THEIRS = {"layer_types": ["full_attention"] * 2, "mlp_only_layers": [0, 1]}


@pytest.fixture
def qwen3_next(beside, sizes):
    config = Qwen3NextConfig(**sizes, **SHARED, **IDS, **THEIRS)
    stock = Qwen3NextForCausalLM._from_config(config, attn_implementation="eager")
    pair = beside("decoder-tiny", TercetDecoderForCausalLM, stock, QWEN3_NEXT, **OURS, **SHARED, **IDS)
    with torch.no_grad():
        for name, parameter in pair.ours.named_parameters():
            if "norm" in name:
                parameter += 1  # theirs multiply by what is above one
    return pair


@pytest.fixture
def batch(ragged) -> dict[str, Tensor]:
    return ragged(9, 4, 6, 1, side="left")


def test_logits_equal_qwen3_next(qwen3_next, batch, is_packed):
    qwen3_next.ours.train(is_packed)
    qwen3_next.assert_same_next_tokens(batch)


def test_loss_and_gradients_equal_qwen3_next(qwen3_next, batch, is_packed):
    qwen3_next.ours.train(is_packed)
    qwen3_next.assert_same_causal_lesson(batch)


def test_texts_equal_qwen3_next(qwen3_next, ragged):
    qwen3_next.assert_same_texts(ragged(6, 3, 4, 1, side="left"), max_new_tokens=9, pad_token_id=0)
