"""BERT and DistilBERT: ours and transformers' compute the same from the same weights."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForPreTraining, DistilBertConfig, DistilBertForMaskedLM

from tercet.modeling import TercetEncoderForMaskedLM, TercetEncoderForPreTraining

BERT = {
    "model.embeddings.embed_tokens.*": "bert.embeddings.word_embeddings.*",
    "model.embeddings.positions.embed_positions.*": "bert.embeddings.position_embeddings.*",
    "model.embeddings.token_types.*": "bert.embeddings.token_type_embeddings.*",
    "model.embeddings.norm.*": "bert.embeddings.LayerNorm.*",
    "model.layers.#.self_attention.q_proj.*": "bert.encoder.layer.#.attention.self.query.*",
    "model.layers.#.self_attention.k_proj.*": "bert.encoder.layer.#.attention.self.key.*",
    "model.layers.#.self_attention.v_proj.*": "bert.encoder.layer.#.attention.self.value.*",
    "model.layers.#.self_attention.o_proj.*": "bert.encoder.layer.#.attention.output.dense.*",
    "model.layers.#.self_attention_norm.*": "bert.encoder.layer.#.attention.output.LayerNorm.*",
    "model.layers.#.feed_forward.up_proj.*": "bert.encoder.layer.#.intermediate.dense.*",
    "model.layers.#.feed_forward.down_proj.*": "bert.encoder.layer.#.output.dense.*",
    "model.layers.#.feed_forward_norm.*": "bert.encoder.layer.#.output.LayerNorm.*",
    "transform.dense.*": "cls.predictions.transform.dense.*",
    "transform.norm.*": "cls.predictions.transform.LayerNorm.*",
    "lm_head.bias": "cls.predictions.bias",
    "next_sentence_head.dense.*": "bert.pooler.dense.*",
    "next_sentence_head.classifier.*": "cls.seq_relationship.*",
}
DISTILBERT = {
    "model.embeddings.embed_tokens.*": "distilbert.embeddings.word_embeddings.*",
    "model.embeddings.positions.embed_positions.*": "distilbert.embeddings.position_embeddings.*",
    "model.embeddings.norm.*": "distilbert.embeddings.LayerNorm.*",
    "model.layers.#.self_attention.q_proj.*": "distilbert.transformer.layer.#.attention.q_lin.*",
    "model.layers.#.self_attention.k_proj.*": "distilbert.transformer.layer.#.attention.k_lin.*",
    "model.layers.#.self_attention.v_proj.*": "distilbert.transformer.layer.#.attention.v_lin.*",
    "model.layers.#.self_attention.o_proj.*": "distilbert.transformer.layer.#.attention.out_lin.*",
    "model.layers.#.self_attention_norm.*": "distilbert.transformer.layer.#.sa_layer_norm.*",
    "model.layers.#.feed_forward.up_proj.*": "distilbert.transformer.layer.#.ffn.lin1.*",
    "model.layers.#.feed_forward.down_proj.*": "distilbert.transformer.layer.#.ffn.lin2.*",
    "model.layers.#.feed_forward_norm.*": "distilbert.transformer.layer.#.output_layer_norm.*",
    "transform.dense.*": "vocab_transform.*",
    "transform.norm.*": "vocab_layer_norm.*",
    "lm_head.bias": "vocab_projector.bias",
}


@pytest.fixture
def bert(beside, sizes):
    config = BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    stock = BertForPreTraining._from_config(config, attn_implementation="eager")
    return beside("bert-base", TercetEncoderForPreTraining, stock, BERT)


@pytest.fixture
def distilbert(beside, sizes):
    hidden_dim = sizes.pop("intermediate_size")
    config = DistilBertConfig(**sizes, hidden_dim=hidden_dim, dropout=0.0, attention_dropout=0.0)
    stock = DistilBertForMaskedLM._from_config(config, attn_implementation="eager")
    return beside("distilbert-base", TercetEncoderForMaskedLM, stock, DISTILBERT)


@pytest.fixture
def batch(ragged) -> dict[str, Tensor]:
    """Sentence pairs: the second half of every row has the other token type."""
    batch = ragged(9, 4, 6, 2)
    return batch | {
        "token_type_ids": (torch.arange(9) >= batch["attention_mask"].sum(1, keepdim=True) // 2).long()
    }


@pytest.fixture
def labels(batch) -> dict[str, Tensor]:
    """Every second token of the first three rows is a target."""
    targets = torch.full_like(batch["input_ids"], -100)
    targets[:3, 1::2] = batch["input_ids"][:3, 1::2].flip(-1)
    return {"labels": targets.masked_fill(batch["attention_mask"] == 0, -100)}


def test_logits_equal_bert(bert, batch, is_packed):
    bert.ours.train(is_packed)
    ours, stock = bert.ours(**batch), bert.stock(**batch)
    is_real = batch["attention_mask"] == 1
    bert.assert_same(ours.prediction_logits[is_real], stock.prediction_logits[is_real])
    bert.assert_same(ours.seq_relationship_logits, stock.seq_relationship_logits)


def test_both_losses_and_gradients_equal_bert(bert, batch, labels, is_packed):
    next_sentence_label = torch.tensor([0, 1, 1, 0])
    inputs = batch | labels | {"next_sentence_label": next_sentence_label}
    bert.ours.train(is_packed)
    ours, stock = bert.ours(**inputs), bert.stock(**inputs)
    token_loss = cross_entropy(stock.prediction_logits.flatten(0, 1), labels["labels"].flatten())
    bert.assert_same(ours.masked_lm_loss, token_loss)
    bert.assert_same(
        ours.next_sentence_loss, cross_entropy(stock.seq_relationship_logits, next_sentence_label)
    )
    bert.assert_same(ours.loss, stock.loss)
    bert.assert_same_gradients(ours.loss, stock.loss)


def test_logits_equal_distilbert(distilbert, batch, is_packed):
    del batch["token_type_ids"]
    distilbert.ours.train(is_packed)
    is_real = batch["attention_mask"] == 1
    ours, stock = distilbert.ours(**batch).logits, distilbert.stock(**batch).logits
    distilbert.assert_same(ours[is_real], stock[is_real])


def test_loss_and_gradients_equal_distilbert(distilbert, batch, labels, is_packed):
    del batch["token_type_ids"]
    distilbert.ours.train(is_packed)
    ours, stock = distilbert.ours(**batch, **labels).loss, distilbert.stock(**batch, **labels).loss
    distilbert.assert_same(ours, stock)
    distilbert.assert_same_gradients(ours, stock)
