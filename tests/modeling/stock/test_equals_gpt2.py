"""GPT-2: ours and transformers' compute, learn and generate the same from the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
)

from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetDecoderForSequenceClassification,
    TercetDecoderForTokenClassification,
)

GPT2 = {
    "model.embeddings.embed_tokens.*": "transformer.wte.*",
    "model.embeddings.positions.embed_positions.*": "transformer.wpe.*",
    "model.layers.#.self_attention_norm.*": "transformer.h.#.ln_1.*",
    "model.layers.#.self_attention.q_proj.*": ("transformer.h.#.attn.c_attn.*", 0),
    "model.layers.#.self_attention.k_proj.*": ("transformer.h.#.attn.c_attn.*", 1),
    "model.layers.#.self_attention.v_proj.*": ("transformer.h.#.attn.c_attn.*", 2),
    "model.layers.#.self_attention.o_proj.*": "transformer.h.#.attn.c_proj.*",
    "model.layers.#.feed_forward_norm.*": "transformer.h.#.ln_2.*",
    "model.layers.#.feed_forward.up_proj.*": "transformer.h.#.mlp.c_fc.*",
    "model.layers.#.feed_forward.down_proj.*": "transformer.h.#.mlp.c_proj.*",
    "model.norm.*": "transformer.ln_f.*",
}
SEQUENCE_HEAD = {"classifier.out_proj.weight": "score.weight"}
TOKEN_HEAD = {"classifier.out_proj.*": "classifier.*"}
NO_IDS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}


@pytest.fixture
def gpt2_with(beside, sizes):
    """Give a function that puts a decoder with a head of ours beside GPT-2 with the same."""
    inner = sizes.pop("intermediate_size")
    sizes |= {"n_inner": inner, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}

    def build(architecture, stock_class, head: dict[str, str], **fields):
        config = GPT2Config(**sizes, **NO_IDS, **fields)
        stock = stock_class._from_config(config, attn_implementation="eager")
        return beside("gpt2", architecture, stock, GPT2 | head, **NO_IDS, **fields)

    return build


@pytest.fixture
def gpt2(gpt2_with):
    return gpt2_with(TercetDecoderForCausalLM, GPT2LMHeadModel, {})


@pytest.fixture(params=["left", "right"])
def batch(request, ragged) -> dict[str, Tensor]:
    return ragged(9, 4, 6, 1, side=request.param)


def test_logits_equal_gpt2(gpt2, batch, is_packed):
    gpt2.ours.train(is_packed)
    gpt2.assert_same_next_tokens(batch)


def test_loss_and_gradients_equal_gpt2(gpt2, batch, is_packed):
    gpt2.ours.train(is_packed)
    gpt2.assert_same_causal_lesson(batch)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_from_left_padded_prompts_equals_gpt2(gpt2, ragged, num_beams):
    batch = ragged(6, 3, 4, 1, side="left")
    gpt2.assert_same_texts(batch, max_new_tokens=9, num_beams=num_beams, pad_token_id=0)


@pytest.mark.parametrize("has_mask", [True, False])
def test_labels_of_sequences_equal_gpt2(gpt2_with, batch, has_mask, is_packed):
    """Both find the last token that is no pad on either side: by the mask, or by the id of pads."""
    classes = (TercetDecoderForSequenceClassification, GPT2ForSequenceClassification)
    pair = gpt2_with(*classes, SEQUENCE_HEAD, num_labels=3, pad_token_id=0)
    inputs = batch if has_mask else {"input_ids": batch["input_ids"]}
    labels = torch.tensor([2, 0, 1, 1])
    pair.ours.train(is_packed)
    ours = pair.ours(**inputs, labels=labels)
    stock = pair.stock(**inputs, **(pair.positions(batch) if has_mask else {}), labels=labels)
    pair.assert_same(ours.logits, stock.logits)
    pair.assert_same(ours.loss, stock.loss)
    pair.assert_same_gradients(ours.loss, stock.loss)


def test_labels_of_tokens_equal_gpt2(gpt2_with, batch, is_packed):
    classes = (TercetDecoderForTokenClassification, GPT2ForTokenClassification)
    pair = gpt2_with(*classes, TOKEN_HEAD, num_labels=5)
    labels = (batch["input_ids"] % 5).masked_fill(batch["attention_mask"] == 0, -100)
    pair.ours.train(is_packed)
    ours = pair.ours(**batch, labels=labels)
    stock = pair.stock(**batch, **pair.positions(batch), labels=labels)
    pair.assert_same(ours.loss, stock.loss)
    pair.assert_same_gradients(ours.loss, stock.loss)
