"""Mixtures in recipes: one model for all objectives, and their shares."""

import pytest
from pydantic import ValidationError

from tercet.modeling import (
    TercetEncoderForPreTraining,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.pretraining.objectives.recipes import ObjectiveRecipe

from .conftest import read

MASKED = {"kind": "masked_language_modeling", "mlm_probability": 0.3, "final_mlm_probability": 0.1}
PAIRS = {"kind": "masked_language_modeling_with_next_sentence"}
CAUSAL = {"kind": "causal_language_modeling"}


def mixture(*parts, shares=(3, 1)) -> ObjectiveRecipe:
    objectives = [{"share": share, "objective": part} for share, part in zip(shares, parts, strict=True)]
    return read("mixture", objectives=objectives)


def test_shares_sum_to_one():
    assert mixture({"kind": "span_corruption"}, {"kind": "denoising"}).shares == [0.75, 0.25]


def test_the_model_has_the_heads_of_all_objectives():
    causal = {"kind": "fill_in_the_middle"}
    assert mixture(CAUSAL, causal).model_class is mixture(causal, CAUSAL).model_class
    recipe = mixture(MASKED, PAIRS)
    assert recipe.model_class is TercetEncoderForPreTraining


def test_another_model_learns_a_mixture_if_it_learns_all_objectives():
    translation, scheduled = {"kind": "translation"}, {"kind": "translation", "scheduled_sampling": {}}
    assert mixture(translation, scheduled).model_classes == (
        TercetSeq2SeqForConditionalGeneration,
        TercetRecurrentSeq2SeqForConditionalGeneration,
    )
    assert mixture(MASKED, PAIRS).model_classes == (TercetEncoderForPreTraining,)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((CAUSAL, MASKED), "objectives train different models, causal_language_modeling"),
        ((CAUSAL, {"kind": "hybrid_language_modeling"}), "hybrid_language_modeling is a mixture itself"),
        (({"kind": "translation"}, {"kind": "denoising"}), "of which only some read pairs of texts"),
        ((MASKED,), r"objectives has 1 entries: give two or more"),
    ],
)
def test_objectives_that_make_no_mixture_are_refused(parts, message):
    with pytest.raises(ValidationError, match=message):
        mixture(*parts, shares=(3, 1)[: len(parts)])


def test_a_tokenizer_has_the_special_tokens_of_all_objectives():
    found = mixture({"kind": "mixture_of_denoisers"}, {"kind": "span_corruption"})
    assert (found.special_tokens, found.num_sentinels) == (("[R]", "[S]", "[X]"), 100)
    found = mixture({"kind": "causal_language_modeling"}, {"kind": "fill_in_the_middle"})
    assert found.special_tokens == ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")


def test_costs_are_averaged_by_the_shares():
    parts = {"kind": "span_corruption"}, {"kind": "denoising"}
    whole = mixture(*parts).full_sequence(64)
    one, two = (mixture(part, part).full_sequence(64) for part in parts)
    for name in ("read", "written", "targets"):
        expected = 0.75 * getattr(one, name) + 0.25 * getattr(two, name)
        assert getattr(whole, name) == pytest.approx(expected, abs=0.5)
