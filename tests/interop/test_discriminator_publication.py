"""ELECTRA's discriminator shares its Auto class with BERT: whoever loads one finds the one that was saved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForPreTraining

from tercet.interop.publication import prepare
from tercet.interop.remote_code import add_auto_map
from tercet.modeling import (
    TercetEncoderConfig,
    TercetEncoderForPreTraining,
    TercetEncoderForReplacedTokenDetection,
)

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
REMOTE = """
import sys, torch, transformers
folder = sys.argv[1]
model = transformers.AutoModelForPreTraining.from_pretrained(folder, trust_remote_code=True).eval()
torch.save(model(torch.load(folder + "/ids.pt", weights_only=True)).logits, folder + "/logits.pt")
assert not any(name == "tercet" or name.startswith("tercet.") for name in sys.modules)
"""
"""Read a published discriminator where Tercet cannot be imported."""


def published(folder: Path) -> dict[str, bytes]:
    """Give the contents of what would be sent."""
    sources = {file.path: file.source for file in prepare(folder, "me/small").files}
    return {name: s if isinstance(s, bytes) else s.read_bytes() for name, s in sources.items()}


@pytest.fixture
def discriminator(tmp_path) -> TercetEncoderForReplacedTokenDetection:
    """Write ELECTRA's discriminator into `saved`."""
    torch.manual_seed(0)
    model = TercetEncoderForReplacedTokenDetection(TercetEncoderConfig(vocab_size=61, **SIZES)).eval()
    model.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "tokenizer.json").write_text('{"version": "1.0"}')
    return model


@pytest.mark.usefixtures("discriminator")
def test_a_discriminator_takes_its_code_along(tmp_path):
    """Of the models that an Auto class knows for a configuration, the one that was saved is found."""
    name = "TercetEncoderForReplacedTokenDetection"
    files = published(tmp_path / "saved")
    config = json.loads(files["config.json"])
    assert config["auto_map"]["AutoModelForPreTraining"] == f"replaced_tokens.{name}"
    assert "replaced_tokens.py" in files
    assert "AutoModelForPreTraining.from_pretrained" in files["README.md"].decode()
    loaded, report = AutoModelForPreTraining.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(loaded) is TercetEncoderForReplacedTokenDetection
    assert not report["missing_keys"]
    usual = add_auto_map({"model_type": "tercet_encoder"})["auto_map"]
    assert usual["AutoModelForPreTraining"] == "modeling_tercet_encoder.TercetEncoderForPreTraining"
    assert (
        type(AutoModelForPreTraining.from_config(TercetEncoderConfig(**SIZES))) is TercetEncoderForPreTraining
    )


@pytest.mark.slow
def test_a_discriminator_is_read_where_tercet_is_not(discriminator, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path, content in published(tmp_path / "saved").items():
        (elsewhere / path).write_bytes(content)
    ids = torch.randint(3, 61, (2, 5))
    torch.save(ids, elsewhere / "ids.pt")
    importable = f"import sys; sys.path.append({str(Path(torch.__file__).parents[1])!r})\n"
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", importable + REMOTE, str(elsewhere)],
        env={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    torch.testing.assert_close(
        torch.load(elsewhere / "logits.pt", weights_only=True), discriminator(ids).logits
    )
