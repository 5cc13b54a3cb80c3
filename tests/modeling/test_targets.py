"""One rule for labels: in every head, in training as in evaluation."""

from inspect import signature

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tercet.modeling import TercetEncoderForMaskedLM, TercetEncoderForSequenceClassification
from tercet.modeling.heads.losses import IGNORE, checked_shares

LABELS = ("labels", "next_sentence_label", "start_positions")


def learning(task_builder, architecture, examples):
    inputs = examples(architecture)
    names = [name for name in LABELS if name in inputs]
    if not names:
        pytest.skip("learns from no labels")
    return task_builder(architecture, num_labels=3), inputs, names


@pytest.mark.parametrize("is_training", [True, False])
def test_a_negative_label_other_than_ignore_is_refused(architecture, task_builder, examples, is_training):
    model, inputs, names = learning(task_builder, architecture, examples)
    for name in names:
        wrong = inputs[name].clone()
        wrong.view(-1)[1] = -1
        with pytest.raises(ValueError, match="hold -1: give -100"):
            model.train(is_training)(**inputs | {name: wrong})


@pytest.mark.parametrize("is_training", [True, False])
def test_a_label_behind_the_last_answer_is_refused(architecture, task_builder, examples, is_training):
    model, inputs, names = learning(task_builder, architecture, examples)
    for name in set(names) - {"start_positions"}:  # a position behind the end asks nothing
        wrong = inputs[name].clone()
        wrong.view(-1)[1] = 61
        with pytest.raises(ValueError, match="hold 61: give -100"):
            model.train(is_training)(**inputs | {name: wrong})


@pytest.mark.parametrize("is_training", [True, False])
def test_labels_of_four_bytes_teach_as_those_of_eight(architecture, task_builder, examples, is_training):
    model, inputs, names = learning(task_builder, architecture, examples)
    model.train(is_training)
    short = {name: value.int() for name, value in inputs.items() if "label" in name or "positions" in name}
    assert names
    assert short
    assert_close(model(**inputs | short).loss, model(**inputs).loss, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_labels_of_any_integer_type_name_one_of_several(dtype, task_builder, examples):
    inputs = examples(TercetEncoderForSequenceClassification)
    losses = []
    for labels in (inputs["labels"], inputs["labels"].to(dtype)):
        model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
        losses.append(model(**inputs | {"labels": labels}).loss)
        assert model.config.problem_type == "single_label_classification"
    assert_close(*losses, rtol=0, atol=0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("is_training", [True, False])
def test_pads_are_never_targets_whatever_their_labels_say(
    architecture, task_builder, examples, is_training, side
):
    model, inputs, _ = learning(task_builder, architecture, examples)
    if inputs.get("labels") is None or inputs["labels"].shape != inputs["input_ids"].shape:
        pytest.skip("has no labels of tokens")
    model.train(is_training)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1, :2] = 0
    inputs["attention_mask"] = mask if side == "left" else mask.flip(-1)
    if "decoder_input_ids" in signature(model.forward).parameters:
        inputs["decoder_input_ids"] = inputs["input_ids"].flip(0)  # otherwise labels are read, too
        inputs["decoder_attention_mask"] = inputs["attention_mask"]
    pads = inputs["attention_mask"] == 0
    losses = [
        model(**inputs | {"labels": inputs["labels"].masked_fill(pads, label)}).loss
        for label in (IGNORE, 0, 1)
    ]
    assert_close(losses[0], losses[1], rtol=0, atol=0)
    assert_close(losses[0], losses[2], rtol=0, atol=0)


@pytest.mark.parametrize("is_training", [True, False])
def test_labels_that_are_no_integers_are_refused(task_builder, examples, is_training):
    model, inputs, _ = learning(task_builder, TercetEncoderForMaskedLM, examples)
    with pytest.raises(ValueError, match=r"labels are torch\.float32"):
        model.train(is_training)(**inputs | {"labels": inputs["labels"].float()})


def test_multi_label_classification_refuses_what_is_no_share(task_builder, examples):
    inputs = examples(TercetEncoderForSequenceClassification)
    model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
    labels = torch.zeros(4, 3)
    labels[1, 1] = IGNORE
    with pytest.raises(ValueError, match=r"labels hold -100\.0"):
        model(**inputs | {"labels": labels})
    assert checked_shares(torch.tensor([0.0, 0.5, 1.0])).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("is_training", [False, True])
def test_labels_of_another_size_are_refused(architecture, is_training, task_builder, examples):
    model, inputs = task_builder(architecture, num_labels=3).train(is_training), examples(architecture)
    if "labels" in inputs:
        inputs["labels"] = F.pad(inputs["labels"], (0, 1))
        inputs |= {"decoder_input_ids": inputs["input_ids"]} if "Conditional" in architecture.__name__ else {}
        with pytest.raises(ValueError, match="labels have the size "):
            model(**inputs)


def test_sets_of_labels_as_integers_are_refused_with_a_remedy(task_builder, examples):
    """Their loss is that of single labels, as in transformers, which says the size of a batch is wrong."""
    model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
    inputs = examples(TercetEncoderForSequenceClassification) | {"labels": torch.eye(4, 3).long()}
    with pytest.raises(ValueError, match=r"size \(4, 3\): give \(4, 1\), or floats \(4, 3\) for sets"):
        model(**inputs)


@pytest.mark.parametrize("is_training", [False, True])
def test_pads_behind_a_cache_are_no_targets(is_training, builder, batch):
    model, (ids, mask) = builder("decoder").train(is_training), batch.padded()
    losses = []
    for labels in (ids, ids.masked_fill(mask == 0, IGNORE)):
        inputs = {"input_ids": ids[:, 2:], "attention_mask": mask, "labels": labels[:, 2:]}
        inputs["past_key_values"] = model(ids[:, :2], mask[:, :2], use_cache=True).past_key_values
        losses.append(model(**inputs).loss)
    assert_close(losses[0], losses[1], rtol=0, atol=0)
