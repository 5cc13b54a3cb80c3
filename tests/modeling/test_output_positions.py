"""`output_positions`: the last layer computes the states that are needed, and no others."""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqModel,
)
from tercet.modeling.heads.losses import IGNORE

from .conftest import TASKS, build_architecture, examples_for

CLOSE = {"rtol": 1e-4, "atol": 2e-5}


@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
@torch.no_grad()
def test_output_positions_have_the_states_that_they_have_among_all(member, variant, layout, builder, batch):
    model = builder(member, variant).model
    ids, mask = batch.padded()
    inputs = batch.packed() if layout == "packed" else {"input_ids": ids, "attention_mask": mask}
    positions = torch.tensor([0, 3, 4, 11, 12, 20])
    everything = model(**inputs).last_hidden_state.flatten(0, 1)
    assert_close(
        model(**inputs, output_positions=positions).last_hidden_state, everything[positions][None], **CLOSE
    )


@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_output_positions_are_found_where_pads_are_removed(member, builder, batch):
    """Training removes pads, whose states are zeros."""
    model, (ids, mask) = builder(member).model.train(), batch.padded("left")
    positions = torch.arange(ids.numel())
    inputs = {"input_ids": ids, "attention_mask": mask} | (
        {"use_cache": False} if member == "decoder" else {}
    )
    everything = model(**inputs).last_hidden_state.flatten(0, 1)
    found = model(**inputs, output_positions=positions).last_hidden_state
    assert_close(found[0], everything, **CLOSE)
    assert not found[0, mask.flatten() == 0].any()


PREDICT_TOKENS = [
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
]


def few_targets(architecture) -> dict:
    """Some texts, with a label in three."""
    inputs = examples_for(architecture)
    is_target = torch.arange(inputs["labels"].numel()).view_as(inputs["labels"]) % 3 == 1
    return inputs | {"labels": inputs["labels"].masked_fill(~is_target, IGNORE)}


@pytest.mark.parametrize("architecture", PREDICT_TOKENS, ids=lambda architecture: architecture.__name__)
def test_training_computes_the_last_layer_where_it_is_read(architecture):
    """Loss and gradients are those of all states, which evaluation computes."""
    model, inputs = build_architecture(architecture), few_targets(architecture)
    computed = []
    last = model.model.layers[-1].feed_forward
    last.register_forward_hook(lambda module, arguments, output: computed.append(output.shape[:2].numel()))
    results = []
    for is_training in (False, True):
        model.train(is_training).zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        results.append((loss.detach(), {name: each.grad for name, each in model.named_parameters()}))
    assert_close(*results, **CLOSE)
    is_target = inputs["labels"] != IGNORE
    is_target[:, 0] &= "Encoder" in architecture.__name__  # nothing precedes a decoder's first token
    num_first = len(is_target) * (architecture is TercetEncoderForPreTraining)
    assert computed == [is_target.numel(), num_first + int(is_target.sum())]


@pytest.mark.parametrize(
    "architecture",
    [*PREDICT_TOKENS, TercetSeq2SeqForConditionalGeneration],
    ids=lambda architecture: architecture.__name__,
)
def test_named_positions_have_their_logits_and_their_loss(architecture):
    """Positions without a target count nothing."""
    model, inputs = build_architecture(architecture), examples_for(architecture)
    if architecture is TercetSeq2SeqForConditionalGeneration:
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    positions = torch.tensor([1, 2, 5, 9, 11])
    is_named = torch.zeros(inputs["labels"].numel(), dtype=torch.bool)
    is_named[positions + (architecture is TercetDecoderForCausalLM)] = True
    labels = inputs["labels"].masked_fill(~is_named.view_as(inputs["labels"]), IGNORE)
    everything = model(**inputs | {"labels": labels})
    found = model(**inputs, output_positions=positions)
    logits = "prediction_logits" if architecture is TercetEncoderForPreTraining else "logits"
    assert_close(found[logits][0], everything[logits].flatten(0, 1)[positions], **CLOSE)
    assert_close(found.loss, everything.loss, **CLOSE)


OF_ALL_STATES = [
    *TASKS,
    TercetSeq2SeqModel,
]


@pytest.mark.parametrize("architecture", OF_ALL_STATES, ids=lambda architecture: architecture.__name__)
def test_models_that_need_all_states_refuse_output_positions(architecture):
    inputs = examples_for(architecture)
    with pytest.raises(
        ValueError,
        match=r"output_positions are given to .*, which needs all hidden states: leave them out",
    ):
        build_architecture(architecture)(**inputs, output_positions=torch.tensor([0, 3]))


def test_a_decoder_beside_an_encoder_refuses_output_positions(builder):
    model = builder("seq2seq").model.decoder
    ids, source = torch.ones(2, 3, dtype=torch.long), torch.randn(2, 4, 32)
    with pytest.raises(ValueError, match="output_positions are given to a stack that reads an encoder"):
        model(ids, encoder_hidden_states=source, output_positions=torch.tensor([0]))
