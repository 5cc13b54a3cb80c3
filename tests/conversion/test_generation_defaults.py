"""How a model writes goes along wherever the model goes, and ids in it follow the model's configuration."""

import warnings
from typing import Any

import pytest
from transformers import GenerationConfig

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.conversion.inheritance import inherit_writing
from tercet.conversion.members import read_as
from tercet.stock.models import from_stock, to_stock

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "eos_token_id": 3,
    "bos_token_id": 2,
    "pad_token_id": 0,
}
DEFAULTS = {"eos_token_id": [3, 5], "repetition_penalty": 1.05, "do_sample": True, "temperature": 0.6}


def decoder(**fields: Any) -> Any:
    model = TercetDecoderForCausalLM(TercetDecoderConfig(**SIZES | fields))
    model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=2, **DEFAULTS)
    return model


def told(model: Any) -> dict[str, Any]:
    return {name: getattr(model.generation_config, name) for name in DEFAULTS}


def test_generation_defaults_go_along_whole():
    source = decoder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inherit_writing(other := TercetDecoderForCausalLM(source.config), source)
        members = [
            read_as(source, "seq2seq").model,
            read_as(read_as(source, "seq2seq").model, "decoder").model,
        ]
    for model in (other, to_stock(source), from_stock(to_stock(source)), *members):
        assert told(model) == DEFAULTS
    other.generation_config.repetition_penalty = 2.0
    assert told(source) == DEFAULTS


def test_ids_that_the_configuration_changes_are_changed_and_told():
    config = TercetSeq2SeqConfig(**SIZES, decoder_start_token_id=2)
    source: Any = TercetSeq2SeqForConditionalGeneration(config)
    source.generation_config = GenerationConfig(**DEFAULTS, pad_token_id=0, decoder_start_token_id=2)
    config = TercetSeq2SeqConfig(**SIZES, decoder_start_token_id=7)
    with pytest.warns(UserWarning, match="decoder_start_token_id is now 7, .*; it was 2"):
        inherit_writing(model := TercetSeq2SeqForConditionalGeneration(config), source)
    assert told(model) == DEFAULTS
    assert model.generation_config.decoder_start_token_id == 7


def test_defaults_that_cannot_be_saved_are_refused_before_a_run():
    source = decoder()
    source.generation_config.do_sample = False
    with pytest.raises(
        ValueError, match=r"generation_config.json cannot be saved .*temperature.*: correct it"
    ):
        inherit_writing(TercetDecoderForCausalLM(source.config), source)


def test_a_model_that_does_not_write_inherits_nothing():
    inherit_writing(TercetEncoderForMaskedLM(TercetEncoderConfig(**SIZES)), decoder())
