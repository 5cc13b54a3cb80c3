"""Rates that fall from the head down to the embeddings, in the models whose layers they are meant for."""

import pytest

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForSequenceClassification,
    TercetElmoForSequenceClassification,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForSequenceClassification,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.training.optimizers.optimizers import build_optimizer, decay_groups
from tercet.training.optimizers.schedules import build_schedule
from tercet.training.recipe import OptimizerRecipe, ScheduleRecipe

from ..small_elmo import small_config

SMALL = {
    "vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8,
    "num_hidden_layers": 3,
}  # fmt: skip
RATE, DECAY = 0.1, 0.5

MODELS = {
    "classifier": lambda: TercetEncoderForSequenceClassification(
        TercetEncoderConfig(**SMALL, embedding_size=4, position_embedding_type="learned", embedding_norm=True)
    ),
    "tied": lambda: TercetEncoderForMaskedLM(TercetEncoderConfig(**SMALL, head_bias=True)),
    "decoder": lambda: TercetDecoderForSequenceClassification(TercetDecoderConfig(**SMALL)),
    "elmo": lambda: TercetElmoForSequenceClassification(small_config(num_hidden_layers=3)),
    "two stacks": lambda: TercetSeq2SeqForConditionalGeneration(
        TercetSeq2SeqConfig(**SMALL, decoder_num_hidden_layers=2, position_embedding_type="relative_bias")
    ),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def build(model, layer_decay=DECAY):
    recipe = OptimizerRecipe(learning_rate=RATE, layer_decay=layer_decay, weight_decay=0.2)
    return build_optimizer(model, recipe)


def rates(model, optimizer):
    """The rate of every parameter, by its name."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}


def expected_rate(name):
    """Embeddings, three layers, what follows them."""
    if ".embeddings." in name or ".characters." in name:
        return RATE * DECAY**4
    if ".layers." in name:
        return RATE * DECAY ** (3 - int(name.split(".layers.")[1][0]))
    return RATE


def test_rates_fall_by_layer_from_the_head_to_the_embeddings(model):
    found = rates(model, build(model))
    assert found == pytest.approx({name: expected_rate(name) for name, _ in model.named_parameters()})
    assert set(found.values()) == {RATE * DECAY**depth for depth in range(5)}


def test_the_rate_that_is_logged_is_the_recipes(model):
    """Loops log the first group's."""
    assert build(model).param_groups[0]["lr"] == RATE


def test_no_parameter_is_lost_or_learned_twice_and_none_decays_otherwise(model):
    optimizer = build(model)
    learned = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(learned) == sorted(id(parameter) for parameter in model.parameters())
    decayed = {id(p) for g in optimizer.param_groups if g["weight_decay"] == 0.2 for p in g["params"]}
    assert decayed == {id(parameter) for parameter in decay_groups(model, 0.2)[0]["params"]}


def test_frozen_layers_take_no_rate_from_the_others():
    model = MODELS["classifier"]()
    before = rates(model, build(model))
    model.model.embeddings.requires_grad_(False)
    model.model.layers[:2].requires_grad_(False)
    after = rates(model, build(model))
    assert after == {name: rate for name, rate in before.items() if name in after}
    assert len(after) == sum(parameter.requires_grad for parameter in model.parameters())


def test_the_schedule_moves_all_rates_together(model):
    optimizer = build(model)
    schedule = build_schedule(optimizer, ScheduleRecipe(warmup_steps=2), steps=6, width=8)
    highest = {group["initial_lr"] for group in optimizer.param_groups}
    assert max(highest) / min(highest) == pytest.approx(DECAY**-4)
    factors = []
    for _ in range(6):
        (factor,) = {round(group["lr"] / group["initial_lr"], 9) for group in optimizer.param_groups}
        factors.append(factor)
        optimizer.step()
        schedule.step()
    assert max(factors) == 1.0
    assert len(set(factors)) > 4


def test_a_decay_of_one_gives_the_groups_that_there_were_before(model):
    optimizer = build(model, layer_decay=1.0)
    groups = decay_groups(model, 0.2)
    assert len(optimizer.param_groups) == len(groups) == 2
    for found, expected in zip(optimizer.param_groups, groups, strict=True):
        assert [id(p) for p in found["params"]] == [id(p) for p in expected["params"]]
        assert (found["weight_decay"], found["lr"]) == (expected["weight_decay"], RATE)


def test_without_layers_nothing_falls(toys):
    model = toys.Model()
    assert set(rates(model, build(model)).values()) == {RATE}
