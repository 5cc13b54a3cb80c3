"""A published character model: its code travels with it, and its card and its doctor know it."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling import TercetCharacterConfig, TercetCharacterLanguageModel
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.tools.doctor.diagnosis import diagnose
from tercet.tools.push.publication import prepare


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("character")
    torch.manual_seed(0)
    tokenizer = train_tokenizer(["the cat sat on a mat"] * 9, "characters", 40, template="both_ends")
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "embedding_size": 8}
    model = TercetCharacterLanguageModel(TercetCharacterConfig(**sizes, **ids, initializer_range=0.5))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_card_says_how_it_is_loaded(saved):
    files = {file.path: file.source for file in prepare(saved, "me/characters").files}
    card = ModelCard(files["README.md"].decode())
    assert card.data.pipeline_tag == "feature-extraction"
    assert "AutoModel.from_pretrained" in card.text
    assert "character language model" in card.text


def test_its_doctor_finds_nothing(saved):
    findings = diagnose(str(saved)).findings
    assert {finding.verdict for finding in findings.values()} <= {"ok", "not applicable"}
    assert findings["causality"].measured.startswith("bidirectional alone, padded, in training")


def test_commands_of_transformers_refuse_it(saved):
    with pytest.raises(ValueError, match="is a tercet_character, which this command does not read"):
        Checkpoint.open(str(saved)).transformer()
