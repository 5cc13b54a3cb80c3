"""Ablations: what a run is trained and judged with, and what is kept of it."""


def test_a_run_is_judged_by_the_bases_recipe_and_kept_without_its_folder(text, tmp_path, module, monkeypatch):
    ablations, switches = module("ablations"), module("switches")
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
