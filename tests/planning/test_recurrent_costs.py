"""What a plan says of a recurrent translator is what training counts and keeps."""

import numpy as np
import pytest
import torch

from tercet.modeling.attention.scores import SCORES
from tercet.objectives.base_recipe import FullSequence, ObjectiveContext
from tercet.planning.model_costs import build_planned_model, count
from tercet.planning.planned_stages import flops_of, is_recurrent, kept_by, layers_of
from tercet.pretraining.model import build_model

from ..pretraining.test_model import recipe_of, tokenizer  # noqa: F401
from .counting import flops_of_sequence

READ, WRITTEN = 40, 30


def recurrent_recipe(**fields):
    return recipe_of("recurrent-mini", "translation", **{"hidden_size": 64, **fields})


def pairs() -> list[dict]:
    """Make three pairs of these lengths on average. Equal ones are oneDNN's, which counts nothing."""
    return [
        {"input_ids": np.arange(READ + read) % 30, "labels": np.arange(WRITTEN + written) % 30}
        for read, written in ((-1, 1), (0, 0), (1, -1))
    ]


@pytest.mark.parametrize("cell_type", ["lstm", "gru"])
@pytest.mark.parametrize("attention_score", [*SCORES, "none"])
def test_operations_are_those_that_training_counts(cell_type, attention_score, tokenizer):  # noqa: F811
    recipe = recurrent_recipe(cell_type=cell_type, attention_score=attention_score)
    model = build_model(recipe, tokenizer)
    objective = recipe.objective.build(ObjectiveContext(tokenizer, 64, decoder_start_id=1))
    batch = objective.collate(pairs(), 0)
    counted = flops_of_sequence(model, objective, batch, 3, 3 * (READ + WRITTEN))
    # Nothing is learned of the state before the first token, and pair scores are no products of matrices.
    assert flops_of(model, FullSequence(READ, WRITTEN, WRITTEN)) == pytest.approx(counted, rel=0.05)


def test_parameters_are_those_of_the_model_that_trains(tokenizer):  # noqa: F811
    recipe = recurrent_recipe()
    model = build_model(recipe, tokenizer)
    planned = build_planned_model(recurrent_recipe(vocab_size=model.config.vocab_size))
    assert is_recurrent(planned)
    assert count([planned]) == sum(parameter.numel() for parameter in model.parameters())
    assert len(layers_of(planned)) == 2 * model.config.num_hidden_layers


def test_what_is_kept_grows_with_the_length(tokenizer):  # noqa: F811
    model = build_model(recurrent_recipe(), tokenizer)
    state = torch.get_rng_state()
    short, long = (
        kept_by([(model, FullSequence(length, length, length))], precision="fp32", is_cpu=True)
        for length in (20, 40)
    )
    assert torch.equal(torch.get_rng_state(), state)
    outputs = 40 * 2 * 32 * 4 * torch.float32.itemsize  # of the layers' gates alone
    assert long.per_sequence > outputs
    assert 1.8 < long.per_sequence / short.per_sequence < 3
