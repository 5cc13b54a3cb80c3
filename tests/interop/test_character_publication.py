"""A published character model: its code travels with it, and its card and its doctor know it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoTokenizer

from tercet.interop.doctor import diagnose
from tercet.interop.own_model import load_transformer
from tercet.interop.publication import prepare
from tercet.modeling import TercetCharacterConfig, TercetCharacterLanguageModel
from tercet.text.tokenizer import train_tokenizer

REMOTE = """
import sys, torch, transformers
assert not any(name == "tercet" or name.startswith("tercet.") for name in sys.modules)
folder = sys.argv[1]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
for auto, name in (("AutoModel", "base"), ("AutoModelForPreTraining", "head")):
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()
    torch.save(model(**tokenizer("a cat", return_tensors="pt")).last_hidden_state, f"{folder}/{name}.pt")
assert "tercet" not in sys.modules and "transformers_modules" in type(model).__module__
"""


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


def test_code_travels_with_the_weights(saved, tmp_path):
    """A process that cannot import tercet computes the same from the published files."""
    for file in prepare(saved, "me/characters").files:
        target = tmp_path / file.path
        target.write_bytes(file.source if isinstance(file.source, bytes) else file.source.read_bytes())
    (tmp_path / "cache").mkdir()
    importable = f"import sys; sys.path.append({str(Path(torch.__file__).parents[1])!r})\n"
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", importable + REMOTE, str(tmp_path)],
        env={"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    model = TercetCharacterLanguageModel.from_pretrained(saved)
    expected = model(**AutoTokenizer.from_pretrained(saved)("a cat", return_tensors="pt")).last_hidden_state
    for name in ("base", "head"):
        torch.testing.assert_close(torch.load(tmp_path / f"{name}.pt", weights_only=True), expected)


def test_the_card_says_how_it_is_loaded(saved):
    files = {file.path: file.source for file in prepare(saved, "me/characters").files}
    card = ModelCard(files["README.md"].decode())
    assert card.data.pipeline_tag == "feature-extraction"
    assert "AutoModel.from_pretrained" in card.text
    assert "character language model" in card.text


def test_its_doctor_finds_nothing(saved):
    findings = diagnose(str(saved)).findings
    assert {finding.verdict for finding in findings.values()} <= {"ok", "not applicable"}
    assert findings["causality"].measured.startswith("bidirectional in 9 ways")


def test_commands_of_transformers_refuse_it(saved):
    with pytest.raises(ValueError, match="is a tercet_character, which this command does not read"):
        load_transformer(str(saved))
