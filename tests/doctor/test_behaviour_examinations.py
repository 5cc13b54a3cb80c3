"""A model that is wrong in one respect is found out by the examination of that, and by no other."""

from functools import partial
from inspect import signature

import pytest
import torch
from transformers import (
    BartForSequenceClassification,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForTokenClassification,
    GPT2LMHeadModel,
)
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.models.bart import modeling_bart
from transformers.models.bert import modeling_bert
from transformers.models.llama import modeling_llama

from tercet.doctor.diagnosis import diagnose, examine
from tercet.modeling import (
    TercetEncoderForMaskedLM,
    TercetEncoderForMultipleChoice,
    TercetEncoderForQuestionAnswering,
    TercetSeq2SeqForQuestionAnswering,
    TercetSeq2SeqForSequenceClassification,
    stack,
)
from tercet.modeling.attention import patterns
from tercet.modeling.compatibility import CACHE


def sees_next(batch_idx, head_idx, q_idx, kv_idx):
    """Allow a look at the next token."""
    return kv_idx == q_idx + 1


def sees_past(batch_idx, head_idx, q_idx, kv_idx):
    """Allow no look ahead."""
    return kv_idx <= q_idx


@pytest.fixture
def spoil(monkeypatch):
    """Give the function that replaces a model's forward by one that is given it and the inputs."""

    def spoil(model_class, spoilt):
        forward = model_class.forward

        def replaced(model, **inputs):
            return spoilt(partial(forward, model), inputs)

        replaced.__signature__ = signature(forward)
        monkeypatch.setattr(model_class, "forward", replaced)

    return spoil


@pytest.mark.parametrize(
    ("kind", "model_class", "side", "column"),
    [
        ("bert", BertForMaskedLM, "right", 0),
        ("bert", BertForMaskedLM, "left", -1),
        ("bert_answers", BertForQuestionAnswering, "left", -1),
        ("bert_token_labels", BertForTokenClassification, "right", 0),
        ("encoder", TercetEncoderForMaskedLM, "right", 0),
        ("answers", TercetEncoderForQuestionAnswering, "right", 0),
        ("seq2seq_answers", TercetSeq2SeqForQuestionAnswering, "right", 0),
    ],
)
def test_pads_that_are_read_are_found(side, column, kind, model_class, folder_of, spoil, complaints):
    def without_mask(forward, inputs):
        if inputs.get("attention_mask", torch.zeros(1, 1))[:, column].all():
            del inputs["attention_mask"]
        return forward(**inputs)

    folder = folder_of(kind)
    spoil(model_class, without_mask)
    assert complaints(folder) == {f"{side} padding": "failed"}


def test_a_side_that_is_never_padded_may_be_read(folder_of, complaints):
    """BART counts positions from the left; only a tokenizer that pads there makes that a failure."""
    folder = folder_of("bart", tokenizer={"padding_side": "left"})
    assert complaints(folder) == {"left padding": "failed"}


def mix(forward, inputs):
    outputs = forward(**inputs)
    outputs.logits = outputs.logits + 0.1 * outputs.logits.roll(1, dims=0)
    return outputs


def mix_ends(forward, inputs):
    outputs = forward(**inputs)
    outputs.end_logits = outputs.end_logits + 0.1 * outputs.end_logits.roll(1, dims=0)
    return outputs


def compare(forward, inputs):
    outputs = forward(**inputs)
    outputs.logits = outputs.logits - outputs.logits.mean(dim=-1, keepdim=True) / 2
    return outputs


def forget(forward, inputs):
    if CACHE in inputs:
        inputs["position_ids"] = torch.arange(inputs["input_ids"].shape[1])[None]
    return forward(**inputs)


FAULTS = {
    "rows that mix": ("gpt2", GPT2LMHeadModel, mix, {"batch"}),
    "ends of answers that mix": ("bert_answers", BertForQuestionAnswering, mix_ends, {"batch"}),
    "choices that depend on each other": ("bert_choices", BertForMultipleChoice, compare, {"batch"}),
    "the same of ours": ("choices", TercetEncoderForMultipleChoice, compare, {"batch", "packed documents"}),
    "a cache whose positions begin anew": ("gpt2", GPT2LMHeadModel, forget, {"cache"}),
}


@pytest.mark.parametrize(("kind", "model_class", "fault", "examinations"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(kind, model_class, fault, examinations, folder_of, spoil, complaints):
    folder = folder_of(kind)
    spoil(model_class, fault)
    assert complaints(folder) == dict.fromkeys(examinations, "failed")


@pytest.mark.parametrize(
    ("kind", "model_class"),
    [
        ("bart_labels", BartForSequenceClassification),
        ("seq2seq_labels", TercetSeq2SeqForSequenceClassification),
    ],
)
def test_labels_that_are_read_at_a_pad_are_found(kind, model_class, examined_model_of, spoil):
    def read_last_column(forward, inputs):
        mask = inputs.get("attention_mask", torch.ones(1, 1))
        if not mask[:, -1].all():
            ids = inputs["input_ids"].masked_fill(mask == 0, 5)
            ids[:, -1] = 2  # the end of a text
            inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(mask)}
        return forward(**inputs)

    examined = examined_model_of(kind)
    spoil(model_class, read_last_column)
    failed = {name for name, each in examine(examined).findings.items() if each.verdict == "failed"}
    assert failed == {"right padding"}


@pytest.mark.parametrize(
    ("kind", "module", "layers"),
    [("llama", modeling_llama, "num_hidden_layers"), ("bart", modeling_bart, "decoder_layers")],
)
def test_a_decoder_that_sees_the_future_is_found(kind, module, layers, folder_of, complaints, monkeypatch):
    # With several layers, what a cache holds would depend on what follows: one layer has this fault alone.
    folder = folder_of(kind, **{layers: 1})
    mask = module.create_causal_mask
    monkeypatch.setattr(module, "create_causal_mask", partial(mask, or_mask_function=sees_next))
    assert complaints(folder) == {"causality": "failed"}


@pytest.mark.parametrize(
    ("kind", "module", "examinations"),
    [
        ("bert", modeling_bert, {"causality"}),
        # Packed, the kernel has no mask that could be wrong, so that packed is not as alone.
        ("encoder", patterns, {"causality", "packed documents"}),
        ("answers", patterns, {"causality", "packed documents"}),
    ],
)
def test_an_encoder_that_sees_one_side_only_is_found(
    kind, module, examinations, folder_of, complaints, monkeypatch
):
    def one_sided(*args, and_mask_function=None, **kwargs):
        return create_bidirectional_mask(*args, and_mask_function=sees_past, **kwargs)

    folder = folder_of(kind)
    monkeypatch.setattr(module, "create_bidirectional_mask", one_sided)
    assert complaints(folder) == dict.fromkeys(examinations, "failed")


def test_packed_documents_are_mixed_where_a_head_makes_a_cache_in_any_case(folder_of, complaints):
    """Llama's head for answers cannot be told otherwise, and masks with a cache know no packed documents."""
    assert complaints(folder_of("llama_answers")) == {"packed documents": "warning"}


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_packed_documents_that_see_each_other_are_found(kind, folder_of, complaints, monkeypatch):
    folder = folder_of(kind)
    monkeypatch.setattr(stack, "restarts", torch.zeros_like)
    assert complaints(folder) == {"packed documents": "failed"}


def test_packed_documents_that_nobody_promised_to_keep_apart_are_a_warning(
    folder_of, complaints, monkeypatch
):
    folder = folder_of("llama")

    def blind_mask(*args, position_ids=None, **kwargs):
        return create_causal_mask(*args, **kwargs)

    monkeypatch.setattr(modeling_llama, "create_causal_mask", blind_mask)
    assert complaints(folder) == {"packed documents": "warning"}


def test_a_model_that_raises_has_failed(folder_of, spoil, complaints):
    def refusing(forward, inputs):
        if len(inputs["input_ids"]) > 1:
            raise RuntimeError("one row, please")
        return forward(**inputs)

    folder = folder_of("gpt2")
    spoil(GPT2LMHeadModel, refusing)
    assert complaints(folder) == {"batch": "failed"}
    finding = diagnose(str(folder)).findings["batch"]
    assert finding.measured == "the model raises RuntimeError: one row, please"
