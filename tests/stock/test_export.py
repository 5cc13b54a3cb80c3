"""The stock architecture that a model of ours becomes: the first that is exactly it, or the reasons."""

from contextlib import suppress

import pytest
import torch

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForTokenClassification,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqForSequenceClassification,
)
from tercet.stock import certify, to_stock
from tercet.stock.architectures import architecture_for

SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
CLASSIC = {
    "position_embedding_type": "learned",
    "max_position_embeddings": 32,
    "norm_type": "layer_norm",
    "norm_bias": True,
    "feed_forward_type": "plain",
    "attention_bias": True,
    "mlp_bias": True,
}


def test_modern_decoder_is_a_llama() -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL, num_key_value_heads=2)).eval()
    stock = to_stock(ours)
    assert type(stock).__name__ == "LlamaForCausalLM"
    assert certify(stock, ours).holds


def test_architectures_that_are_not_chosen_warn_of_nothing(caplog) -> None:
    ours = TercetEncoderForTokenClassification(TercetEncoderConfig(**SMALL | CLASSIC))
    with suppress(ValueError):
        architecture_for(ours)
    assert "Model config" not in caplog.text


def test_model_in_bfloat16_is_exported() -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL)).to(torch.bfloat16).eval()
    stock = to_stock(ours)
    assert stock.dtype == torch.bfloat16
    assert certify(stock, ours).holds


def test_classic_decoder_is_a_gpt2() -> None:
    config = TercetDecoderConfig(**SMALL, **CLASSIC, norm_eps=1e-5, hidden_act="gelu_new")
    ours = TercetDecoderForCausalLM(config).eval()
    stock = to_stock(ours)
    assert type(stock).__name__ == "GPT2LMHeadModel"
    assert certify(stock, ours).holds


def test_classic_translator_is_a_marian() -> None:
    config = TercetSeq2SeqConfig(
        **SMALL,
        **CLASSIC | {"position_embedding_type": "sinusoidal_split"},
        norm_placement="post",
        norm_eps=1e-5,
        hidden_act="relu",
        eos_token_id=1,
    )
    ours = TercetSeq2SeqForConditionalGeneration(config).eval()
    stock = to_stock(ours)
    assert type(stock).__name__ == "MarianMTModel"
    assert certify(stock, ours).holds


def test_wrong_architecture_is_refused_with_the_reason_and_the_right_one() -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL))
    with pytest.raises(
        ValueError, match=r"gpt2 cannot represent .*'rotary', and .*'learned'.*can: llama, mistral$"
    ):
        to_stock(ours, "gpt2")


def test_model_that_no_architecture_is_gets_every_reason() -> None:
    ours = TercetEncoderForMaskedLM(TercetEncoderConfig(**SMALL))
    with pytest.raises(
        ValueError, match=r"(?s)no stock architecture.*bert cannot represent.*distilbert cannot"
    ):
        to_stock(ours)


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
    positions = {"position_offset": 2, "embedding_norm": True}
    norms = {"norm_placement": "post" if model_type == "bart" else "pre", "norm_eps": 1e-5}
    config = TercetSeq2SeqConfig(**SMALL, **CLASSIC, **positions, **norms, hidden_act="gelu", **ids)
    ours = TercetSeq2SeqForSequenceClassification(config)
    with pytest.raises(ValueError, match=f"{model_type} cannot represent this model: {reason}"):
        to_stock(ours, model_type)


def test_encoder_with_biases_of_distances_is_that_of_t5() -> None:
    config = TercetEncoderConfig(
        **SMALL,
        position_embedding_type="relative_bias",
        feed_forward_type="plain",
        hidden_act="relu",
        type_vocab_size=0,
    )
    ours = TercetEncoderForTokenClassification(config).eval()
    stock = to_stock(ours)
    assert type(stock).__name__ == "T5ForTokenClassification"
    assert certify(stock, ours).holds


@pytest.mark.parametrize("gate", ["headwise", "elementwise"])
def test_gated_attention_is_that_of_no_stock_architecture(gate: str) -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL, attention_gate=gate))
    with pytest.raises(ValueError, match=f"llama.*attention_gate is '{gate}', and would be 'none'"):
        to_stock(ours)


def test_linear_biases_are_those_of_no_stock_architecture() -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL, position_embedding_type="alibi"))
    with pytest.raises(ValueError, match=r"llama.*position_embedding_type is 'alibi', and would be 'rotary'"):
        to_stock(ours)


def test_how_weights_began_is_no_matter_of_export() -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL, zero_init_residual=True)).eval()
    stock = to_stock(ours)
    assert type(stock).__name__ == "LlamaForCausalLM"
    assert certify(stock, ours).holds


def test_unknown_architecture_is_refused_with_the_known_ones() -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL))
    with pytest.raises(ValueError, match=r"'gpt5' is not an architecture.*: supported are bart, bert,"):
        to_stock(ours, "gpt5")


def test_architecture_of_another_member_is_refused() -> None:
    ours = TercetDecoderForCausalLM(TercetDecoderConfig(**SMALL))
    with pytest.raises(ValueError, match="bert does not correspond to a TercetDecoderConfig"):
        to_stock(ours, "bert")
