"""A damaged newest checkpoint is named and set aside, and the one before it is used."""

import shutil

import pytest
from accelerate import Accelerator

from tercet.training.checkpoints.checkpoint import (
    checkpoints,
    find_damage,
    load_checkpoint,
    prune,
    save_checkpoint,
)
from tercet.training.checkpoints.recovery import DamagedCheckpointError, newest_whole

FILES = ["manifest.json", "model.safetensors", "optimizer.pt", "random-0.pt", "state.json", "window-0.pt"]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 4
    path.write_bytes(contents)


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


def garble(path):
    path.write_bytes(b"{" * path.stat().st_size)


@pytest.fixture
def saved(toys, tmp_path):
    run = toys.state()
    for _ in range(3):
        toys.move(run)
        save_checkpoint(tmp_path, run, recipe={}, scores={"loss": 1.0 + run.progress.step})
    return checkpoints(tmp_path)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.filterwarnings("error")
def test_the_newest_of_whole_checkpoints_is_found(saved, tmp_path):
    assert newest_whole(tmp_path, Accelerator(cpu=True)) == saved[-1]
    assert len(names(tmp_path)) == 3


@pytest.mark.parametrize("copy", ["step-best", "step-00000001.bak", "step-00000001 (copy)", "step-1"])
def test_a_users_copy_of_a_checkpoint_is_none_of_ours(copy, saved, tmp_path):
    """It is neither continued from nor deleted, and pushes no other out (torchtitan, pull request 4292)."""
    shutil.copytree(saved[0], tmp_path / copy)
    assert newest_whole(tmp_path, Accelerator(cpu=True)) == saved[-1]
    prune(tmp_path, keep=1)
    assert names(tmp_path) == sorted([copy, saved[0].name, saved[-1].name]), "the best and the newest"


def test_checkpoints_are_in_the_order_of_their_steps(saved, tmp_path):
    late = saved[0].rename(tmp_path / "step-100000000")
    assert checkpoints(tmp_path) == [*saved[1:], late]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("leftover", ["nothing", ".step-00000001.partial"])
def test_a_run_that_saved_nothing_begins_anew(leftover, tmp_path):
    (tmp_path / leftover).mkdir()
    assert newest_whole(tmp_path, Accelerator(cpu=True)) is None


def test_a_checkpoint_has_no_other_files(saved):
    assert names(saved[0]) == FILES


@pytest.mark.parametrize("harm", [truncate, flip, empty, remove, garble])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(saved, toys, tmp_path, file, harm):
    harm(saved[-1] / file)
    with pytest.warns(UserWarning, match="continues from step-00000002") as told:
        found = newest_whole(tmp_path, Accelerator(cpu=True))
    (message,) = [str(warning.message) for warning in told]
    assert message.startswith(f"checkpoint {saved[-1]} is damaged: ")
    assert file in message or file == "manifest.json"
    assert found == saved[1]
    assert names(tmp_path) == ["damaged-step-00000003", "step-00000001", "step-00000002"]
    load_checkpoint(found, toys.state())


def test_several_damaged_ones_are_passed_over(saved, tmp_path):
    truncate(saved[2] / "model.safetensors")
    (saved[1] / "manifest.json").unlink()
    with pytest.warns(UserWarning, match="is damaged") as told:
        assert newest_whole(tmp_path, Accelerator(cpu=True)) == saved[0]
    assert len(told) == 2


def test_of_damaged_checkpoints_alone_none_is_used_and_none_is_touched(saved, tmp_path):
    for path in saved:
        empty(path / "optimizer.pt")
    with pytest.raises(DamagedCheckpointError) as raised:
        newest_whole(tmp_path, Accelerator(cpu=True))
    message = str(raised.value)
    assert message.startswith(f"every checkpoint in {tmp_path} is damaged (step-00000003: optimizer.pt has 0")
    assert message.count("optimizer.pt") == 3
    assert checkpoints(tmp_path) == saved


def test_what_was_set_aside_pushes_out_no_good_checkpoint(saved, toys, tmp_path):
    flip(saved[2] / "model.safetensors")
    with pytest.warns(UserWarning, match="is damaged"):
        found = newest_whole(tmp_path, Accelerator(cpu=True))
    run = toys.state()
    load_checkpoint(found, run)
    toys.move(run)
    again = save_checkpoint(tmp_path, run, recipe={})
    prune(tmp_path, keep=2)
    assert checkpoints(tmp_path) == [*saved[:2], again], "the best, the one before, the newest"
    assert (tmp_path / "damaged-step-00000003").exists()


def test_one_that_is_damaged_twice_is_set_aside_twice(saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved[2], copy)
    for _ in range(2):
        flip(saved[2] / "model.safetensors")
        with pytest.warns(UserWarning, match="is damaged"):
            newest_whole(tmp_path, Accelerator(cpu=True))
        shutil.copytree(copy, saved[2])
    assert newest_whole(tmp_path, Accelerator(cpu=True)) == saved[2]


def test_a_checkpoint_that_lacks_a_part_counts_for_none_when_others_leave(saved, tmp_path):
    truncate(saved[2] / "model.safetensors")
    prune(tmp_path, keep=2)
    assert checkpoints(tmp_path) == saved[:2]


@pytest.mark.parametrize("survivors", [0, 1, 3])
def test_a_checkpoint_whose_deletion_is_interrupted_is_none(survivors, saved, monkeypatch, tmp_path):
    def die_on_the_way(folder, ignore_errors=False):
        if folder.exists():
            for path in sorted(folder.iterdir())[survivors:]:
                path.unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", die_on_the_way)
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path, keep=1)
    monkeypatch.undo()
    assert all(find_damage(path) is None for path in checkpoints(tmp_path))
    prune(tmp_path, keep=2)
    assert sorted(tmp_path.iterdir()) == checkpoints(tmp_path)


def test_an_unreadable_score_ends_no_run(saved, tmp_path):
    garble(saved[0] / "state.json")
    with pytest.warns(UserWarning, match=r"step-00000001 is damaged: state.json cannot be read"):
        prune(tmp_path, keep=1)
    assert checkpoints(tmp_path) == saved[1:], "the best of the others, and the newest"
