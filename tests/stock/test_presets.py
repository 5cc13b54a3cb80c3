"""A preset of a model that others have published is what its stock configuration becomes."""

from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig

from tercet import modeling
from tercet.configs.recipe import load_preset
from tercet.stock.architectures import architecture_of

BART_BASE = {
    "d_model": 768,
    **{f"{side}_layers": 6 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 12 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 3072 for side in ("encoder", "decoder")},
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}
ROBERTA_BASE = {
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
PYTHIA_70M = {
    "vocab_size": 50304,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
SMOLLM_135M = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
QWEN3_600M = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}
PUBLISHED: dict[str, tuple[str, dict[str, Any], int]] = {
    "bert-base": ("BertForPreTraining", {}, 110_106_428),
    "distilbert-base": ("DistilBertForMaskedLM", {}, 66_985_530),
    "roberta-base": ("RobertaForMaskedLM", ROBERTA_BASE, 124_697_433),
    "electra-small": ("ElectraForPreTraining", {}, 13_549_057),
    "modernbert-base": ("ModernBertForMaskedLM", {}, 149_655_232),
    "gpt2": ("GPT2LMHeadModel", {}, 124_439_808),
    "opt-125m": ("OPTForCausalLM", {}, 125_239_296),
    "pythia-70m": ("GPTNeoXForCausalLM", PYTHIA_70M, 70_426_624),
    "smollm-135m": ("LlamaForCausalLM", SMOLLM_135M, 134_515_008),
    "qwen3-0.6b": ("Qwen3ForCausalLM", QWEN3_600M, 596_049_920),
    "bart-base": ("BartForConditionalGeneration", BART_BASE, 139_420_416),
    "t5-small": ("T5ForConditionalGeneration", {}, 60_506_624),
}
"""The stock model, the options of its published size, and its parameters."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_is_what_its_stock_configuration_becomes(name: str) -> None:
    stock_name, options, _ = PUBLISHED[name]
    stock = getattr(transformers, stock_name).config_class(**options)
    ours = architecture_of(stock).our_config(stock, tie_word_embeddings=stock.tie_word_embeddings).to_dict()
    if name in ("bart-base", "t5-small"):
        ours["classifier_dropout"] = stock.classifier_dropout
    preset = AutoConfig.for_model(**load_preset(name)).to_dict()
    for configuration in (preset, ours):
        for names_of_labels in ("id2label", "label2id"):
            del configuration[names_of_labels]
    assert preset == ours


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_parameters_of_the_published_model(name: str) -> None:
    stock_name, options, published = PUBLISHED[name]
    stock_class = getattr(transformers, stock_name)
    stock = stock_class.config_class(**options)
    preset = AutoConfig.for_model(**load_preset(name))
    our_class = getattr(modeling, architecture_of(stock).counterpart(stock=stock_name).ours)
    with torch.device("meta"):
        for model in (stock_class(stock), our_class(preset)):
            assert sum(each.numel() for each in model.parameters() if each.requires_grad) == published
