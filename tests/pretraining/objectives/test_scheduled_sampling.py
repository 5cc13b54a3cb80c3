"""Scheduled sampling: where a decoder reads its own predictions, and what they are."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tercet import (
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.configs.recipe import parse_recipe
from tercet.data.steps.objective import IGNORE
from tercet.data.steps.packing import slice_sequences
from tercet.pretraining.objectives.translation import (
    DRAWS,
    NOISE,
    DecoderReading,
    ScheduledSamplingRecipe,
    Translation,
)
from tercet.training.token_objective import sample_tokens

START, END, VOCABULARY = 0, 1, 30
LENGTHS = [6, 1, 4, 9]
MODELS = {
    "transformer": lambda: TercetSeq2SeqForConditionalGeneration(
        TercetSeq2SeqConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, dropout=0.3, initializer_range=0.3,
        )
    ),
    "recurrent": lambda: TercetRecurrentSeq2SeqForConditionalGeneration(
        TercetRecurrentSeq2SeqConfig(
            vocab_size=VOCABULARY, hidden_size=32, dropout=0.3, initializer_range=1.0
        )
    ),
}  # fmt: skip
both_members = pytest.mark.parametrize("member", MODELS)


def examples() -> list[dict]:
    draw = np.random.default_rng(3)
    targets = [np.append(draw.integers(2, VOCABULARY, length), END) for length in LENGTHS]
    return [
        {"input_ids": draw.integers(2, VOCABULARY, 5), "labels": target, "index": index}
        for index, target in enumerate(targets)
    ]


def objective_at(progress: float, noise: float = 0.0, **fields) -> Translation:
    recipe = ScheduledSamplingRecipe(**fields)
    return Translation(START, 0.1, reading=DecoderReading(recipe, noise)).at(progress)


def batch_of(objective, seed: int = 0) -> dict:
    return objective.collate(examples(), seed)


def model_of(member):
    torch.manual_seed(0)
    return MODELS[member]().train()


def test_no_more_passes_are_made_than_a_target_has_tokens():
    recipe = ScheduledSamplingRecipe(passes=100)
    assert [recipe.count_passes(length) for length in (64, 1, 200)] == [63, 0, 100]
    assert ScheduledSamplingRecipe(final_probability=0.0, passes=3).count_passes(64) == 0


def test_a_probability_grows_to_its_end_as_the_papers_say():
    for schedule in ("linear", "exponential", "inverse_sigmoid"):
        recipe = ScheduledSamplingRecipe(schedule=schedule, final_probability=0.6)
        values = [recipe.probability(progress) for progress in np.linspace(0, 1, 11)]
        assert values == sorted(values)
        assert values[-1] == pytest.approx(0.6)
    linear, exponential, sigmoid = (
        ScheduledSamplingRecipe(schedule=each, final_probability=0.75)
        for each in ("linear", "exponential", "inverse_sigmoid")
    )
    assert linear.probability(0.5) == pytest.approx(0.375)
    assert exponential.probability(0.5) == pytest.approx(0.5)  # two halvings of what is true
    assert sigmoid.probability(0) == pytest.approx(1 / 21)


def test_positions_are_drawn_with_the_probability_of_their_step():
    objective, counts = objective_at(0.5, final_probability=0.6), []
    for seed in range(200):
        draws = batch_of(objective, seed)[DRAWS][0]
        firsts = batch_of(objective, seed)["cu_seq_lens_q"][:-1]
        assert (draws[firsts] == -1).all()
        counts.append(int((draws >= 0).sum()))
    trials = 200 * sum(LENGTHS)
    assert abs(sum(counts) / trials - 0.3) < 3 * (0.3 * 0.7 / trials) ** 0.5


@both_members
def test_without_probability_it_is_teacher_forcing_bit_for_bit(member):
    forced, sampled = Translation(START, 0.1), objective_at(1.0, final_probability=0.0)
    one, other = batch_of(forced), batch_of(sampled)
    assert one.keys() == other.keys()
    results = []
    for objective, batch in ((forced, one), (sampled, other)):
        model = model_of(member)
        torch.manual_seed(5)
        loss = objective.losses(model, batch)["translation"]
        loss.backward()
        results.append([loss, *(each.grad for each in model.parameters() if each.grad is not None)])
    assert_close(*results, rtol=0, atol=0)


def step_by_step(model, batch, choice) -> torch.Tensor:
    """Replace tokens one after another, each by what the model predicts behind what it has read.

    The definition: Bengio et al., 2015, section 2.4.
    """
    sources, targets = batch["cu_seq_lens_k"].tolist(), batch["cu_seq_lens_q"].tolist()
    read = batch["decoder_input_ids"].clone()
    model.eval()
    for number, (first, last) in enumerate(pairwise(targets)):
        source = batch["input_ids"][:, sources[number] : sources[number + 1]]
        for place in range(first, last):
            number_drawn = batch[DRAWS][0, place]
            if number_drawn >= 0:
                logits = model(input_ids=source, decoder_input_ids=read[:, first:place]).logits[:, -1]
                read[0, place] = (
                    logits.argmax() if choice == "best" else sample_tokens(logits, number_drawn[None])[0]
                )
    model.train()
    return read


@both_members
@pytest.mark.parametrize("choice", ["best", "sampled"])
@torch.no_grad()
def test_many_passes_are_the_algorithm_of_bengio(member, choice):
    model = model_of(member)
    objective = objective_at(1.0, final_probability=0.7, choice=choice, passes=max(LENGTHS) + 1)
    batch = batch_of(objective)
    found = objective.reading.apply(model, batch)["decoder_input_ids"]
    expected = step_by_step(model, batch, choice)
    assert (expected != batch["decoder_input_ids"]).sum() > 5
    assert_close(found, expected)


@both_members
@torch.no_grad()
def test_no_pass_is_made_that_changes_nothing(member):
    model, counts, found = model_of(member), [], []
    longest = max(LENGTHS) + 1
    for passes in (longest - 2, longest - 1, longest + 50):
        objective = objective_at(1.0, final_probability=0.9, choice="best", passes=passes)
        calls = []
        handle = model.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        found.append(objective.reading.apply(model, batch_of(objective))["decoder_input_ids"])
        handle.remove()
        counts.append(len(calls))
    assert counts == [longest - 2, longest - 1, longest - 1]
    assert_close(found[1], found[2])


@both_members
@torch.no_grad()
def test_one_pass_predicts_behind_the_true_tokens(member):
    model = model_of(member)
    objective = objective_at(1.0, final_probability=0.7, choice="best")
    batch = batch_of(objective)
    read = objective.reading.apply(model, batch)["decoder_input_ids"]
    plain = {name: value for name, value in batch.items() if name not in (DRAWS, "labels")}
    predicted = model.eval()(**plain).logits.argmax(-1).roll(1, dims=1)
    assert_close(read, torch.where(batch[DRAWS] >= 0, predicted, batch["decoder_input_ids"]))


@both_members
def test_predictions_are_made_without_dropout_and_leave_the_model_in_training(member):
    model, objective = model_of(member), objective_at(1.0, final_probability=0.7)
    batch = batch_of(objective)
    one, other = (objective.reading.apply(model, batch)["decoder_input_ids"] for _ in range(2))
    assert_close(one, other)
    assert model.training


@both_members
def test_evaluation_reads_the_true_tokens(member):
    model, objective = model_of(member).eval(), objective_at(1.0, noise=0.5, final_probability=0.7)
    forced = Translation(START, 0.1)
    assert {DRAWS, NOISE} <= batch_of(objective).keys()
    assert_close(objective.scores(model, batch_of(objective)), forced.scores(model, batch_of(forced)))


@both_members
def test_micro_batches_add_up_to_the_step(member):
    model, objective = model_of(member).eval(), objective_at(1.0, noise=0.2, final_probability=0.6, passes=3)
    batch = batch_of(objective)
    whole = objective.losses(model, batch)["translation"]
    parts = [slice_sequences(batch, first, first + 2) for first in (0, 2)]
    assert_close(sum(objective.losses(model, part)["translation"] for part in parts), whole)


def test_noise_is_drawn_from_the_targets_of_the_batch():
    objective = Translation(START, reading=DecoderReading(None, 0.5))
    batch = batch_of(objective)
    true, noise = batch["decoder_input_ids"], batch[NOISE]
    read = objective.reading.apply(torch.nn.Identity(), batch)["decoder_input_ids"]
    assert_close(read, torch.where(noise == IGNORE, true, noise))
    assert set(noise[noise != IGNORE].tolist()) <= set(true[true != START].tolist())
    assert (read[0, batch["cu_seq_lens_q"][:-1].long()] == START).all()
    assert (noise != IGNORE).any()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"final_probability": 1.0}, "less than 1"),
        ({"schedule": "inverse_sigmoid", "final_probability": 0.01}, "begins with 0.0476"),
        ({"schedule": "linear", "steepness": 30.0}, "steepness is 30.0, but linear schedules have none"),
        ({"passes": 0}, "greater than or equal to 1"),
    ],
)
def test_impossible_values_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        parse_recipe(ScheduledSamplingRecipe, fields)
