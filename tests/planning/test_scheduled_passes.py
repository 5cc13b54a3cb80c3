"""What a plan says of scheduled sampling is what training counts, alone and in a mixture of objectives."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pydantic import TypeAdapter

from tercet.objectives.base_recipe import ObjectiveContext
from tercet.objectives.mixture import ObjectiveRecipe
from tercet.objectives.translation import DRAWS, ScheduledSamplingRecipe
from tercet.planning.planned_stages import flops_of
from tercet.pretraining.model import build_model
from tercet.training.batches import Part
from tercet.training.objective import COMPONENT, INDEX

from ..pretraining.test_model import recipe_of, tokenizer  # noqa: F401
from .counting import flops_of_sequence

LENGTH, SIZE = 24, 40
SAMPLING = {"final_probability": 0.6, "passes": 3}
FORCED = {"kind": "translation"}
SAMPLED = FORCED | {"scheduled_sampling": SAMPLING}
MIXTURE = {
    "kind": "mixture",
    "objectives": [{"share": 3, "objective": FORCED}, {"share": 1, "objective": SAMPLED}],
}


@cache
def pairs(size: int = SIZE) -> list[dict]:
    """Make pairs of full length."""
    rng = np.random.default_rng(0)
    read, written = rng.integers(2, 30, (2, size, LENGTH))
    return [
        {INDEX: number, "input_ids": each, "labels": other}
        for number, (each, other) in enumerate(zip(read, written, strict=True))
    ]


def count_halfway(recipe, tokenizer) -> tuple[float, float]:  # noqa: F811
    """Count the operations for each pair in the middle of a run, and the positions that are predicted."""
    model = build_model(recipe, tokenizer)
    objective = recipe.objective.build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=1)).at(0.5)
    shares = getattr(recipe.objective, "shares", None)
    examples = pairs()
    if shares is not None:
        edge = round(shares[0] * SIZE)
        examples = [{**each, COMPONENT: int(number >= edge)} for number, each in enumerate(examples)]
    batches = objective.collate_parts(examples, 0)
    predicted = sum(int((batch[DRAWS] >= 0).sum()) for batch in batches if DRAWS in batch) / SIZE
    sizes = [len(batch["cu_seq_lens_q"]) - 1 for batch in batches]
    parts = tuple(
        Part(batch, [0, size], batch.pop(COMPONENT, None)) for batch, size in zip(batches, sizes, strict=True)
    )
    return flops_of_sequence(model, objective, parts, SIZE, SIZE * 2 * LENGTH), predicted


@pytest.mark.parametrize("objective", [SAMPLED, MIXTURE], ids=["alone", "in a mixture"])
def test_operations_are_those_that_training_counts(objective, tokenizer):  # noqa: F811
    parsed = TypeAdapter(ObjectiveRecipe).validate_python(objective)
    recipe = replace(recipe_of("seq2seq-tiny", "translation"), objective=parsed)
    counted, predicted = count_halfway(recipe, tokenizer)
    planned = recipe.objective.full_sequence(LENGTH)
    trials = SIZE * (LENGTH - 1) / (1 if objective is SAMPLED else 4)
    chance = 0.3
    share = predicted * SIZE / trials
    assert abs(share - chance) < 3 * (chance * (1 - chance) / trials) ** 0.5
    assert planned.predictions == pytest.approx(3 * chance * trials / SIZE)
    # How many positions are drawn is random, and nothing else.
    found = replace(planned, predictions=3 * predicted)
    model = build_model(recipe, tokenizer)
    assert flops_of(model, found) == pytest.approx(counted, rel=1e-9)
    forced = replace(planned, passes=0, predictions=0)
    assert flops_of(model, found) > 1.15 * flops_of(model, forced)


def test_no_more_passes_are_planned_than_a_target_has_tokens():
    recipe = ScheduledSamplingRecipe(passes=100)
    assert [recipe.count_passes(length) for length in (64, 1, 200)] == [63, 0, 100]
    assert ScheduledSamplingRecipe(final_probability=0.0, passes=3).count_passes(64) == 0
