"""Silent causality, and a future that is seen, are found in whichever way of calling a model they hide."""

from inspect import signature
from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM, GPT2LMHeadModel

from tercet.doctor.diagnosis import diagnose, examine
from tercet.modeling import TercetDecoderForMaskedLM
from tercet.modeling.attention.patterns import FullAttention
from tercet.modeling.compatibility import CACHE

ONES = torch.ones(1, 1)
LEAKS = {
    "alone": lambda model, inputs: "attention_mask" not in inputs and not model.training,
    "with a mask of ones": lambda model, inputs: inputs.get("attention_mask", 0 * ONES).all(),
    "padded on the left": lambda model, inputs: not inputs.get("attention_mask", ONES)[:, 0].all(),
    "padded on the right": lambda model, inputs: not inputs.get("attention_mask", ONES)[0, -1],
    "in a batch": lambda model, inputs: len(inputs["input_ids"]) > 1,
    "packed": lambda model, inputs: "position_ids" in inputs,
    "behind a cache": lambda model, inputs: inputs.get(CACHE) is not None,
    "with eager attention": lambda model, inputs: model.config._attn_implementation == "eager",
    "in training": lambda model, inputs: model.training,
}
"""When a broken model looks ahead."""


@pytest.mark.parametrize("way", LEAKS)
def test_a_future_that_is_seen_in_one_way_is_found_there(way, folder_of, monkeypatch):
    folder = folder_of("gpt2")
    forward = GPT2LMHeadModel.forward

    def leaking(model, input_ids=None, **inputs):
        outputs: Any = forward(model, input_ids=input_ids, **inputs)
        if LEAKS[way](model, inputs | {"input_ids": input_ids}):
            outputs.logits = outputs.logits + outputs.logits.roll(-1, dims=1)
        return outputs

    leaking.__signature__ = signature(forward)
    monkeypatch.setattr(GPT2LMHeadModel, "forward", leaking)
    finding = diagnose(str(folder)).findings["causality"]
    assert finding.verdict == "failed"
    assert way in finding.measured.partition("not causal ")[2]
    assert "in any way" not in finding.measured


def test_an_encoder_that_is_causal_only_without_a_mask_is_found(folder_of, monkeypatch):
    """A kernel that gets no mask follows the layer's flag: so a batch of one text was read, and no other."""
    folder = folder_of("bert")
    build = BertForMaskedLM.__init__

    def causal(model, *args, **kwargs):
        build(model, *args, **kwargs)
        for module in model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = True

    monkeypatch.setattr(BertForMaskedLM, "__init__", causal)
    finding = diagnose(str(folder)).findings["causality"]
    assert finding.verdict == "failed"
    ways = finding.measured.partition("not bidirectional ")[2]
    assert ways.startswith("alone, with a mask of ones")
    assert "padded on the right" not in ways
    assert "eager" not in ways


def test_an_encoder_of_ours_that_is_causal_only_in_training_is_found(folder_of, monkeypatch):
    """Packed kernels ask the layer's pattern, padded ones get a mask."""
    folder = folder_of("encoder")
    monkeypatch.setattr(FullAttention, "allows", lambda self, queries, keys: queries >= keys)
    monkeypatch.setattr(FullAttention, "is_full", lambda self, length: False)
    finding = diagnose(str(folder)).findings["causality"]
    assert finding.verdict == "failed"
    assert "in training with padding" in finding.measured
    assert "alone" not in finding.measured


@pytest.mark.parametrize(
    ("kind", "word"), [("decoder", "causal"), ("llama", "causal"), ("seq2seq", "causal")]
)
def test_a_decoder_is_said_to_be_causal_in_all_ways(kind, word, folder_of):
    finding = diagnose(str(folder_of(kind))).findings["causality"]
    assert finding.measured.startswith(f"{word} in 11 ways: later tokens change at most")


@pytest.mark.parametrize("kind", ["encoder", "bert"])
def test_an_encoder_is_said_to_be_bidirectional_in_all_ways(kind, folder_of):
    finding = diagnose(str(folder_of(kind))).findings["causality"]
    assert finding.measured.startswith("bidirectional in 10 ways: later tokens change ")


def test_the_bidirectional_reading_of_a_decoder_is_an_encoder(folder_of, edit_json):
    folder = folder_of("decoder")
    edit_json(folder / "config.json", architectures=[TercetDecoderForMaskedLM.__name__])
    finding = diagnose(str(folder)).findings["causality"]
    assert finding.measured.startswith("bidirectional in")


def test_a_model_is_left_as_it_was(examined_model_of):
    examined = examined_model_of("decoder")
    own = examined.model.config._attn_implementation
    examine(examined)
    assert examined.model.config._attn_implementation == own
    assert not examined.model.training
