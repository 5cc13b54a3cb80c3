"""Small stock models of every architecture, with random weights that all matter, and a tokenizer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ...word_level import word_level

VOCAB_SIZE = 61
COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
BART = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5 = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
SIZES: dict[str, dict[str, Any]] = {
    "bert": COMMON,
    "roberta": COMMON | {"max_position_embeddings": 42, "type_vocab_size": 1, "pad_token_id": 1},
    "distilbert": {"vocab_size": VOCAB_SIZE, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    "big_bird": COMMON | {"attention_type": "original_full"},
    "gpt2": {
        "vocab_size": VOCAB_SIZE,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 40,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    "opt": {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 40,
    },
    "llama": COMMON | {"num_key_value_heads": 2, "max_position_embeddings": 40},
    "modernbert": COMMON
    | {
        "num_hidden_layers": 4,
        "local_attention": 6,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    },
    "mistral": COMMON | {"num_key_value_heads": 2, "max_position_embeddings": 40, "sliding_window": 5},
    "electra": COMMON | {"embedding_size": 20},
    "gpt_neox": COMMON | {"max_position_embeddings": 40},
    "qwen2": COMMON | {"num_key_value_heads": 2, "max_position_embeddings": 40},
    "qwen3": COMMON | {"num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 40},
    "t5": T5,
    "mt5": T5,
    "bart": BART,
    "mbart": BART,
    "marian": BART,
}
"""Options of a small model of each architecture."""


@pytest.fixture
def short_texts(monkeypatch) -> None:
    """Compare T5, which has no last position, a little beyond the distance from which all are one to it."""
    monkeypatch.setattr("tercet.modeling.stock.probes.MOST_LONG", 160)


@pytest.fixture
def stock() -> Callable[..., PreTrainedModel]:
    """Build a stock model by the name of its class, with options."""

    def build(name: str, **options: Any) -> PreTrainedModel:
        torch.manual_seed(0)
        model_class = getattr(transformers, name)
        config_class = model_class.config_class
        model = model_class(config_class(**SIZES[config_class.model_type] | options))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.normal_(std=0.2)
        return model.eval()

    return build


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer of single characters."""
    characters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz ,.?"]
    split = pre_tokenizers.Split("", "isolated")
    return word_level(characters, split=split, pad_token="[PAD]", unk_token="[UNK]")
