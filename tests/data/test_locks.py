"""A folder that a run writes is nobody else's until the run ends, however it ends."""

import os
import signal
import time
import warnings

import pytest

from tercet.data.files import locks as module
from tercet.data.files.locks import is_abandoned, lock_of, locked, occupied, require_unheld


def test_second_run_is_told_who_holds_the_folder_until_that_is_killed(hold, tmp_path):
    holder = hold(tmp_path / "run")
    began = time.monotonic()
    said = rf"output .*run is in use by process {holder.pid} on \S+ \(tercet pretrain mine.yaml\) since 20"
    with pytest.raises(ValueError, match=said), occupied(tmp_path / "run"):
        pass
    assert time.monotonic() - began < 5
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".run.lock").exists()
    with occupied(tmp_path / "run"):
        (tmp_path / "run").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_link_to_a_folder_is_the_folder(hold, tmp_path):
    hold(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(ValueError, match="in use"), occupied(tmp_path / "link"):
        pass


def test_no_name_is_written_to_where_a_link_leads(tmp_path):
    (tmp_path / "private.txt").write_text("private")
    lock_of(tmp_path / "run").symlink_to(tmp_path / "private.txt")
    with pytest.raises(ValueError, match=r"output .*run cannot be written"), occupied(tmp_path / "run"):
        pass
    assert (tmp_path / "private.txt").read_text() == "private"


def test_runs_inside_a_run_have_locks_of_their_own(tmp_path):
    with occupied(tmp_path / "demo"), occupied(tmp_path / "demo" / "encoder"):
        (tmp_path / "demo" / "encoder" / "model").mkdir(parents=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["demo", "encoder", "model"]


def test_two_runs_of_one_process_do_not_share_a_folder(tmp_path):
    again = occupied(tmp_path)
    with occupied(tmp_path), pytest.raises(ValueError, match=f"in use by process {os.getpid()}"), again:
        pass
    assert not lock_of(tmp_path).exists()


def test_child_of_a_fork_does_not_keep_the_lock_of_a_killed_run(program, tmp_path):
    """Data workers outlive a killed process for seconds."""
    text = f"""
import os, time
from pathlib import Path
from tercet.data.files.locks import occupied
with occupied(Path({str(tmp_path / "run")!r})):
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    print(child, flush=True)
    time.sleep(60)
"""
    process = program(text)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        with occupied(tmp_path / "run"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_folders_that_nothing_was_written_into_go_again(tmp_path):
    with pytest.raises(RuntimeError), occupied(tmp_path / "a" / "b"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made_is_told_of(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be made"), occupied(tmp_path / "file" / "a" / "run"):
        pass


def test_looking_does_not_hold(hold, tmp_path):
    holder, folder = hold(tmp_path / "run"), tmp_path / "run"
    with pytest.raises(ValueError, match=rf"run is in use by process {holder.pid} on .*: wait until it ends"):
        require_unheld(folder)
    assert not is_abandoned(lock_of(folder))
    holder.kill()
    holder.wait()
    require_unheld(folder)
    assert is_abandoned(lock_of(folder))
    with occupied(folder):
        require_unheld(folder)


def test_file_system_without_locks_is_told_of(monkeypatch, tmp_path):
    def unable(*arguments):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(module.fcntl, "lockf", unable)
    own = locked(tmp_path / ".run.lock", "output x", "another")
    with pytest.warns(UserWarning, match=r"without locks \(No locks available\): make sure"), own:
        pass


def test_system_without_these_locks_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "fcntl", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with occupied(tmp_path / "run"):
            (tmp_path / "run").mkdir()


def test_a_lock_lies_in_the_folder_where_nothing_can_be_written_beside_it(monkeypatch, tmp_path):
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(module.os, "access", lambda path, mode: path != tmp_path)
    with occupied(tmp_path / "run"):
        assert [path.name for path in tmp_path.rglob("*")] == ["run", ".run.lock"]
        assert lock_of(tmp_path / "run") == tmp_path / "run" / ".run.lock"
    assert lock_of(tmp_path / "other").parent == tmp_path, "which says that it cannot be written"
