"""A run that finds no room: one clear message, checkpoints intact, and the same run once there is room.

Also a program that lets a run meet a small disk of its own; `test_a_run_on_a_small_disk` starts it.
"""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch

from tercet.data.files.atomic_writes import WriteError
from tercet.training.checkpoints.checkpoint import (
    CHECKPOINTS,
    checkpoints,
    find_damage,
    latest,
    save_checkpoint,
)
from tercet.training.tracking import LOG

from ..logs import timeless
from ..saved_weights import require_same_models
from .conftest import Toys

SAID = (
    r"^.*step-0000000\d, which takes [\d.,]+ MiB, cannot be written \(.*; [\d.,]+ MiB are free\): make "
    r"room or lower training.keep_checkpoints, and resume; the earlier checkpoints are intact$"
)
ROOT = Path(__file__).parents[2]
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]
"""Starts a program that may mount, and whose mounts end with it."""


class Disk:
    """Counts the calls that write, and has no room for one of them."""

    def __init__(self, monkeypatch, number):
        """Refuse call `number`, counted from 0."""
        self.calls, self.number, self.error = 0, number, errno.ENOSPC
        for owner, name in (
            (os, "mkdir"), (os, "fsync"), (os, "rename"), (safetensors.torch, "save_model"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.counted(getattr(owner, name)))
        monkeypatch.setattr(Path, "open", self.opening(Path.open))

    def counted(self, call):
        def counted(*arguments, **options):
            self.calls += 1
            if self.calls == self.number + 1:
                raise OSError(self.error, os.strerror(self.error))
            return call(*arguments, **options)

        return counted

    def opening(self, open_file):
        def opening(path, mode="r", *arguments, **options):
            file = open_file(path, mode, *arguments, **options)
            return Written(file, self.counted) if "r" not in mode else file

        return opening


class Written:
    """A file whose writing is counted."""

    def __init__(self, file, counted):
        self.file, self.write, self.close = file, counted(file.write), counted(file.close)
        self.flush = file.flush

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()
        self.close()


def saves(folder, run):
    """Save, and tell whether there was room; if not, look at what is said."""
    try:
        save_checkpoint(folder, run, recipe={})
    except WriteError as error:
        message = str(error)
    else:
        return True
    assert re.match(SAID, message)
    return False


@pytest.mark.parametrize("error", [errno.ENOSPC, pytest.param(errno.EDQUOT, marks=pytest.mark.slow)])
def test_no_room_at_any_call_that_writes_leaves_the_earlier_checkpoint_alone(toys, tmp_path, error):
    run = toys.state(1)
    earlier = save_checkpoint(tmp_path, run, recipe={})
    toys.move(run)
    refused = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, refused)
            disk.error = error
            if saves(tmp_path, run):
                break
        refused += 1
        assert find_damage(earlier) is None
        assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert refused == disk.calls > 30
    assert latest(tmp_path) == tmp_path / "step-00000002"


def run_in(folder, **changes):
    recipe = Toys.recipe(**{"checkpoint_every": 2, "log_every": 1} | changes)
    return Toys.train(folder, recipe, resume=True)


def test_a_run_without_room_for_its_log_tells_and_goes_on(toys, monkeypatch, tmp_path, capsys):
    run_in(tmp_path / "straight")
    refusals, open_file = iter([True, True]), Path.open

    def opening(path, mode="r", *arguments, **options):
        file = open_file(path, mode, *arguments, **options)
        if path.name == LOG and mode == "ab" and next(refusals, False):
            file.write(b'{"step": 1, "lo')
            file.flush()
            raise OSError(errno.ENOSPC, "full")
        return file

    monkeypatch.setattr(Path, "open", opening)
    run_in(tmp_path / "run", checkpoint_every=4)
    said = capsys.readouterr().err
    assert said.count("log.jsonl, which takes 0.00 MiB, cannot be written (") == 2
    assert said.count("are free): make room; until then the log is kept in memory") == 2
    assert timeless(tmp_path / "run") == timeless(tmp_path / "straight")


def test_no_checkpoint_is_written_whose_log_has_no_room(monkeypatch, tmp_path):
    run_in(tmp_path, steps=2)
    open_file = Path.open

    def opening(path, mode="r", *arguments, **options):
        if path.name == LOG and mode == "ab":
            raise OSError(errno.ENOSPC, "full")
        return open_file(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", opening)
    with pytest.raises(WriteError, match=r"log.jsonl"):
        run_in(tmp_path)
    assert [path.name for path in checkpoints(tmp_path / CHECKPOINTS)] == ["step-00000002"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_stream_that_nobody_can_read_ends_no_run(monkeypatch, tmp_path):
    descriptor = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(sys, "stderr", open(descriptor, "w", closefd=False))  # noqa: SIM115
    assert run_in(tmp_path).progress.step == 6
    os.close(descriptor)


@pytest.mark.slow
def test_a_run_on_a_small_disk_ends_with_a_message_and_continues_once_there_is_room(tmp_path):
    """The disk grows by a few pages at a time, so that room is missing at many points of a checkpoint."""
    trial = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    try:
        refused = subprocess.run(trial, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("no `unshare` here")
    if refused.returncode:
        pytest.skip(f"a user may not mount a small disk here: {refused.stderr.strip()}")
    program = [*OWN_MOUNTS, sys.executable, "-m", "tests.training.test_full_disk", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    messages = json.loads(done.stdout.splitlines()[-1])
    assert len(messages) > 10
    assert all(re.match(SAID, message) for message in messages)


def main(folder: Path) -> None:
    """Train with room, and on a small disk that grows when it is full; say whether it makes a difference."""
    straight, small = folder / "straight", folder / "small"
    run_in(straight)
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    subprocess.run([*mount, "size=8k", "none", small], check=True)
    messages, kibibytes = [], 8
    while True:
        try:
            run_in(small)
            break
        except WriteError as error:
            messages.append(str(error))
        assert not list(small.rglob("*.partial"))
        assert all(find_damage(path) is None for path in checkpoints(small / CHECKPOINTS))
        kibibytes += 12
        subprocess.run([*mount, f"remount,size={kibibytes}k", "none", small], check=True)
    last = Path(CHECKPOINTS, "step-00000006")
    require_same_models(small / last, straight / last)
    assert timeless(straight) == timeless(small)
    print(json.dumps(messages))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
