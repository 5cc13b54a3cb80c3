"""Which weights a run hands over, and what is refused."""

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import save_file

from tercet.training.checkpoints.final_weights import FILES, each_kind, folder_of, scores_of

FIVE = {"steps": 50, "average_checkpoints": 5, "checkpoint_every": 10, "keep_checkpoints": 5}
EMA = {"ema_decay": 0.99}


@pytest.mark.parametrize(
    ("settings", "kinds", "judged"),
    [
        ({}, ["last"], "last"),
        (EMA, ["last", "ema"], "ema"),
        (EMA | {"final_weights": "last"}, ["ema", "last"], "last"),
        (FIVE, ["last", "mean"], "last"),
        (FIVE | EMA | {"final_weights": "mean"}, ["last", "ema", "mean"], "last"),
        (FIVE | EMA | {"final_weights": "ema"}, ["last", "mean", "ema"], "ema"),
    ],
)
def test_the_average_is_final_unless_the_recipe_says_otherwise(toys, settings, kinds, judged):
    recipe = toys.recipe(**settings)
    assert recipe.kinds_of_weights == kinds
    assert recipe.final_kind == kinds[-1]
    assert recipe.judged_kind == judged
    assert [folder_of("model", kind, recipe.final_kind) for kind in kinds] == [
        *(f"model-{kind}" for kind in kinds[:-1]),
        "model",
    ]


def test_scores_are_told_apart_by_their_prefix():
    scores = {"loss": 3.0, "token/loss": 3.0, "ema/loss": 2.0, "mean/token/loss": 1.0}
    assert scores_of("last", scores) == {"loss": 3.0, "token/loss": 3.0}
    assert scores_of("ema", scores) == {"loss": 2.0}
    assert scores_of("mean", scores) == {"token/loss": 1.0}


@pytest.mark.parametrize(
    ("averages", "final"),
    [
        *((FIVE, final) for final in ("last", "mean")),
        *((EMA, final) for final in ("last", "ema")),
        *((FIVE | EMA, final) for final in FILES),
    ],
)
def test_a_model_takes_every_kind_in_turn_and_ends_with_the_final_one(averages, final, toys, tmp_path):
    model, recipe = toys.Model(), toys.recipe(**averages, final_weights=final)
    numbers = {kind: float(number) for number, kind in enumerate(FILES)}
    for kind, file in FILES.items():
        unique = {name: weight for name, weight in model.state_dict().items() if name != "tokens.weight"}
        save_file({name: torch.full_like(w, numbers[kind]) for name, w in unique.items()}, tmp_path / file)
    found = {}
    for kind, weights in each_kind(model, recipe.kinds_of_weights, tmp_path, Accelerator(cpu=True)):
        found[kind] = float(weights["tokens.weight"].mean())
    assert found == {kind: numbers[kind] for kind in recipe.kinds_of_weights}
    assert [*found][-1] == final
    assert torch.equal(model.hidden.weight, torch.full((16, 16), numbers[final]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"final_weights": "ema"},
            r"final_weights = ema, but there is no such average: set",
        ),
        (EMA | {"final_weights": "mean"}, r"final_weights = mean, .* set average_checkpoints"),
        (FIVE | EMA, r"are both set: say with final_weights"),
        ({"average_checkpoints": 2}, r"average_checkpoints = 2, but a run of 6 steps has 1 with .* = None"),
        (
            FIVE | {"checkpoint_every": 20},
            r"= 5, but a run of 50 steps has 3 with .* = 20",
        ),
        (FIVE | {"keep_checkpoints": 4}, r"average_checkpoints = 5, but keep_checkpoints = 4: keep"),
    ],
)
def test_averages_that_cannot_be_made_are_refused(toys, settings, message):
    with pytest.raises(ValueError, match=message):
        toys.recipe(**settings)
