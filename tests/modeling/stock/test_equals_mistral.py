"""Mistral, whose layers all slide: ours and transformers' compute, learn and generate the same."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

from tercet.modeling import TercetDecoderForCausalLM

MISTRAL = {
    "model.embeddings.embed_tokens.*": "model.embed_tokens.*",
    "model.layers.#.self_attention_norm.*": "model.layers.#.input_layernorm.*",
    "model.layers.#.self_attention.q_proj.*": "model.layers.#.self_attn.q_proj.*",
    "model.layers.#.self_attention.k_proj.*": "model.layers.#.self_attn.k_proj.*",
    "model.layers.#.self_attention.v_proj.*": "model.layers.#.self_attn.v_proj.*",
    "model.layers.#.self_attention.o_proj.*": "model.layers.#.self_attn.o_proj.*",
    "model.layers.#.feed_forward_norm.*": "model.layers.#.post_attention_layernorm.*",
    "model.layers.#.feed_forward.gate_proj.*": "model.layers.#.mlp.gate_proj.*",
    "model.layers.#.feed_forward.up_proj.*": "model.layers.#.mlp.up_proj.*",
    "model.layers.#.feed_forward.down_proj.*": "model.layers.#.mlp.down_proj.*",
    "model.norm.*": "model.norm.*",
    "lm_head.*": "lm_head.*",
}
IDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
SHARED = {"num_key_value_heads": 2, "sliding_window": 3, "tie_word_embeddings": False}


@pytest.fixture
def mistral(beside, sizes):
    stock = MistralForCausalLM._from_config(
        MistralConfig(**sizes, **SHARED, **IDS), attn_implementation="eager"
    )
    layer_types = ["sliding_attention"] * sizes["num_hidden_layers"]
    return beside(
        "decoder-base", TercetDecoderForCausalLM, stock, MISTRAL, layer_types=layer_types, **SHARED, **IDS
    )


@pytest.fixture(params=["left", "right"])
def batch(request, ragged) -> dict[str, Tensor]:
    return ragged(12, 4, 7, 2, side=request.param)


def test_logits_equal_mistral(mistral, batch, is_packed):
    mistral.ours.train(is_packed)
    is_real = batch["attention_mask"] == 1
    ours, stock = (model(**batch, use_cache=False).logits for model in (mistral.ours, mistral.stock))
    mistral.assert_same(ours[is_real], stock[is_real])


def test_loss_and_gradients_equal_mistral(mistral, batch, is_packed):
    mistral.ours.train(is_packed)
    ours = mistral.ours(**batch, labels=batch["input_ids"]).loss
    # Ours knows that pads and first tokens are no targets; the stock model has to be told.
    is_target = (batch["attention_mask"] == 1) & (batch["attention_mask"].cumsum(-1) > 1)
    stock = mistral.stock(**batch, labels=batch["input_ids"].masked_fill(~is_target, -100)).loss
    mistral.assert_same(ours, stock)
    mistral.assert_same_gradients(ours, stock)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}], ids=str)
def test_generation_beyond_the_window_equals_mistral(mistral, ragged, options):
    batch = ragged(6, 3, 5, 1, side="left")
    greedy = {"max_new_tokens": 9, "do_sample": False, "no_repeat_ngram_size": 1}
    ours = mistral.ours.eval().generate(**batch, **greedy, **options)
    assert torch.equal(ours, mistral.stock.generate(**batch, **greedy, **options))
    assert len(ours[:, 6:].unique()) > 8
