"""Exposure curves are what a loop over positions says, and a model without mistakes has no gap."""

import numpy as np
import pytest
import torch

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.pretraining.exposure_bias import Continuation, generator_of, measure_exposure_bias

SIZES = {
    "vocab_size": 12,
    "hidden_size": 16,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "eos_token_id": None,
}
LAYERS = {"intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
MODELS = {
    "seq2seq": lambda: TercetSeq2SeqForConditionalGeneration(TercetSeq2SeqConfig(**SIZES, **LAYERS)),
    "recurrent": lambda: TercetRecurrentSeq2SeqForConditionalGeneration(
        TercetRecurrentSeq2SeqConfig(**SIZES)
    ),
    "decoder": lambda: TercetDecoderForCausalLM(TercetDecoderConfig(**SIZES, **LAYERS)),
}
LENGTHS = [4, 1, 6, 3]


def model_of(member: str):
    torch.manual_seed(0)
    return MODELS[member]().eval()


def rows(lengths, seed: int) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.integers(1, 12, length) for length in lengths]


def next_token(model, source: np.ndarray, begun: list[int]) -> int:
    """Predict what follows one beginning. The definition."""
    if model.config.is_encoder_decoder:
        read = [model.config.decoder_start_token_id, *begun]
        inputs = {"input_ids": torch.tensor(source)[None], "decoder_input_ids": torch.tensor([read])}
    else:
        inputs = {"input_ids": torch.tensor([*source.tolist(), *begun])[None]}
    return int(model(**inputs).logits[0, -1].argmax())


@pytest.mark.parametrize("member", MODELS)
@torch.no_grad()
def test_curves_are_what_a_loop_over_positions_says(member):
    model, sources, targets = model_of(member), rows([5] * 4, 1), rows(LENGTHS, 2)
    found = measure_exposure_bias(generator_of(model, 0), sources, targets, batch_size=3)
    truth, own = np.full((4, 6), np.nan), np.full((4, 6), np.nan)
    anywhere = np.full((4, 6), np.nan)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        written: list[int] = []
        for place, right in enumerate(target.tolist()):
            truth[number, place] = next_token(model, source, target[:place].tolist()) == right
            written.append(next_token(model, source, written))
            own[number, place] = written[-1] == right
            anywhere[number, place] = written[-1] in target
    assert found.counts.tolist() == [4, 3, 3, 2, 1, 1]
    np.testing.assert_allclose(found.behind_truth, np.nanmean(truth, 0))
    np.testing.assert_allclose(found.behind_own, np.nanmean(own, 0))
    np.testing.assert_allclose(found.in_reference_own, np.nanmean(anywhere, 0))
    assert found.gap == pytest.approx((np.nansum(truth) - np.nansum(own)) / sum(LENGTHS))
    assert found.behind_truth[0] == found.behind_own[0]  # nothing is begun there


@pytest.mark.parametrize("member", MODELS)
@torch.no_grad()
def test_who_makes_no_mistakes_has_no_gap(member):
    model, sources = model_of(member), rows([5] * 4, 1)
    generator = generator_of(model, 0)
    targets = [
        written[:length] for written, length in zip(generator.behind_own(sources, 6), LENGTHS, strict=True)
    ]
    found = measure_exposure_bias(generator, sources, targets)
    assert found.behind_truth.tolist() == found.behind_own.tolist() == [1.0] * 6
    assert found.gap == found.reference_gap == 0
    assert found.interval == (0, 0)


def test_what_cannot_be_measured_is_refused():
    generator = generator_of(model_of("decoder"), 0)
    assert isinstance(generator, Continuation)
    with pytest.raises(ValueError, match="the beginnings have from 2 to 3 tokens"):
        measure_exposure_bias(generator, rows([2, 3], 0), rows([2, 2], 0))
    with pytest.raises(ValueError, match="2 sources and 1 targets, the shortest of 2 tokens"):
        measure_exposure_bias(generator, rows([2, 2], 0), rows([2], 0))
