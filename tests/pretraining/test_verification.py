"""The proof that a recipe's run can be resumed: it finds equality and inequality, and says which."""

import pytest
import torch

from tercet.__main__ import main
from tercet.pretraining import verification
from tercet.pretraining.verification import (
    COMPARED,
    WEIGHTS,
    Kill,
    Trial,
    Verification,
    differences,
    fingerprint,
    read_states,
    report,
    verify_resume,
)
from tercet.training.loop import MetricAccumulator


def record(step, **changes):
    same = dict.fromkeys(COMPARED, 0) | {
        "loss": 3.0 + step,
        "data": f"{step:08x}",
        "step": step,
        "seconds": step,
    }
    return same | changes


def trial(*changes, weight=1.0, kills=()):
    """A made-up run of six steps, some of which differ from what is usual."""
    records = [record(step) for step in range(1, 7)]
    for step, change in changes:
        records[step - 1] |= change
    return Trial(
        records, {WEIGHTS: {"a": torch.tensor([weight, 2.0])}, "random-0.pt": {"b": (1, [2])}}, kills
    )


@pytest.mark.parametrize(
    "other",
    [
        trial((3, {"loss": 6.0000001})),
        trial((6, {"data": "cafe"})),
        trial((2, {"learning_rate": 1e-9})),
        trial(weight=1.0000001),
    ],
)
def test_runs_that_differ_are_told_apart(other):
    assert not trial().equals(other)
    assert trial().equals(trial(kills=(Kill(2, 2),)))


def test_differences_are_named():
    assert differences(record(1), record(1, seconds=9)) == []
    assert differences(record(1), record(1, loss=None, data="x")) == ["data", "loss"]


@pytest.mark.parametrize(
    "changed",
    [
        {"a": torch.tensor([1.0, 2.0]), "b": [1, "x"]},
        {"a": torch.tensor([1.0, 3.0], dtype=torch.float64), "b": [1, "x"]},
        {"a": torch.tensor([[1.0, 3.0]]), "b": [1, "x"]},
        {"a": torch.tensor([1.0, 3.0]), "b": [2, "x"]},
        {"c": torch.tensor([1.0, 3.0]), "b": [1, "x"]},
    ],
)
def test_checksums_tell_contents_apart_and_not_their_order(changed):
    state = {"a": torch.tensor([1.0, 3.0]), "b": [1, "x"]}
    assert fingerprint(state) == fingerprint(dict(reversed(state.items())))
    assert fingerprint(state) != fingerprint(changed)


def test_the_time_that_a_checkpoint_took_is_not_compared(tmp_path):
    """A window knows of seconds; what it has added up must be equal."""

    def states(seconds, loss):
        window = MetricAccumulator(3, 700, seconds, {"loss": torch.tensor(loss)})
        torch.save(window.state_dict(), tmp_path / "window-0.pt")
        return fingerprint(read_states(tmp_path))

    assert states(1.5, loss=2.0) == states(1.75, loss=2.0)
    assert states(1.5, loss=2.0) != states(1.5, loss=2.25)


def test_the_report_shows_steps_kills_states_and_the_verdict():
    told = report(Verification(trial(), trial(kills=(Kill(2, 2), Kill(5, 4))), None)).splitlines()
    assert told[2].split() == ["1", "4", "4", "00000001", "="]
    assert told[4] == "      killed after step 2, resumed after step 2"
    assert told[7] == "      killed after step 5, resumed after step 4"
    assert "largest difference: 0 of losses, 0 of weights" in told
    assert told[-1] == "exact: the resumed run equals the uninterrupted one, bit for bit"


@pytest.mark.parametrize(
    ("repeated", "blame"), [(trial(), "resuming is at fault"), (trial(weight=7.0), "is not deterministic")]
)
def test_the_report_says_what_differs_and_whose_fault_it_is(repeated, blame):
    told = report(Verification(trial(), trial((5, {"loss": 8.5, "data": "cafe"}), weight=1.25), repeated))
    assert "≠ data, loss\n" in told
    assert told.count("≠") == 2, "a step and the weights"
    assert "largest difference: 0.5 of losses, 0.25 of weights" in told
    assert "\nnot exact: " in told
    assert blame in told


def test_a_difference_is_followed_by_a_second_uninterrupted_run(monkeypatch, recipe_on):
    runs = {"straight": trial(), "resumed": trial(weight=2.0), "repeated": trial(weight=3.0)}
    monkeypatch.setattr(verification, "try_out", lambda recipe, folder, *rest, **more: runs[folder.name])
    recipe, file = recipe_on("translation", steps=100)
    found = verify_resume(recipe, steps=7)
    assert found.repeated is runs["repeated"]
    assert not found.is_exact
    with pytest.raises(SystemExit) as end:
        main(["verify-resume", str(file), "--steps=6"])
    assert end.value.code == 1


def test_too_few_steps_are_refused(recipe_on):
    recipe, _ = recipe_on("translation", steps=2)
    with pytest.raises(ValueError, match="a run of 2 steps cannot be split in three"):
        verify_resume(recipe)
    with pytest.raises(ValueError, match="a run of -3 steps cannot be split in three"):
        verify_resume(recipe, steps=-3)


@pytest.mark.slow
def test_a_run_that_fails_says_why(recipe_on):
    recipe, _ = recipe_on("translation", tokens_per_step=10**9)
    with pytest.raises(
        ValueError, match=r"before it was killed: tercet pretrain: .* fewer than tokens_per_step"
    ):
        verify_resume(recipe, steps=3)


@pytest.mark.slow
def test_a_recipe_proves_exact(recipe_on, capsys):
    recipe, file = recipe_on("translation", dropout=0.1, steps=50, num_workers=2, precision="bf16")
    assert main(["verify-resume", str(file), "--steps=9"]) == 0
    told = capsys.readouterr().out
    assert told.count("killed after step") == 2
    assert "largest difference: 0 of losses, 0 of weights" in told
    assert "bit for bit" in told
    assert not recipe.folder.exists()
