"""Ablations: what a run is trained and judged with, and what is kept and shown of it."""

import pytest


def test_a_run_is_judged_by_the_bases_recipe_and_kept_without_its_folder(text, tmp_path, module, monkeypatch):
    ablations, switches = module("ablations"), module("ablations_switches")
    called = []

    def pretend(conditions, function, recipe, judge, term):
        called.append((recipe, judge))
        recipe.folder.mkdir(parents=True)
        return {"loss": 4.0}

    monkeypatch.setattr(ablations, "in_fresh_process", pretend)
    options = ablations.parse(["--data", str(text), "--folder", str(tmp_path / "cells")])
    changes = ("training.stages=[{steps: HALF, sequence_length: 64}]", "objective.z_loss=1.0e-4")
    base, switch = switches.BASES["decoder"], switches.Switch("both", changes)
    conditions = ablations.Conditions(1)
    runs = [ablations.train_once(base, switch, 10, 0, conditions, options) for _ in range(2)]
    assert runs == [{"loss": 4.0}] * 2
    ((recipe, judge),) = called
    assert recipe.training.stages[0].steps == 5
    assert (recipe.objective.z_loss, judge.objective.z_loss) == (1e-4, 0)
    assert not recipe.folder.exists()
    assert (recipe.folder.parent / "result.json").exists()


@pytest.mark.parametrize(
    ("is_timed", "expected"),
    [
        (True, "| EMA | `training.ema_decay=0.99` | 1,000 | 4.500 (-0.100) | 1.10 | 4.550 (-0.050) |"),
        (False, "| EMA | `training.ema_decay=0.99` | 1,000 | 4.500 (-0.100) |"),
    ],
)
def test_times_of_a_busy_machine_are_left_out(module, is_timed, expected):
    ablations, switches = module("ablations"), module("ablations_switches")
    runs = [{"loss": loss, "seconds": seconds, "steps": 10, "tokens": 80, "parameters": 1000}
            for loss, seconds in ((4.6, 10.0), (4.5, 11.0), (4.55, 10.0))]  # fmt: skip
    base = ablations.row(switches.Switch("base", ()), runs[:1], runs[:1], runs[:1])
    switch = switches.Switch("EMA", ("training.ema_decay=0.99",))
    row = ablations.row(switch, runs[1:2], runs[2:], runs[:1])
    assert ablations.line_of(row, base, is_timed=is_timed) == expected
