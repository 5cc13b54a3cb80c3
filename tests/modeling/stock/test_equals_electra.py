"""ELECTRA, whose token vectors are of another width than its states: ours and transformers' are the same."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining, ElectraModel

from tercet.modeling import (
    TercetEncoderForMaskedLM,
    TercetEncoderForReplacedTokenDetection,
    TercetEncoderModel,
)

MODEL = {
    "embeddings.embed_tokens.*": "embeddings.word_embeddings.*",
    "embeddings.positions.embed_positions.*": "embeddings.position_embeddings.*",
    "embeddings.token_types.*": "embeddings.token_type_embeddings.*",
    "embeddings.norm.*": "embeddings.LayerNorm.*",
    "embeddings.projection.*": "embeddings_project.*",
    "layers.#.self_attention.q_proj.*": "encoder.layer.#.attention.self.query.*",
    "layers.#.self_attention.k_proj.*": "encoder.layer.#.attention.self.key.*",
    "layers.#.self_attention.v_proj.*": "encoder.layer.#.attention.self.value.*",
    "layers.#.self_attention.o_proj.*": "encoder.layer.#.attention.output.dense.*",
    "layers.#.self_attention_norm.*": "encoder.layer.#.attention.output.LayerNorm.*",
    "layers.#.feed_forward.up_proj.*": "encoder.layer.#.intermediate.dense.*",
    "layers.#.feed_forward.down_proj.*": "encoder.layer.#.output.dense.*",
    "layers.#.feed_forward_norm.*": "encoder.layer.#.output.LayerNorm.*",
}
GENERATOR = {f"model.{ours}": f"electra.{stock}" for ours, stock in MODEL.items()} | {
    "transform.dense.*": "generator_predictions.dense.*",
    "transform.norm.*": "generator_predictions.LayerNorm.*",
    "lm_head.bias": "generator_lm_head.bias",
}
DISCRIMINATOR = {f"model.{ours}": f"electra.{stock}" for ours, stock in MODEL.items()} | {
    "replaced_token_head.dense.*": "discriminator_predictions.dense.*",
    "replaced_token_head.out_proj.*": "discriminator_predictions.dense_prediction.*",
}


@pytest.fixture(params=[20, 44], ids=["narrow", "wide"])
def config(request, sizes) -> ElectraConfig:
    """Choose vectors narrower than the states, as in the small discriminator, or wider, as in generators."""
    no_dropout: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return ElectraConfig(**sizes, **no_dropout, embedding_size=request.param)


@pytest.fixture
def batch(ragged) -> dict[str, Tensor]:
    """Sentence pairs: the second half of every row has the other token type."""
    batch = ragged(9, 4, 6, 2)
    return batch | {
        "token_type_ids": (torch.arange(9) >= batch["attention_mask"].sum(1, keepdim=True) // 2).long()
    }


def test_states_and_gradients_equal_the_base_model(beside, config, batch, is_packed):
    stock = ElectraModel._from_config(config, attn_implementation="eager")
    pair = beside("bert-base", TercetEncoderModel, stock, MODEL, embedding_size=config.embedding_size)
    pair.ours.train(is_packed)
    is_real = batch["attention_mask"] == 1
    models = (pair.ours.double(), pair.stock.double())  # what cancels out is zero on every CPU
    ours, stock = (model(**batch).last_hidden_state[is_real] for model in models)
    pair.assert_same(ours, stock)
    weight = torch.randn_like(ours)
    pair.assert_same_gradients((ours * weight).sum(), (stock * weight).sum())


def test_logits_loss_and_gradients_equal_the_generator(beside, config, batch, is_packed):
    stock = ElectraForMaskedLM._from_config(config, attn_implementation="eager")
    size = config.embedding_size
    pair = beside("bert-base", TercetEncoderForMaskedLM, stock, GENERATOR, embedding_size=size)
    pair.ours.train(is_packed)
    is_real = batch["attention_mask"] == 1
    ours, stock = (model(**batch).logits[is_real] for model in (pair.ours, pair.stock))
    pair.assert_same(ours, stock)
    labels = batch["input_ids"].masked_fill(~is_real, -100)
    ours, stock = (model(**batch, labels=labels).loss for model in (pair.ours, pair.stock))
    pair.assert_same(ours, stock)
    pair.assert_same_gradients(ours, stock)


def test_judgements_loss_and_gradients_equal_the_discriminator(beside, config, batch, is_packed):
    stock = ElectraForPreTraining._from_config(config, attn_implementation="eager")
    task, size = TercetEncoderForReplacedTokenDetection, config.embedding_size
    pair = beside("bert-base", task, stock, DISCRIMINATOR, embedding_size=size)
    pair.ours.train(is_packed)
    is_real = batch["attention_mask"] == 1
    ours, stock = (model(**batch).logits[is_real] for model in (pair.ours, pair.stock))
    pair.assert_same(ours, stock)
    labels = batch["input_ids"] % 2  # of pads, too, which neither of the two asks
    ours, stock = (model(**batch, labels=labels).loss for model in (pair.ours, pair.stock))
    pair.assert_same(ours, stock)
    pair.assert_same_gradients(ours, stock)
