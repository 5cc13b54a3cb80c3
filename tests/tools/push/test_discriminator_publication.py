"""ELECTRA's discriminator shares its Auto class with BERT: whoever loads one finds the one that was saved."""

import json

import pytest
import torch
from transformers import AutoModelForPreTraining

from tercet.modeling import (
    TercetEncoderConfig,
    TercetEncoderForPreTraining,
    TercetEncoderForReplacedTokenDetection,
)
from tercet.modeling.saved.remote_code import add_auto_map

from .test_publication import published

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


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
    assert config["auto_map"]["AutoModelForPreTraining"] == f"modeling_tercet_encoder.{name}"
    assert f"class {name}" in files["modeling_tercet_encoder.py"].decode()
    assert "AutoModelForPreTraining.from_pretrained" in files["README.md"].decode()
    loaded, report = AutoModelForPreTraining.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(loaded) is TercetEncoderForReplacedTokenDetection
    assert not report["missing_keys"]
    usual = add_auto_map({"model_type": "tercet_encoder"})["auto_map"]
    assert usual["AutoModelForPreTraining"] == "modeling_tercet_encoder.TercetEncoderForPreTraining"
    assert (
        type(AutoModelForPreTraining.from_config(TercetEncoderConfig(**SIZES))) is TercetEncoderForPreTraining
    )
