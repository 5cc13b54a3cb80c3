"""A certificate holds for equal models only, and says where others begin to differ."""

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from tercet.modeling.stock import certify, from_stock
from tercet.modeling.stock.certificate import Certificate


@pytest.mark.parametrize(
    ("name", "tensor", "where"),
    [
        ("GPT2LMHeadModel", "transformer.wpe.weight", "the embeddings"),
        ("GPT2LMHeadModel", "transformer.h.1.mlp.c_fc.weight", "layer 1"),
        ("BertForMaskedLM", "bert.encoder.layer.0.attention.self.key.weight", "layer 0"),
        ("BertForMaskedLM", "cls.predictions.bias", "the head"),
        ("BartForConditionalGeneration", "model.encoder.layers.1.fc2.bias", "layer 1 of the encoder"),
        ("BartForConditionalGeneration", "model.decoder.layers.2.fc1.weight", "layer 2 of the decoder"),
    ],
)
def test_difference_is_found_and_located(stock, name: str, tensor: str, where: str) -> None:
    model = stock(name)
    ours = from_stock(model)
    with torch.no_grad():
        model.state_dict()[tensor].view(-1)[::3] += 0.01
    certificate = certify(model, ours)
    assert not certificate.holds
    assert certificate.first_difference == where
    assert f"first in {where}" in certificate.verdict()


@pytest.mark.parametrize("factor", [1.01, torch.nan])
def test_what_only_the_loss_shows_is_found(stock, factor: float) -> None:
    model = stock("LlamaForCausalLM")
    ours = from_stock(model)
    stock_loss = model.loss_function
    model.loss_function = lambda *args, **kwargs: factor * stock_loss(*args, **kwargs)
    certificate = certify(model, ours)
    assert {each.what for each in certificate.differences if each.relative > 1e-5} == {"loss", "gradients"}
    assert certificate.first_difference == "the head"


def test_every_respect_is_compared_in_both_precisions(stock, tokenizer) -> None:
    model = stock("GPT2LMHeadModel")
    certificate = certify(model, from_stock(model), tokenizer)
    compared = {(each.what, each.probe, each.precision) for each in certificate.differences}
    for probe in ("random ids", "text"):
        for precision in ("float64", "float32"):
            for what in ("padded", "packed", "cached"):
                assert (f"predictions, {what}", probe, precision) in compared
            assert {("loss", probe, precision), ("gradients", probe, precision)} <= compared
        assert ("different texts", probe, "float32") in compared
    assert all(each.scale > 0.1 for each in certificate.differences if each.what.startswith("predictions"))


def test_certificate_is_saved_with_hashes_and_versions(stock, tmp_path: Path) -> None:
    model = stock("BertModel")
    certificate = certify(model, from_stock(model))
    certificate.save(tmp_path)
    facts = json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))
    assert facts["holds"] is True
    assert {*facts["versions"]} == {"tercet", "torch", "transformers", "python"}
    assert facts["dropped"] == {
        "pooler.dense.weight": "states of tokens do not depend on the pooler",
        "pooler.dense.bias": "states of tokens do not depend on the pooler",
    }
    assert Certificate.from_facts(facts) == certificate
    before = facts["sha256"]["stock"]
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[5, 5] += 1
    assert certify(model, from_stock(model)).sha256["stock"] != before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_certified(stock, tmp_path: Path, dtype: torch.dtype) -> None:
    stock("LlamaForCausalLM").save_pretrained(tmp_path)
    # Loaded in this precision: `.to` would round the wavelengths of the stock model's positions, too.
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert certify(model, from_stock(model)).holds


def test_table_shows_every_measurement(stock) -> None:
    model = stock("OPTForCausalLM")
    lines = certify(model, from_stock(model)).table().splitlines()
    assert lines[0] == "OPTForCausalLM and TercetDecoderForCausalLM are equal."
    assert sum(line.startswith("| ") for line in lines) == 1 + 6
