"""A run that goes on while its checkpoints are written learns what it would have, and loses none of them."""

import errno
import threading

import pytest

from tercet.data.files.atomic_writes import WriteError
from tercet.training.checkpoints.checkpoint import CHECKPOINTS, Snapshot, checkpoints, find_damage, read_state
from tercet.training.checkpoints.checkpoint_writer import CheckpointWriter

from ..logs import timeless
from ..saved_weights import moments_in, require_same, require_same_models

PATIENCE = 60


class Held:
    """A snapshot that is written when it may be."""

    def __init__(self, error=None):
        self.may_end, self.error, self.is_written = threading.Event(), error, False

    def write(self):
        assert self.may_end.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.is_written = True


def test_one_snapshot_is_written_at_a_time_and_the_end_waits_for_it():
    first, second = Held(), Held()
    with CheckpointWriter(in_background=True) as writer:
        writer.write(first)
        assert writer.is_writing()
        writer.check()
        threading.Timer(0.05, first.may_end.set).start()
        writer.write(second)
        assert first.is_written
        assert not second.is_written
        threading.Timer(0.05, second.may_end.set).start()
    assert second.is_written


@pytest.mark.parametrize("ask", ["check", "wait", "write"])
def test_an_error_of_the_thread_is_raised_once_where_the_run_asks(ask):
    broken = Held(WriteError("no room"))
    broken.may_end.set()
    with CheckpointWriter(in_background=True) as writer:
        writer.write(broken)
        assert writer.thread is not None
        writer.thread.join()
        with pytest.raises(WriteError, match="no room"):
            getattr(writer, ask)(*([Held()] if ask == "write" else []))


@pytest.mark.parametrize(
    ("error", "told"), [(RuntimeError("connection closed"), "lost"), (WriteError("no room"), "no room")]
)
def test_what_ends_a_run_is_told_unless_the_thread_knows_better(error, told):
    """Where a process is lost, the thread notices it, too; a full disk is known to the thread alone."""
    broken = Held(error)
    broken.may_end.set()

    def end() -> None:
        with CheckpointWriter(in_background=True) as writer:
            writer.write(broken)
            raise ConnectionError("lost")

    with pytest.raises((ConnectionError, WriteError), match=told):
        end()


def test_without_a_thread_a_snapshot_is_written_at_once():
    held = Held()
    held.may_end.set()
    CheckpointWriter(in_background=False).write(held)
    assert held.is_written


@pytest.fixture
def run(toys, tmp_path):
    def run(name, **changes):
        settings = {
            "checkpoint_every": 3,
            "steps": 12,
            "keep_checkpoints": 3,
            "ema_decay": 0.8,
            "log_every": 2,
        }
        return toys.train(tmp_path / name, toys.recipe(**settings | changes), resume=True)

    return run


@pytest.fixture
def slowly(monkeypatch):
    """Let a checkpoint that was due be written only when the next one is; count the steps meanwhile."""
    write, wait, turns = Snapshot.write, CheckpointWriter.wait, []

    def hold(snapshot):
        turns.append(threading.Event())
        assert turns[-1].wait(PATIENCE)
        return write(snapshot)

    def release(writer):
        if turns:
            turns[-1].set()
        wait(writer)

    monkeypatch.setattr(Snapshot, "write", hold)
    monkeypatch.setattr(CheckpointWriter, "wait", release)


def test_a_run_whose_checkpoints_take_long_equals_one_that_waits_for_them(run, toys, tmp_path, request):
    waits = run("waits", async_checkpoints=False)
    request.getfixturevalue("slowly")
    goes_on = run("goes on")
    assert goes_on.progress.checksum == waits.progress.checksum
    names = [[path.name for path in checkpoints(tmp_path / n / CHECKPOINTS)] for n in ("waits", "goes on")]
    assert names[0] == names[1] == [f"step-{step:08d}" for step in (6, 9, 12)]
    for name in names[0]:
        folders = [tmp_path / n / CHECKPOINTS / name for n in ("goes on", "waits")]
        require_same_models(*folders)
        require_same(*map(moments_in, folders))
        states = [read_state(folder) for folder in folders]
        assert [state["progress"]["step"] for state in states] == [int(name[-2:])] * 2
        assert (folders[0] / "random-0.pt").read_bytes() == (folders[1] / "random-0.pt").read_bytes()
    assert timeless(tmp_path / "goes on") == timeless(tmp_path / "waits")


def test_no_checkpoint_is_deleted_before_a_newer_one_is_on_the_disk(run, slowly, tmp_path, monkeypatch):
    """The first one stays until the second one is there, though the steps meanwhile are finite."""
    found, write = [], Snapshot.write

    def look(snapshot):
        path = write(snapshot)
        found.append([path.name for path in checkpoints(tmp_path / "run" / CHECKPOINTS)])
        return path

    monkeypatch.setattr(Snapshot, "write", look)
    run("run", keep_checkpoints=1)
    pairs = [(3,), (3, 6), (6, 9), (9, 12)]
    assert found == [[f"step-{step:08d}" for step in pair] for pair in pairs]


def test_a_checkpoint_without_room_ends_the_run_and_the_earlier_one_is_there(run, tmp_path, monkeypatch):
    write = Snapshot.write

    def full(snapshot):
        if snapshot.about["progress"]["step"] > 3:
            monkeypatch.setattr("tercet.training.checkpoints.checkpoint._write", raise_full)
        return write(snapshot)

    def raise_full(path, state):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Snapshot, "write", full)
    with pytest.raises(
        WriteError, match=r"step-00000006, which takes .*; the earlier checkpoints are intact"
    ):
        run("run")
    (kept,) = checkpoints(tmp_path / "run" / CHECKPOINTS)
    assert kept.name == "step-00000003"
    assert find_damage(kept) is None
    assert not list((tmp_path / "run").rglob("*.partial"))
