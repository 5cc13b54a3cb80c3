"""Learning rates against values worked out by hand."""

import math
from typing import Any

import pytest
import torch

from tercet.configs.recipe import load_recipe, recipe_folders
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.training.optimizers.schedules import CURVES, build_schedule
from tercet.training.recipe import ScheduleRecipe, TrainingRecipe

STEPS, WIDTH = 10, 64


def rates(steps: int = STEPS, base: float = 1.0, **fields) -> list[float]:
    """The rates with which updates 1 to `steps` move the weights."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    schedule = build_schedule(optimizer, ScheduleRecipe(**fields), steps=steps, width=WIDTH)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_noam_peaks_at_the_end_of_its_warmup_and_then_halves_when_steps_quadruple():
    found = rates(steps=400, kind="noam", warmup_steps=100)
    assert found.index(max(found)) + 1 == 100
    assert max(found) == pytest.approx((WIDTH * 100) ** -0.5)
    assert found[400 - 1] / found[100 - 1] == pytest.approx(1 / 2)
    assert found[25 - 1] / found[100 - 1] == pytest.approx(1 / 4)
    assert found[0] == pytest.approx(64**-0.5 * 1 * 100**-1.5)


def test_noam_is_scaled_by_its_factor():
    plain, twice = (rates(kind="noam", warmup_steps=4, factor=factor) for factor in (1.0, 2.0))
    assert twice == pytest.approx([2 * rate for rate in plain])


def test_inverse_square_root_has_noams_shape_and_the_optimizers_rate():
    noam = rates(kind="noam", warmup_steps=4)
    found = rates(kind="inverse_square_root", warmup_steps=4, base=3.0)
    assert max(found) == 3.0
    assert found == pytest.approx([3.0 * rate / max(noam) for rate in noam])


DECAY = {"kind": "warmup_stable_decay"}
EXPECTED = {
    "linear falls by equal steps to one step above its end": (
        {"kind": "linear", "warmup_steps": 2},
        [1 / 2, 1, 8 / 9, 7 / 9, 6 / 9, 5 / 9, 4 / 9, 3 / 9, 2 / 9, 1 / 9],
    ),
    "constant stays after its warmup": (
        {"kind": "constant", "warmup_ratio": 0.4},
        [0.25, 0.5, 0.75, *[1] * 7],
    ),
    "a decay falls only in its last part": (
        DECAY | {"warmup_steps": 2, "decay_ratio": 0.3},
        [0.5, *[1] * 6, *(1 - math.sqrt(part / 4) for part in (1, 2, 3))],
    ),
    "a decay never falls before its warmup is over": (
        DECAY | {"warmup_steps": 8, "decay_ratio": 0.9, "final_ratio": 0.25},
        [*(n / 8 for n in range(1, 9)), *(0.25 + 0.75 * (1 - math.sqrt(part / 3)) for part in (1, 2))],
    ),
    "a linear decay falls by equal steps in the last fifth": (
        DECAY | {"steps": 20, "warmup_steps": 2, "decay_shape": "linear"},
        [0.5, *[1] * 15, 4 / 5, 3 / 5, 2 / 5, 1 / 5],
    ),
    "a final ratio lifts the end": (
        {"kind": "linear", "warmup_steps": 0, "final_ratio": 0.5},
        [1 - 0.5 * part / 11 for part in range(1, 11)],
    ),
    "a cosine is half way down in the middle": (
        {"kind": "cosine", "warmup_steps": 0},
        [(1 + math.cos(math.pi * part / 11)) / 2 for part in range(1, 11)],
    ),
}


@pytest.mark.parametrize("law", EXPECTED)
def test_rates_are_those_worked_out_by_hand(law):
    fields, expected = EXPECTED[law]
    assert rates(**fields) == pytest.approx(expected)


def test_a_linear_decay_of_everything_is_the_linear_schedule():
    decay = rates(kind="warmup_stable_decay", warmup_steps=3, decay_ratio=1.0, decay_shape="linear")
    assert decay == rates(kind="linear", warmup_steps=3)


@pytest.mark.parametrize(
    "kind", ["linear", "cosine", "constant", "inverse_square_root", "warmup_stable_decay"]
)
def test_every_update_moves_and_the_highest_factor_is_one(kind):
    found = rates(steps=50, kind=kind)
    assert min(found) > 0
    assert max(found) == pytest.approx(1.0)


def test_six_percent_warm_up_where_nothing_is_said():
    assert ScheduleRecipe().warmup_updates(1000) == 60


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"warmup_steps": 1, "warmup_ratio": 0.1}, "give only one"),
        (
            {"warmup_steps": 11},
            r"schedule\.warmup_steps = 11 exceeds steps = 10: set it to 1, say",
        ),
        ({"kind": "noam", "warmup_steps": 0}, "noam is infinite at the first step"),
        ({"kind": "inverse_square_root", "warmup_ratio": 0.0}, "infinite at the first step"),
        ({"kind": "cosine", "decay_shape": "linear"}, "= linear: the cosine schedule has a shape of its own"),
        (
            {"kind": "cosine", "decay_ratio": 0.5},
            r"^decay_ratio = 0\.5: the cosine schedule .*, or choose kind warmup",
        ),
        ({"kind": "linear", "factor": 3.0}, r"factor = 3\.0: the linear schedule .*, or choose kind noam"),
        ({"kind": "constant", "final_ratio": 0.3}, r"0\.3: the constant .* kind linear or cosine or warmup"),
        ({"kind": "noam", "final_ratio": 0.3}, r"final_ratio = 0\.3: the noam schedule"),
    ],
)
def test_an_impossible_warmup_or_shape_is_refused(fields, answer):
    with pytest.raises(ValueError, match=answer):
        TrainingRecipe(steps=10, schedule=ScheduleRecipe(**fields))


@pytest.mark.parametrize("kind", CURVES)
def test_the_defaults_of_unused_keys_are_no_choice(kind):
    """The recipe that a run leaves names every key."""
    defaults: Any = {"final_ratio": 0.0, "decay_ratio": 0.2, "decay_shape": "sqrt", "factor": 1.0}
    rates(kind=kind, warmup_steps=2, **defaults)


@pytest.mark.parametrize("steps", [1, 20, 10**6])
@pytest.mark.parametrize(
    "name", [name for name, folder in recipe_folders().items() if folder == "pretraining"]
)
def test_shipped_recipes_warm_up_in_any_number_of_steps(name, steps):
    schedule = load_recipe(PretrainingRecipe, name).training.schedule
    assert 0 <= schedule.warmup_updates(steps) <= steps // 5 + 1
