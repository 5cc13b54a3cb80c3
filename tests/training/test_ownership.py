"""Only what runs have written is removed, and everybody else's files stay."""

import os
import signal

import pytest

from tercet.training.lock import occupied
from tercet.training.ownership import OWN, begin, is_ours, owned, recording, remove, require_removable

NAMES = ("model", "checkpoints", "log.jsonl")


def leave_run(folder):
    """Leave what a finished run leaves."""
    with recording(folder):
        folder.mkdir(parents=True, exist_ok=True)
        begin(folder, NAMES)
        fill(folder)


def fill(folder):
    for name in ("model/config.json", "model/1_Pooling/config.json", "checkpoints/step-1/model.safetensors"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("ours")
    (folder / "log.jsonl").write_text("ours")


@pytest.fixture
def leave_killed_run(program):
    """Leave what a killed run leaves."""

    def leave(folder):
        text = f"""
import os, signal
from pathlib import Path
from tercet.training.ownership import begin, recording
with recording(Path({str(folder)!r})):
    begin(Path({str(folder)!r}), {NAMES!r})
    os.kill(os.getpid(), signal.SIGKILL)
"""
        folder.mkdir()
        assert program(text).wait() == -signal.SIGKILL
        fill(folder)
        (folder / "checkpoints" / ".step-2.partial").mkdir()
        (folder / "checkpoints" / ".step-2.partial" / "half").write_text("half of i")
        (folder / ".log.jsonl.partial").write_text("half of i")

    return leave


@pytest.fixture(params=["finished", "killed"])
def leave(request, leave_killed_run):
    """Leave what a run leaves, however it ended."""
    return leave_run if request.param == "finished" else leave_killed_run


def test_what_a_run_wrote_is_removed(leave, tmp_path):
    leave(tmp_path / "run")
    remove(tmp_path / "run", NAMES)
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("name", ["model/notes.txt", "checkpoints/step-1/thesis.tex", "model/mine/notes.txt"])
def test_what_others_put_there_is_named_and_all_stays(leave, name, tmp_path):
    folder = tmp_path / "run"
    leave(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("years of work")
    before = sorted(folder.rglob("*"))
    with pytest.raises(ValueError, match=f"{name} was not written by a run, and --overwrite would delete it"):
        remove(folder, NAMES)
    assert sorted(folder.rglob("*")) == before


def test_file_of_a_kind_that_runs_write_is_not_theirs_by_that(tmp_path):
    """Nor if it was there before a run went on."""
    leave_run(tmp_path)
    (tmp_path / "model" / "mine.json").write_text("years of work")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"mine\.json was not written by a run"):
            require_removable(tmp_path, NAMES)
        leave_run(tmp_path)


@pytest.mark.parametrize("name", ["checkpoints", "model/1_Pooling"])
def test_links_are_removed_and_not_followed(name, tmp_path):
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "big.bin").write_text("years of work")
    with recording(folder):
        folder.mkdir()
        begin(folder, NAMES)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(elsewhere)
        (folder / "log.jsonl").write_text("")
    remove(folder, NAMES)
    assert (elsewhere / "big.bin").read_text() == "years of work"
    assert list(folder.iterdir()) == []


def test_run_inside_a_folder_answers_for_its_files(tmp_path):
    """A member of the demonstration was trained once more, by itself."""
    with recording(tmp_path):
        begin(tmp_path, ("encoder",))
        (tmp_path / "encoder").mkdir()
        leave_run(tmp_path / "encoder")
    with recording(tmp_path / "encoder"):
        begin(tmp_path / "encoder", NAMES)
        (tmp_path / "encoder" / "checkpoints" / "step-2.pt").write_text("ours")
    require_removable(tmp_path, ("encoder",))
    (tmp_path / "encoder" / "model" / "mine.json").write_text("years of work")
    with pytest.raises(ValueError, match=r"encoder/model/mine\.json"):
        require_removable(tmp_path, ("encoder",))


def test_folder_is_not_removed_while_a_run_in_it_lives(hold, tmp_path):
    leave_run(tmp_path)
    holder = hold(tmp_path / "model")
    with pytest.raises(ValueError, match=f"model is in use by process {holder.pid}"):
        remove(tmp_path, NAMES)
    assert (tmp_path / "model" / "config.json").exists()


def test_list_of_others_is_none_of_ours(tmp_path):
    for text in ("", "[]", '{"files": []}'):
        (tmp_path / OWN).write_text(text)
        assert not is_ours(tmp_path)


def test_what_an_earlier_version_left_counts_as_its_run_goes_on(tmp_path):
    fill(tmp_path)
    (tmp_path / "model" / "notes.txt").write_text("years of work")
    assert "model/notes.txt" not in owned(tmp_path, NAMES)
    assert "model/config.json" in owned(tmp_path, NAMES)
    with occupied(tmp_path), recording(tmp_path):
        begin(tmp_path, NAMES)
    os.unlink(tmp_path / "model" / "notes.txt")
    remove(tmp_path, NAMES)
    assert list(tmp_path.iterdir()) == []
