"""The stock architecture that a model of ours becomes: the first that is exactly it, or the reasons."""

from contextlib import suppress

import pytest
import torch

from tercet import (
    TercetDecoderForCausalLM,
    TercetEncoderForMaskedLM,
    TercetEncoderForReplacedTokenDetection,
    TercetEncoderForSequenceClassification,
    TercetEncoderForTokenClassification,
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqForSequenceClassification,
)
from tercet.modeling.stock import certify, to_stock
from tercet.modeling.stock.architectures import architecture_for

from .conftest import COMMON

GLOBAL, LOCAL = "full_attention", "sliding_attention"
CLASSIC = {
    "position_embedding_type": "learned",
    "max_position_embeddings": 32,
    "norm_type": "layer_norm",
    "norm_bias": True,
    "feed_forward_type": "plain",
    "attention_bias": True,
    "mlp_bias": True,
}
BERT = CLASSIC | {
    "embedding_norm": True,
    "norm_placement": "post",
    "hidden_act": "gelu",
    "head_bias": True,
    "head_transform": True,
}
MODERNBERT = {
    "layer_types": [GLOBAL, LOCAL],
    "sliding_window": 3,
    "type_vocab_size": 0,
    "embedding_norm": True,
    "norm_type": "layer_norm",
    "first_norm": False,
    "head_transform": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MARIAN = CLASSIC | {
    "position_embedding_type": "sinusoidal_split",
    "norm_placement": "post",
    "norm_eps": 1e-5,
    "hidden_act": "relu",
    "eos_token_id": 1,
}
OF_T5 = {
    "position_embedding_type": "relative_bias",
    "feed_forward_type": "plain",
    "hidden_act": "relu",
    "type_vocab_size": 0,
}
WINDOWS = {"layer_types": [LOCAL, LOCAL], "sliding_window": 3}
APART = {GLOBAL: {}, LOCAL: {"rope_theta": 50.0}}
"""Wavelengths of windows."""
MIXED = {"layer_types": [LOCAL, GLOBAL], "sliding_window": 3}


def build(model_class, **fields):
    return model_class(model_class.config_class(**COMMON | fields)).eval()


BECOMES = {
    "a modern decoder": (TercetDecoderForCausalLM, {"num_key_value_heads": 2}, "LlamaForCausalLM"),
    "how weights began is no matter": (
        TercetDecoderForCausalLM,
        {"zero_init_residual": True},
        "LlamaForCausalLM",
    ),
    "a classic decoder": (
        TercetDecoderForCausalLM,
        CLASSIC | {"norm_eps": 1e-5, "hidden_act": "gelu_new"},
        "GPT2LMHeadModel",
    ),
    "a classic translator": (TercetSeq2SeqForConditionalGeneration, MARIAN, "MarianMTModel"),
    "an encoder with biases of distances": (
        TercetEncoderForTokenClassification,
        OF_T5,
        "T5ForTokenClassification",
    ),
    "a detector of replaced tokens": (
        TercetEncoderForReplacedTokenDetection,
        BERT | {"embedding_size": 20},
        "ElectraForPreTraining",
    ),
    "an encoder with windows": (
        TercetEncoderForMaskedLM,
        MODERNBERT | {"mlp_bias": True, "rope_parameters": APART, "classifier_pooling": "last"},
        "ModernBertForMaskedLM",
    ),
    "windows everywhere": (TercetDecoderForCausalLM, WINDOWS, "MistralForCausalLM"),
    "windows nowhere": (
        TercetDecoderForCausalLM,
        {"layer_types": [GLOBAL] * 2, "sliding_window": 3},
        "LlamaForCausalLM",
    ),
    "windows here and there, and biases": (
        TercetDecoderForCausalLM,
        MIXED | {"attention_bias": True, "attention_out_bias": False},
        "Qwen2ForCausalLM",
    ),
    "windows here and there, and norms of heads": (
        TercetDecoderForCausalLM,
        MIXED | {"layer_types": [GLOBAL, LOCAL], "use_qk_norm": True, "head_dim": 12},
        "Qwen3ForCausalLM",
    ),
}


@pytest.mark.parametrize(("model_class", "fields", "becomes"), BECOMES.values(), ids=BECOMES)
def test_a_model_becomes_the_first_architecture_that_is_exactly_it(model_class, fields, becomes) -> None:
    ours = build(model_class, **fields)
    stock = to_stock(ours)
    assert type(stock).__name__ == becomes
    assert certify(stock, ours).holds
    if becomes == "ModernBertForMaskedLM":
        assert (stock.config.classifier_bias, stock.config.classifier_activation) == (True, "silu")


def test_architectures_that_are_not_chosen_warn_of_nothing(caplog) -> None:
    with suppress(ValueError):
        architecture_for(build(TercetEncoderForTokenClassification, **CLASSIC))
    assert "Model config" not in caplog.text


def test_model_in_bfloat16_is_exported() -> None:
    ours = build(TercetDecoderForCausalLM).to(torch.bfloat16)
    stock = to_stock(ours)
    assert stock.dtype == torch.bfloat16
    assert certify(stock, ours).holds


CANNOT = " cannot represent this model: "
REFUSED = {
    "the right ones are named": (
        TercetDecoderForCausalLM, {}, "gpt2",
        r"gpt2 cannot represent .*'rotary', and .*'learned'.*can: llama, mistral$",
    ),
    "the nearest where none fits, in three lines": (
        TercetEncoderForMaskedLM, {}, None,
        r"^no stock architecture is exactly this TercetEncoderForMaskedLM; the nearest is modernbert\n"
        r"in the way: .*norm_type is 'rms_norm', and would be 'layer_norm'.*\n"
        r"instead: tercet push .*export --onnx.*$",
    ),
    "no architecture at all": (
        TercetDecoderForCausalLM, {}, "gpt5", r"'gpt5' is not an architecture.*: supported are bart, bert,",
    ),
    "of another member": (
        TercetDecoderForCausalLM, {}, "bert", "bert does not correspond to a TercetDecoderConfig",
    ),
    "gates of heads": (
        TercetDecoderForCausalLM, {"attention_gate": "headwise"}, None,
        r"llama\nin the way: attention_gate is 'headwise', and would be 'none'",
    ),
    "gates of channels": (
        TercetDecoderForCausalLM, {"attention_gate": "elementwise"}, None,
        r"llama\nin the way: attention_gate is 'elementwise', and would be 'none'",
    ),
    "linear biases": (
        TercetDecoderForCausalLM, {"position_embedding_type": "alibi"}, None,
        r"llama\nin the way: position_embedding_type is 'alibi', and would be 'rotary'",
    ),
    "layers of two kinds, llama": (
        TercetDecoderForCausalLM, MIXED, "llama", rf"^llama{CANNOT}layer_types is \['sliding_.*",
    ),
    "layers of two kinds, mistral": (
        TercetDecoderForCausalLM, MIXED, "mistral", rf"^mistral{CANNOT}layer_types is \['sliding_.*",
    ),
    "wavelengths of windows": (
        TercetDecoderForCausalLM, WINDOWS | {"rope_parameters": APART}, "mistral",
        r"rope_theta of sliding_attention is 50\.0, and would be 10000\.0",
    ),
    "labels that modernbert has not": (
        TercetEncoderForSequenceClassification, MODERNBERT | {"classifier_pooling": "last"}, "modernbert",
        r"classifier_pooling is 'last', and would be 'first'.*classifier_norm",
    ),
    "a norm before the labels of tokens": (
        TercetEncoderForTokenClassification, BERT | {"norm_eps": 1e-12, "classifier_norm": True}, "bert",
        f"bert{CANNOT}classifier_norm is True",
    ),
    "another activation before the vocabulary": (
        TercetEncoderForMaskedLM, BERT | {"hidden_act": "relu"}, "electra",
        f"{CANNOT}hidden_act is 'relu', and would be",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("model_class", "fields", "model_type", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_a_stock_architecture_cannot_be_is_refused(model_class, fields, model_type, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        to_stock(build(model_class, **fields), model_type)


def test_what_one_architecture_lacks_another_has() -> None:
    """Wavelengths of windows matter where there are windows only, BERT's vocabulary has any activation."""
    ours = build(TercetDecoderForCausalLM, rope_parameters=APART)
    assert to_stock(ours).config.model_type == "llama"
    ours = build(TercetEncoderForMaskedLM, **BERT | {"hidden_act": "relu"})
    assert type(to_stock(ours)).__name__ == "BertForMaskedLM"


@pytest.mark.parametrize(
    ("model_type", "ids", "reason"),
    [
        ("bart", {}, "eos_token_id is None, and its head reads where that token stands"),
        ("mbart", {"eos_token_id": 2}, "decoder_start_token_id is 0, and would be 2"),
        (
            "bart",
            {"eos_token_id": 2, "classifier_pooling": "mean"},
            "classifier_pooling is 'mean', and would",
        ),
    ],
)
def test_labels_that_are_read_elsewhere_are_refused(model_type: str, ids, reason: str) -> None:
    norms = {"norm_placement": "post" if model_type == "bart" else "pre", "norm_eps": 1e-5}
    fields = CLASSIC | norms | {"position_offset": 2, "embedding_norm": True, "hidden_act": "gelu"}
    with pytest.raises(ValueError, match=f"{model_type}{CANNOT}{reason}"):
        to_stock(build(TercetSeq2SeqForSequenceClassification, **fields | ids), model_type)
