"""A model with a larger vocabulary goes on from what a smaller one knows of the tokens that both have."""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetCharacterConfig,
    TercetCharacterLanguageModel,
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
    TercetElmoConfig,
    TercetElmoForLanguageModeling,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetEncoderForReplacedTokenDetection,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.saved.inheritance import inherit

OLD, NEW = 32, 35
"""Tokens; as many old ones as the models have channels, which are not to be taken for tokens."""

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT = {"head_transform": True, "head_bias": True, "mlp_bias": True}
SEPARATE = {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False, "head_bias": True}
MODELS = {
    "encoder": (TercetEncoderForMaskedLM, TercetEncoderConfig, SIZES | BERT),
    "encoder of pairs": (TercetEncoderForPreTraining, TercetEncoderConfig, SIZES | BERT),
    "discriminator": (TercetEncoderForReplacedTokenDetection, TercetEncoderConfig, SIZES),
    "factorized": (TercetEncoderForMaskedLM, TercetEncoderConfig, SIZES | BERT | {"embedding_size": 16}),
    "decoder": (TercetDecoderForCausalLM, TercetDecoderConfig, SIZES),
    "decoder, own head": (TercetDecoderForCausalLM, TercetDecoderConfig, SIZES | SEPARATE),
    "hybrid": (TercetDecoderForMaskedLM, TercetDecoderConfig, SIZES),
    "seq2seq": (TercetSeq2SeqForConditionalGeneration, TercetSeq2SeqConfig, SIZES),
    "seq2seq, three tables": (TercetSeq2SeqForConditionalGeneration, TercetSeq2SeqConfig, SIZES | SEPARATE),
    "recurrent": (TercetRecurrentSeq2SeqForConditionalGeneration, TercetRecurrentSeq2SeqConfig,
        {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "head_bias": True}),
    "characters": (TercetCharacterLanguageModel, TercetCharacterConfig, {"hidden_size": 32}),
    "elmo": (TercetElmoForLanguageModeling, TercetElmoConfig,
        {"hidden_size": 32, "lstm_cell_size": 48, "num_hidden_layers": 1}),
}  # fmt: skip


def build(kind: str, vocab_size: int, seed: int):
    """Build a small model whose parameters all matter, in evaluation mode."""
    architecture, config_class, fields = MODELS[kind]
    if config_class is not TercetSeq2SeqConfig:
        fields = {name: value for name, value in fields.items() if name != "share_encoder_decoder_embeddings"}
    torch.manual_seed(seed)
    model = architecture(config_class(vocab_size=vocab_size, **fields))
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    return model.eval()


@pytest.mark.parametrize("kind", MODELS)
def test_new_tokens_begin_with_the_mean_of_the_old_ones(kind):
    source, model = build(kind, OLD, seed=0), build(kind, NEW, seed=1)
    assert inherit(model, source) == []
    old, grown = dict(source.named_parameters()), 0
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter[: len(old[name])], old[name])
        if parameter.shape != old[name].shape:
            grown += 1
            assert_close(parameter[OLD:], old[name].mean(0, keepdim=True).expand_as(parameter[OLD:]))
    tables = [module for module in model.modules() if getattr(module, "num_embeddings", 0) == NEW]
    assert grown >= max(1, len({table.weight for table in tables}))


def test_a_smaller_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"the shapes of .*embed_tokens.weight would change"):
        inherit(build("decoder", OLD, seed=0), build("decoder", NEW, seed=1))


def test_nothing_but_the_vocabulary_grows():
    source = build("decoder", OLD, seed=0)
    wider = TercetDecoderForCausalLM(TercetDecoderConfig(vocab_size=NEW, **SIZES | {"intermediate_size": 64}))
    with pytest.raises(ValueError, match=r"the shapes of .* would change"):
        inherit(wider, source)
