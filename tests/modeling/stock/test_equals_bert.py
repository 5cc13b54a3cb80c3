"""BERT and its kin: ours and transformers' compute and learn the same from the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)
from transformers.loss.loss_utils import ForQuestionAnsweringLoss

from tercet.modeling import (
    TercetEncoderForMaskedLM,
    TercetEncoderForMultipleChoice,
    TercetEncoderForPreTraining,
    TercetEncoderForQuestionAnswering,
    TercetEncoderForSequenceClassification,
    TercetEncoderForTokenClassification,
)

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
    "classifier.transform.dense.*": "bert.pooler.dense.*",
    "classifier.out_proj.*": "classifier.*",
    "qa_outputs.out_proj.*": "qa_outputs.*",
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
    "classifier.transform.dense.*": "pre_classifier.*",
    "classifier.out_proj.*": "classifier.*",
}
BERT_HEADS = {
    TercetEncoderForSequenceClassification: BertForSequenceClassification,
    TercetEncoderForMultipleChoice: BertForMultipleChoice,
    TercetEncoderForTokenClassification: BertForTokenClassification,
    TercetEncoderForQuestionAnswering: BertForQuestionAnswering,
}
DENSE_HEAD = {
    "classifier.transform.dense.*": "classifier.dense.*",
    "classifier.out_proj.*": "classifier.out_proj.*",
}
NO_BERT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture
def bert(beside, sizes):
    config = BertConfig(**sizes, **NO_BERT_DROPOUT)
    stock = BertForPreTraining._from_config(config, attn_implementation="eager")
    return beside("bert-base", TercetEncoderForPreTraining, stock, BERT)


@pytest.fixture
def distilbert(beside, sizes):
    hidden_dim = sizes.pop("intermediate_size")
    config = DistilBertConfig(**sizes, hidden_dim=hidden_dim, dropout=0.0, attention_dropout=0.0)
    stock = DistilBertForMaskedLM._from_config(config, attn_implementation="eager")
    return beside("distilbert-base", TercetEncoderForMaskedLM, stock, DISTILBERT)


@pytest.fixture
def bert_with(beside, sizes):
    """Give a function that puts an encoder with a head of ours beside BERT with the same."""

    def build(architecture, **fields):
        config = BertConfig(**sizes, **NO_BERT_DROPOUT, **fields)
        stock = BERT_HEADS[architecture]._from_config(config, attn_implementation="eager")
        return beside("bert-base", architecture, stock, BERT, **fields)

    return build


@pytest.fixture(params=["bert", "roberta", "electra", "distilbert"])
def classifier(request, beside, sizes):
    """Put our encoder with labels of sequences beside each of those that have such a head."""
    config, stock_class, table, fields = CLASSIFIERS[request.param](sizes)
    stock = stock_class._from_config(config, attn_implementation="eager")
    preset = "distilbert-base" if request.param == "distilbert" else "bert-base"
    return beside(preset, TercetEncoderForSequenceClassification, stock, table, num_labels=3, **fields)


def bert_classifier(sizes: dict[str, Any]):
    config = BertConfig(**sizes, **NO_BERT_DROPOUT, num_labels=3)
    return config, BertForSequenceClassification, BERT, {}


def roberta_classifier(sizes: dict[str, Any]):
    """RoBERTa counts positions from the one after its pad, as the table's rows."""
    sizes["max_position_embeddings"] += 2
    config = RobertaConfig(**sizes, **NO_BERT_DROPOUT, num_labels=3, pad_token_id=1, type_vocab_size=2)
    fields = {"position_offset": 2, "pad_token_id": 1}
    return config, RobertaForSequenceClassification, kin_of_bert("roberta"), fields


def electra_classifier(sizes: dict[str, Any]):
    sizes["embedding_size"] = sizes["hidden_size"]
    config = ElectraConfig(**sizes, **NO_BERT_DROPOUT, num_labels=3)
    return config, ElectraForSequenceClassification, kin_of_bert("electra"), {"classifier_act": "gelu"}


def distilbert_classifier(sizes: dict[str, Any]):
    sizes["hidden_dim"] = sizes.pop("intermediate_size")
    config = DistilBertConfig(**sizes, num_labels=3)
    return config, DistilBertForSequenceClassification, DISTILBERT, {"classifier_act": "relu"}


def kin_of_bert(prefix: str) -> dict[str, str]:
    """Return BERT's table under another name, with the dense layer in the head."""
    table = {ours: stock.replace("bert.", f"{prefix}.", 1) for ours, stock in BERT.items()}
    return table | DENSE_HEAD


CLASSIFIERS = {
    "bert": bert_classifier,
    "roberta": roberta_classifier,
    "electra": electra_classifier,
    "distilbert": distilbert_classifier,
}


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


def test_labels_of_sequences_equal_the_stock_model(classifier, batch, is_packed):
    if not classifier.ours.config.type_vocab_size:
        del batch["token_type_ids"]
    classifier.ours.train(is_packed)
    inputs = batch | {"labels": torch.tensor([0, 2, 1, 1])}
    ours, stock = classifier.ours(**inputs), classifier.stock(**inputs)
    classifier.assert_same(ours.logits, stock.logits)
    classifier.assert_same(ours.loss, stock.loss)
    classifier.assert_same_gradients(ours.loss, stock.loss)


def test_labels_of_tokens_equal_bert(bert_with, batch, labels, is_packed):
    pair = bert_with(TercetEncoderForTokenClassification, num_labels=5)
    inputs = batch | {"labels": labels["labels"].clamp(max=4)}
    pair.ours.train(is_packed)
    ours, stock = pair.ours(**inputs), pair.stock(**inputs)
    is_real = batch["attention_mask"] == 1
    pair.assert_same(ours.logits[is_real], stock.logits[is_real])
    pair.assert_same(ours.loss, stock.loss)
    pair.assert_same_gradients(ours.loss, stock.loss)


def test_choices_equal_bert(bert_with, batch, is_packed):
    pair = bert_with(TercetEncoderForMultipleChoice)
    choices = {name: value.unflatten(0, (2, 2)) for name, value in batch.items()}
    pair.ours.train(is_packed)
    ours, stock = (model(**choices, labels=torch.tensor([1, 0])) for model in (pair.ours, pair.stock))
    pair.assert_same(ours.logits, stock.logits)
    pair.assert_same(ours.loss, stock.loss)
    # The last bias moves the scores of all choices alike.
    pair.assert_same_gradients(ours.loss, stock.loss, without_effect=("classifier.out_proj.bias",))


def test_spans_equal_bert(bert_with, batch, is_packed):
    pair = bert_with(TercetEncoderForQuestionAnswering)
    # The last answer starts and ends beyond the text.
    answers = {"start_positions": torch.tensor([2, 0, 5, 11]), "end_positions": torch.tensor([8, 3, 5, 12])}
    pair.ours.train(is_packed)
    ours, stock = pair.ours(**batch, **answers), pair.stock(**batch)
    # The stock model takes pads for possible answers, ours does not.
    is_pad = batch["attention_mask"] == 0
    start, end = (logits.masked_fill(is_pad, -torch.inf) for logits in (stock.start_logits, stock.end_logits))
    loss = ForQuestionAnsweringLoss(start, end, **answers)
    pair.assert_same(ours.start_logits[~is_pad], stock.start_logits[~is_pad])
    pair.assert_same(ours.end_logits[~is_pad], stock.end_logits[~is_pad])
    pair.assert_same(ours.loss, loss)
    # Two biases move the scores of all tokens alike.
    biases = ("qa_outputs.out_proj.bias", "model.layers.1.feed_forward_norm.bias")
    pair.assert_same_gradients(ours.loss, loss, without_effect=biases)


def test_spans_in_texts_of_one_length_have_the_loss_of_bert(bert_with, ragged, is_packed):
    pair = bert_with(TercetEncoderForQuestionAnswering)
    answers = {"start_positions": torch.tensor([2, 0]), "end_positions": torch.tensor([6, 7])}
    pair.ours.train(is_packed)
    batch = ragged(7, 7)
    pair.assert_same(pair.ours(**batch, **answers).loss, pair.stock(**batch, **answers).loss)
