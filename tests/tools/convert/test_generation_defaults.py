"""How a model writes goes along wherever the model goes, and ids in it follow the model's configuration."""

import warnings
from functools import partial
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
from tercet.data.tokenizers.token_rows import new_ids
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling.saved.inheritance import inherit_writing
from tercet.modeling.stock.models import from_stock, to_stock
from tercet.tools.convert.members import read_as

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


def test_ids_follow_their_tokens_into_another_tokenizer():
    """Else texts begin and end with what stands where these tokens stood (forced ids, BART's above all)."""
    texts = ["the old house has the new door of the house"] * 3
    old = train_tokenizer(texts, "byte_bpe", 300, special_tokens=["<|user|>", "<|end|>"])
    new = train_tokenizer(texts, "unigram", 40, special_tokens=["<|end|>"])
    config = TercetSeq2SeqConfig(**SIZES | {"vocab_size": 300, "eos_token_id": [2, 261]})
    source: Any = TercetSeq2SeqForConditionalGeneration(config)
    ids: Any = old.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<|end|>", "<|user|>", "Ġ", "Ġthe"])
    pad, bos, eos, end, user, word, unwritten = ids
    source.generation_config = GenerationConfig(
        pad_token_id=pad,
        bos_token_id=bos,
        eos_token_id=[eos, end],
        decoder_start_token_id=pad,
        forced_bos_token_id=bos,
        forced_eos_token_id=unwritten,
        suppress_tokens=[user, pad, word],
        begin_suppress_tokens=[user],
        bad_words_ids=[[word, unwritten], [word, eos]],
        sequence_bias=[[[word], -2.0], [[unwritten], -3.0]],
        num_beams=4,
    )
    fields = {"bos_token_id": new.bos_token_id, "eos_token_id": new.eos_token_id, "pad_token_id": 0}
    sizes = SIZES | {"vocab_size": 40, "decoder_start_token_id": new.pad_token_id}
    model = TercetSeq2SeqForConditionalGeneration(TercetSeq2SeqConfig(**sizes | fields))
    model.config.pad_token_id = new.pad_token_id
    with pytest.warns(UserWarning, match="does not have all of these tokens") as told:
        inherit_writing(model, source, partial(new_ids, old, new))
    names = [str(warning.message).split()[1] for warning in told]
    gone = [
        "forced_eos_token_id",
        "suppress_tokens",
        "begin_suppress_tokens",
        "bad_words_ids",
        "sequence_bias",
    ]
    assert sorted(names) == sorted(gone)
    ids: Any = new.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<|end|>", "▁"])
    pad, bos, eos, end, word = ids
    found = model.generation_config.to_diff_dict()
    assert found.pop("transformers_version")
    assert found == {
        "pad_token_id": pad,
        "bos_token_id": bos,
        "eos_token_id": [eos, end],
        "decoder_start_token_id": pad,
        "forced_bos_token_id": bos,
        "suppress_tokens": [pad, word],
        "bad_words_ids": [[word, eos]],
        "sequence_bias": [[[word], -2.0]],
        "num_beams": 4,
    }


def test_defaults_that_cannot_be_saved_are_refused_before_a_run():
    source = decoder()
    source.generation_config.do_sample = False
    with pytest.raises(
        ValueError, match=r"generation_config.json cannot be saved .*temperature.*: correct it"
    ):
        inherit_writing(TercetDecoderForCausalLM(source.config), source)


def test_a_model_that_does_not_write_inherits_nothing():
    inherit_writing(TercetEncoderForMaskedLM(TercetEncoderConfig(**SIZES)), decoder())
