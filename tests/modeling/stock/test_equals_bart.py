"""BART and Marian: ours and transformers' compute, learn and generate the same from the same weights.

Marian is the Transformer of 2017 with its sines before its cosines.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartForQuestionAnswering,
    BartForSequenceClassification,
    MarianConfig,
    MarianMTModel,
)
from transformers.loss.loss_utils import ForQuestionAnsweringLoss

from tercet.modeling import (
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqForQuestionAnswering,
    TercetSeq2SeqForSequenceClassification,
)

BART = {
    "model.encoder.embeddings.embed_tokens.*": "model.shared.*",
    "model.encoder.embeddings.positions.embed_positions.*": "model.encoder.embed_positions.*",
    "model.encoder.embeddings.norm.*": "model.encoder.layernorm_embedding.*",
    "model.encoder.layers.#.self_attention.q_proj.*": "model.encoder.layers.#.self_attn.q_proj.*",
    "model.encoder.layers.#.self_attention.k_proj.*": "model.encoder.layers.#.self_attn.k_proj.*",
    "model.encoder.layers.#.self_attention.v_proj.*": "model.encoder.layers.#.self_attn.v_proj.*",
    "model.encoder.layers.#.self_attention.o_proj.*": "model.encoder.layers.#.self_attn.out_proj.*",
    "model.encoder.layers.#.self_attention_norm.*": "model.encoder.layers.#.self_attn_layer_norm.*",
    "model.encoder.layers.#.feed_forward.up_proj.*": "model.encoder.layers.#.fc1.*",
    "model.encoder.layers.#.feed_forward.down_proj.*": "model.encoder.layers.#.fc2.*",
    "model.encoder.layers.#.feed_forward_norm.*": "model.encoder.layers.#.final_layer_norm.*",
    "model.decoder.embeddings.positions.embed_positions.*": "model.decoder.embed_positions.*",
    "model.decoder.embeddings.norm.*": "model.decoder.layernorm_embedding.*",
    "model.decoder.layers.#.self_attention.q_proj.*": "model.decoder.layers.#.self_attn.q_proj.*",
    "model.decoder.layers.#.self_attention.k_proj.*": "model.decoder.layers.#.self_attn.k_proj.*",
    "model.decoder.layers.#.self_attention.v_proj.*": "model.decoder.layers.#.self_attn.v_proj.*",
    "model.decoder.layers.#.self_attention.o_proj.*": "model.decoder.layers.#.self_attn.out_proj.*",
    "model.decoder.layers.#.self_attention_norm.*": "model.decoder.layers.#.self_attn_layer_norm.*",
    "model.decoder.layers.#.cross_attention.q_proj.*": "model.decoder.layers.#.encoder_attn.q_proj.*",
    "model.decoder.layers.#.cross_attention.k_proj.*": "model.decoder.layers.#.encoder_attn.k_proj.*",
    "model.decoder.layers.#.cross_attention.v_proj.*": "model.decoder.layers.#.encoder_attn.v_proj.*",
    "model.decoder.layers.#.cross_attention.o_proj.*": "model.decoder.layers.#.encoder_attn.out_proj.*",
    "model.decoder.layers.#.cross_attention_norm.*": "model.decoder.layers.#.encoder_attn_layer_norm.*",
    "model.decoder.layers.#.feed_forward.up_proj.*": "model.decoder.layers.#.fc1.*",
    "model.decoder.layers.#.feed_forward.down_proj.*": "model.decoder.layers.#.fc2.*",
    "model.decoder.layers.#.feed_forward_norm.*": "model.decoder.layers.#.final_layer_norm.*",
}
BART_HEADS = {
    "classifier.transform.dense.*": "classification_head.dense.*",
    "classifier.out_proj.*": "classification_head.out_proj.*",
    "qa_outputs.out_proj.*": "qa_outputs.*",
}
MARIAN = {
    ours: stock
    for ours, stock in BART.items()
    if ".positions." not in ours and ".embeddings.norm." not in ours
}


@pytest.fixture(params=["bart", "marian"])
def pair(request, beside, seq2seq_sizes):
    return {"bart": bart, "marian": marian}[request.param](beside, seq2seq_sizes)


def bart(beside, sizes: dict[str, Any]):
    stock = BartForConditionalGeneration._from_config(BartConfig(**sizes), attn_implementation="eager")
    # Other checkpoints of this class may have a bias for every logit; BART's own are zero.
    assert not stock.final_logits_bias.any()
    return beside("bart-base", TercetSeq2SeqForConditionalGeneration, stock, BART)


def marian(beside, sizes: dict[str, Any]):
    # Marian's table of vectors gives the pad no gradient as a decoder input, so another token starts.
    ids: dict[str, Any] = {"pad_token_id": 1, "eos_token_id": 0, "decoder_start_token_id": 2}
    config = MarianConfig(**sizes, **ids, activation_function="relu", scale_embedding=True)
    stock = MarianMTModel._from_config(config, attn_implementation="eager")
    ids |= {"position_embedding_type": "sinusoidal_split", "norm_eps": 1e-5}
    return beside("vaswani-base", TercetSeq2SeqForConditionalGeneration, stock, MARIAN, **ids)


@pytest.fixture
def bart_with(beside, seq2seq_sizes):
    """Give a function that puts a model with a head of ours beside BART with the same."""

    def build(architecture, stock_class, **fields):
        stock = stock_class._from_config(BartConfig(**seq2seq_sizes, **fields), attn_implementation="eager")
        return beside("bart-base", architecture, stock, BART | BART_HEADS, **fields)

    return build


@pytest.fixture
def batch(ragged) -> dict[str, Tensor]:
    return ragged(7, 9, 2, 5, pad=1)


@pytest.fixture
def target(ragged) -> dict[str, Tensor]:
    return ragged(5, 3, 8, 1, pad=1)


def test_logits_equal_the_stock_model(pair, batch, target, is_packed):
    pair.ours.train(is_packed)
    pair.assert_same_target_tokens(batch, target)


@pytest.mark.parametrize("has_decoder_mask", [True, False])
def test_loss_and_gradients_equal_the_stock_model(pair, batch, target, has_decoder_mask, is_packed):
    pair.ours.train(is_packed)
    pair.assert_same_target_lesson(batch, target, has_decoder_mask=has_decoder_mask)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_equals_the_stock_model(pair, batch, num_beams):
    pair.assert_same_texts(batch, max_new_tokens=9, num_beams=num_beams, forced_eos_token_id=None)


@pytest.fixture
def text(batch) -> dict[str, Tensor]:
    """End every text as BART's tokenizer does."""
    last = batch["attention_mask"].sum(-1, keepdim=True) - 1
    return batch | {"input_ids": batch["input_ids"].scatter(1, last, 2)}


def test_labels_of_sequences_equal_bart(bart_with, text, is_packed):
    classes = (TercetSeq2SeqForSequenceClassification, BartForSequenceClassification)
    pair = bart_with(*classes, num_labels=3)
    pair.ours.train(is_packed)
    ours, stock = (model(**text, labels=torch.tensor([2, 0, 1, 1])) for model in (pair.ours, pair.stock))
    pair.assert_same(ours.logits, stock.logits)
    pair.assert_same(ours.loss, stock.loss)
    pair.assert_same_gradients(ours.loss, stock.loss)


def test_spans_equal_bart(bart_with, text, is_packed):
    pair = bart_with(TercetSeq2SeqForQuestionAnswering, BartForQuestionAnswering)
    answers = {"start_positions": torch.tensor([2, 0, 1, 11]), "end_positions": torch.tensor([6, 8, 1, 12])}
    pair.ours.train(is_packed)
    ours, stock = pair.ours(**text, **answers), pair.stock(**text)
    # The stock model takes pads for possible answers, ours does not.
    is_pad = text["attention_mask"] == 0
    start, end = (logits.masked_fill(is_pad, -torch.inf) for logits in (stock.start_logits, stock.end_logits))
    loss = ForQuestionAnsweringLoss(start, end, **answers)
    pair.assert_same(ours.start_logits[~is_pad], stock.start_logits[~is_pad])
    pair.assert_same(ours.end_logits[~is_pad], stock.end_logits[~is_pad])
    pair.assert_same(ours.loss, loss)
    # Two biases move the scores of all tokens alike.
    biases = ("qa_outputs.out_proj.bias", "model.decoder.layers.1.feed_forward_norm.bias")
    pair.assert_same_gradients(ours.loss, loss, without_effect=biases)
