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
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel, PreTrainedTokenizerFast

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

from ...stock_models import SIZES, stock_model
from ...word_level import word_level

SPECIAL = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "mask": "<mask>", "unk": "<unk>"}
WORDS = [*SPECIAL.values(), *(f"word{number}" for number in range(56))]
POSITIONS = 32
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
COMMON = {"vocab_size": len(WORDS), **IDS}
POSITIONED = {"max_position_embeddings": POSITIONS}
OURS: dict[str, tuple[type[PreTrainedModel], type]] = {
    "encoder": (TercetEncoderForMaskedLM, TercetEncoderConfig),
    "decoder": (TercetDecoderForCausalLM, TercetDecoderConfig),
    "seq2seq": (TercetSeq2SeqForConditionalGeneration, TercetSeq2SeqConfig),
    "answers": (TercetEncoderForQuestionAnswering, TercetEncoderConfig),
    "bert_classifier": (BertForSequenceClassification, BertConfig),
}
OF_STOCK: dict[str, dict[str, Any]] = {
    "roberta": {"max_position_embeddings": POSITIONS + 1},
    "bart": POSITIONED | {"decoder_start_token_id": 2, "forced_eos_token_id": 2},
    "t5": {"decoder_start_token_id": 0},
}
"""What these have beside what all have, and the others `POSITIONED`."""


def build(kind: str, **fields: Any) -> PreTrainedModel:
    """Build a tiny model with fields of its configuration."""
    torch.manual_seed(0)
    if kind in OURS:
        model_class, config_class = OURS[kind]
        return model_class(config_class(**SIZES | COMMON | POSITIONED | fields))
    return stock_model(kind, **COMMON | OF_STOCK.get(kind, POSITIONED) | fields)


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
        folder = tmp_path / kind
        build(kind, **fields).save_pretrained(folder)
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
