"""`output_positions`: the last layer computes the states that are needed, and no others."""

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling import (
    TercetEncoderForPreTraining,
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqModel,
)

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


OF_ALL_STATES = [
    *TASKS,
    TercetEncoderForPreTraining,
    TercetSeq2SeqModel,
    TercetSeq2SeqForConditionalGeneration,
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
