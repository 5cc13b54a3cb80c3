"""Tiny stock models: of each architecture a class with a head, and sizes by the names that it gives them."""

from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
OF_SIDES = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
BART = {"d_model": 32} | {
    f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in OF_SIDES.items()
}
STOCK: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("BartForConditionalGeneration", BART),
    "bert": ("BertForMaskedLM", SIZES),
    "distilbert": ("DistilBertForMaskedLM", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "lfm2": ("Lfm2ForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "llama": ("LlamaForCausalLM", SIZES),
    "mamba": ("MambaForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
    "modernbert": ("ModernBertForMaskedLM", SIZES),
    "neox": ("GPTNeoXForCausalLM", SIZES),
    "qwen2": ("Qwen2ForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "roberta": ("RobertaForMaskedLM", SIZES),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4},
    ),
}
"""Name -> class with a head, sizes: 2 layers of 4 heads, each 8 wide."""


def stock_class(name: str) -> type[PreTrainedModel]:
    return getattr(transformers, STOCK[name][0])


def stock_config(name: str, **fields: Any) -> PreTrainedConfig:
    """Build a configuration of these sizes, with more fields or others."""
    config_class: Any = stock_class(name).config_class
    return config_class(**STOCK[name][1] | fields)


def stock_model(name: str, **fields: Any) -> PreTrainedModel:
    """Build a model with random weights."""
    return stock_class(name)(stock_config(name, **fields))
