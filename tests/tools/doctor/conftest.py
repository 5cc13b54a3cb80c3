"""Folders with tiny models of ours and of transformers, each with a tokenizer that fits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForQuestionAnswering,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.tools.doctor.diagnosis import diagnose

from ...word_level import word_level

SPECIAL = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "mask": "<mask>", "unk": "<unk>"}
WORDS = [*SPECIAL.values(), *(f"word{number}" for number in range(56))]
POSITIONS = 32
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    **IDS,
}
BART_SIZES = {
    "vocab_size": len(WORDS),
    "d_model": 32,
    "max_position_embeddings": POSITIONS,
    **{f"{stack}_layers": 2 for stack in ("encoder", "decoder")},
    **{f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")},
    **{f"{stack}_ffn_dim": 48 for stack in ("encoder", "decoder")},
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
    **IDS,
}
T5_SIZES = {
    "vocab_size": len(WORDS),
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    **IDS,
}
KINDS: dict[str, tuple[type[PreTrainedModel], type, dict[str, Any]]] = {
    "encoder": (TercetEncoderForMaskedLM, TercetEncoderConfig, SIZES),
    "decoder": (TercetDecoderForCausalLM, TercetDecoderConfig, SIZES),
    "seq2seq": (TercetSeq2SeqForConditionalGeneration, TercetSeq2SeqConfig, SIZES),
    "answers": (TercetEncoderForQuestionAnswering, TercetEncoderConfig, SIZES),
    "bert": (BertForMaskedLM, BertConfig, SIZES),
    "bert_classifier": (BertForSequenceClassification, BertConfig, SIZES),
    "roberta": (RobertaForMaskedLM, RobertaConfig, SIZES | {"max_position_embeddings": POSITIONS + 1}),
    "gpt2": (GPT2LMHeadModel, GPT2Config, SIZES),
    "llama": (LlamaForCausalLM, LlamaConfig, SIZES),
    "bart": (BartForConditionalGeneration, BartConfig, BART_SIZES),
    "t5": (T5ForConditionalGeneration, T5Config, T5_SIZES),
}


def build_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """Build a tokenizer of words; an option replaces a special token, None leaves it out."""
    roles = {f"{role}_token": token for role, token in SPECIAL.items()}
    options = roles | {"model_max_length": POSITIONS} | options
    given = {name: value for name, value in options.items() if value is not None}
    return word_level(WORDS, split=pre_tokenizers.WhitespaceSplit(), **given)


@pytest.fixture
def folder_of(tmp_path) -> Callable[..., Path]:
    """Give the function that saves a tiny model, with other fields of its configuration, and a tokenizer."""

    def folder_of(kind: str, tokenizer: dict[str, Any] | None = None, **fields: Any) -> Path:
        model_class, config_class, sizes = KINDS[kind]
        torch.manual_seed(0)
        folder = tmp_path / kind
        model_class(config_class(**sizes | fields)).save_pretrained(folder)
        build_tokenizer(**tokenizer or {}).save_pretrained(folder)
        return folder

    return folder_of


@pytest.fixture
def complaints() -> Callable[[Path], dict[str, str]]:
    """Return the function that examines a folder, and keeps the verdicts that are neither good nor void."""

    def complaints(folder: Path) -> dict[str, str]:
        findings = diagnose(str(folder)).findings
        assert all(
            finding.remedy for finding in findings.values() if finding.verdict in ("warning", "failed")
        )
        return {
            name: finding.verdict
            for name, finding in findings.items()
            if finding.verdict in ("warning", "failed")
        }

    return complaints


@pytest.fixture
def edit_weights() -> Callable[[Path, Callable[[dict[str, Tensor]], None]], None]:
    """Return the function that changes the tensors in a folder's file."""

    def edit_weights(folder: Path, edit: Callable[[dict[str, Tensor]], None]) -> None:
        file = folder / "model.safetensors"
        tensors = load_file(file)
        edit(tensors)
        save_file(tensors, file, {"format": "pt"})

    return edit_weights


@pytest.fixture
def edit_json() -> Callable[..., None]:
    """Return the function that changes fields of a JSON file."""

    def edit_json(file: Path, **fields: Any) -> None:
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))

    return edit_json
