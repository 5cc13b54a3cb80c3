"""Heads and windows of stock models: what a model without labels keeps of them, and what is refused."""

from typing import Any

import pytest
import torch

from tercet.modeling.stock import certify, from_stock, to_stock
from tercet.modeling.stock.certificate import compare
from tercet.modeling.stock.probes import probes_for


@pytest.mark.parametrize(
    ("base", "labelling", "head"),
    [
        ("BertModel", "BertForSequenceClassification", ("first", "tanh", False, True)),
        ("DistilBertForMaskedLM", "DistilBertForSequenceClassification", ("first", "relu", False, True)),
        ("RobertaForMaskedLM", "RobertaForMultipleChoice", ("first", "tanh", False, True)),
        ("ElectraForPreTraining", "ElectraForSequenceClassification", ("first", "gelu", False, True)),
        ("BigBirdModel", "BigBirdForSequenceClassification", ("first", "gelu_new", False, True)),
        ("ModernBertForMaskedLM", "ModernBertForSequenceClassification", ("first", "gelu", True, False)),
        ("GPT2LMHeadModel", "GPT2ForSequenceClassification", ("last", None, False, False)),
    ],
)
def test_a_model_without_labels_gets_those_of_its_architecture(
    stock, base, labelling, head, tmp_path
) -> None:
    pretrained = from_stock(stock(base))
    pretrained.save_pretrained(tmp_path)
    config = pretrained.config
    fields = (
        config.classifier_pooling,
        config.classifier_act,
        config.classifier_norm,
        config.classifier_bias,
    )
    assert fields == head
    ours_with_labels = type(from_stock(stock(labelling)))
    tuned = to_stock(ours_with_labels.from_pretrained(tmp_path), stock(base).config.model_type)
    assert type(tuned).__name__ == labelling


def test_dropout_of_labels_is_that_of_each_head(stock) -> None:
    options = {"dropout": 0.3, "seq_classif_dropout": 0.4, "qa_dropout": 0.5}
    heads = {"SequenceClassification": 0.4, "MultipleChoice": 0.4, "TokenClassification": 0.3}
    for name, dropout in (heads | {"QuestionAnswering": 0.5}).items():
        ours = from_stock(stock(f"DistilBertFor{name}", **options))
        assert ours.config.classifier_dropout == dropout
        back = to_stock(ours, "distilbert").config
        assert back.dropout == 0.3
    assert to_stock(from_stock(stock("DistilBertForQuestionAnswering", **options))).config.qa_dropout == 0.5


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        (
            "RobertaForMaskedLM",
            {"hidden_act": "relu"},
            r"'relu' \(TercetEncoderForMaskedLM can only be 'gelu'",
        ),
        (
            "ElectraForMaskedLM",
            {"hidden_act": "relu"},
            r"'relu' \(TercetEncoderForMaskedLM can only be 'gelu'",
        ),
        ("ElectraForMultipleChoice", {"summary_type": "mean"}, r"summary_type='mean' \(.* only be 'first'"),
        ("ModernBertForMaskedLM", {"classifier_bias": True}, r"one mlp_bias for .*'classifier_bias': True"),
        ("ModernBertForMaskedLM", {"classifier_activation": "relu"}, r"one hidden_act for .*: 'relu'"),
        ("ModernBertModel", {"local_attention": 2}, "sliding_window is 1, .*: choose 2 or more"),
        (
            "BigBirdModel",
            {"attention_type": "block_sparse", "num_random_blocks": 0},
            "attention_random_blocks is 0, .*: choose 1 or more",
        ),
        ("MistralModel", {"sliding_window": 1}, "sliding_window is 1, .*: choose 2 or more"),
    ],
)
def test_what_ours_cannot_be_is_refused(stock, name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_stock(stock(name, **options))


def test_choices_are_compared_with_their_loss(stock) -> None:
    model = stock("BertForMultipleChoice")
    ours = from_stock(model)
    with torch.no_grad():
        model.classifier.weight[0, ::2] += 0.1
    found = {each.what: each for each in compare(model, ours, probes_for(model, ours, None), "float64")}
    assert {*found} == {"predictions, padded", "loss", "gradients"}
    assert found["predictions, padded"].relative > 1e-3 > found["loss"].relative


@pytest.mark.parametrize(
    "name",
    [
        "Bert",
        "GPT2",
        "Bart",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("DistilBert", "Roberta", "Llama")),
    ],
)
@pytest.mark.parametrize(
    ("problem", "num_labels"),
    [("multi_label_classification", 3), ("regression", 1), ("regression", 2), (None, 1)],
)
def test_labels_of_every_kind_come_in_and_go_out(
    stock, name: str, problem: str | None, num_labels: int
) -> None:
    model = stock(f"{name}ForSequenceClassification", problem_type=problem, num_labels=num_labels)
    ours = from_stock(model)
    certificate = certify(model, ours)
    assert certificate.holds, certificate.verdict()
    assert {"loss", "gradients"} <= {each.what for each in certificate.differences}
    again = to_stock(ours, model.config.model_type)
    assert (again.config.problem_type or "regression") == (problem or "regression")


SCALINGS = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
}


@pytest.mark.parametrize("rope_type", SCALINGS)
@pytest.mark.parametrize(
    "name",
    [
        "GPTNeoXForCausalLM",
        *(pytest.param(f"{each}ForCausalLM", marks=pytest.mark.slow) for each in ("Llama", "Qwen3")),
    ],
)
def test_scaled_positions_come_in_and_go_out(stock, name: str, rope_type: str) -> None:
    scaling = {"rope_type": rope_type, "rope_theta": 50.0, **SCALINGS[rope_type]}
    if name.startswith("GPTNeoX"):
        scaling["partial_rotary_factor"] = 0.5
    model = stock(name, rope_parameters=scaling, max_position_embeddings=64)
    ours = from_stock(model)
    certificate = certify(model, ours)
    assert certificate.holds, certificate.verdict()
    plain = stock(name, rope_parameters=scaling | {"rope_type": "default"}, max_position_embeddings=64)
    assert not certify(plain, ours).holds, "the scaling shows"
    assert certify(to_stock(ours, model.config.model_type), ours).holds


@pytest.mark.parametrize(
    ("name", "options", "lengths"),
    [
        ("BertForMaskedLM", {"max_position_embeddings": 100}, [100]),
        ("GPT2LMHeadModel", {"n_positions": 3000}, [1024]),
        ("MistralForCausalLM", {"sliding_window": 30, "max_position_embeddings": 200}, [68, 200]),
        ("LlamaForCausalLM", {"max_position_embeddings": 40}, []),
    ],
)
def test_probes_reach_beyond_windows_and_to_the_last_position(stock, name, options, lengths) -> None:
    model = stock(name, **options)
    ours = from_stock(model)
    long = [probe for probe in probes_for(model, ours, None) if probe.is_long]
    assert [max(probe.lengths) for probe in long] == lengths
    assert certify(model, ours).holds
