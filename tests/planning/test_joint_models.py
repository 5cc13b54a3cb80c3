"""Plans of models that learn together: what all of them cost equals what training counts and keeps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from tercet.objectives.base_recipe import ObjectiveContext, Trainable
from tercet.objectives.recipes import SingleObjectiveRecipe
from tercet.objectives.streams import two_streams
from tercet.planning.machines import PlanRecipe
from tercet.planning.model_costs import build_planned_model, count, count_flops, trace_parts
from tercet.planning.plan import plan_run
from tercet.pretraining.model import build_model
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.training.objective import INDEX, Batch, Objective
from tercet.training.packing import sequence_lengths

from ..pretraining.conftest import unread_recipe
from ..word_level import SIGNS
from .counting import flops_of_sequence
from .test_model_costs import SIZES, WORDS, kept_in_training, tokenizer  # noqa: F401

PRESETS = {"replaced_token_detection": "electra-small", "sentence_denoising": "bert-base"}
SIZE = 8
LENGTH = 64


def recipe_of(kind: str) -> PretrainingRecipe:
    """Make a recipe with a small model and the vocabulary of the tokenizer."""
    changes = {
        "tokenizer": {"vocab_size": len(WORDS) + 20},
        "objective": {"kind": kind} | ({"pooling": "first"} if kind == "sentence_denoising" else {}),
        "training": {"steps": 1, "tokens_per_step": 4 * LENGTH},
    }
    return unread_recipe(kind, {"preset": PRESETS[kind], "overrides": SIZES}, LENGTH, **changes)


def full_batch(kind: str, tokenizer, objective: Objective, size: int) -> Batch:  # noqa: F811
    """Make a batch of sequences of full length."""
    rng = np.random.default_rng(0)
    texts = rng.integers(len(SIGNS), len(WORDS), (size, LENGTH))
    if kind == "replaced_token_detection":
        examples = [{INDEX: number, "input_ids": text} for number, text in enumerate(texts)]
        return objective.collate(examples, 0)
    whole = TypeAdapter(SingleObjectiveRecipe).validate_python({"kind": kind}).full_sequence(LENGTH)
    return two_streams(list(texts[:, : whole.read]), list(texts[:, : whole.written]), 1)


def prepare(kind: str, tokenizer, size: int) -> tuple[Trainable, Objective, Batch]:  # noqa: F811
    """Build what is trained, its objective, and a batch."""
    recipe = recipe_of(kind)
    objective = recipe.objective.build(ObjectiveContext(tokenizer, LENGTH))
    return build_model(recipe, tokenizer).train(), objective, full_batch(kind, tokenizer, objective, size)


@pytest.mark.parametrize("kind", PRESETS)
def test_parameters_are_those_of_the_models_that_train(kind, tokenizer):  # noqa: F811
    recipe = recipe_of(kind)
    model = build_model(recipe, tokenizer)
    assert count([build_planned_model(recipe)]) == sum(p.numel() for p in model.parameters())
    parts = [count([part]) for part, _ in recipe.objective.parts(model, LENGTH)]
    assert max(parts) <= count([model]) < sum(parts)  # they share weights


@pytest.mark.parametrize("kind", PRESETS)
def test_operations_are_those_that_training_counts(kind, tokenizer):  # noqa: F811
    model, objective, batch = prepare(kind, tokenizer, SIZE)
    counted = flops_of_sequence(model, objective, batch, SIZE, int(sequence_lengths(batch).sum()))
    recipe = recipe_of(kind).objective
    *others, (last, sequence) = recipe.parts(build_planned_model(recipe_of(kind)), LENGTH)
    if kind == "replaced_token_detection":  # how many tokens are masked is random
        masked = int(objective.targets(batch)["mlm"]) / SIZE
        sequence = replace(sequence, targets=masked * 4 / 3, states=masked)
    planned = sum(count_flops(*part) for part in [*others, (last, sequence)])
    assert planned == pytest.approx(counted, rel=1e-9)


@pytest.mark.parametrize("kind", PRESETS)
def test_activations_are_those_that_training_keeps(kind, tokenizer):  # noqa: F811
    """Of the stacks, within 10 %: see the same test of single models."""
    four, eight = (kept_in_training(*prepare(kind, tokenizer, size), "fp32") for size in (4, 8))
    parts = recipe_of(kind).objective.parts(build_planned_model(recipe_of(kind)), LENGTH)
    planned = trace_parts(parts, precision="fp32", is_cpu=True)
    assert planned.per_sequence == pytest.approx((eight - four) / 4, rel=0.1)


@pytest.mark.parametrize("kind", PRESETS)
def test_a_plan_counts_all_models(kind):
    recipe = recipe_of(kind)
    plan = plan_run(recipe, PlanRecipe(device="cpu"))
    model = build_planned_model(recipe)
    parts = recipe.objective.parts(model, LENGTH)
    assert plan.parameters == count([model])
    assert plan.stages[-1].flops_per_sequence == sum(count_flops(*part) for part in parts)
    assert plan.stages[-1].flops_per_sequence > max(count_flops(*part) for part in parts)
    assert plan.vocab_size == len(WORDS) + 20
    assert all(parameter.device == torch.device("meta") for parameter in model.parameters())
