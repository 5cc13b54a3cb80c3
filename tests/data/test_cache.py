"""Work appears whole or not at all, and what hinders it is told of the cache, not of the run."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tercet.data import cache
from tercet.data.cache import cache_folder, made_once
from tercet.data.files.atomic_writes import WriteError
from tercet.data.identities import identify_file
from tercet.training.run_folder import writing


def test_the_recipe_chooses_before_the_environment(monkeypatch):
    monkeypatch.setenv("TERCET_CACHE", "/from/environment")
    assert cache_folder("/from/recipe") == Path("/from/recipe")
    assert cache_folder() == Path("/from/environment")
    monkeypatch.delenv("TERCET_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "tercet"


def test_work_is_done_once(tmp_path):
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("done")

    for _ in range(2):
        assert (made_once(tmp_path / "deep" / "work", make) / "file").read_text() == "done"
    assert len(calls) == 1


def test_interrupted_work_leaves_nothing(tmp_path):
    def make(folder: Path) -> None:
        (folder / "file").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "work", make)
    assert list(tmp_path.iterdir()) == []


def test_of_two_runs_at_once_the_first_one_wins(tmp_path):
    def make(folder: Path) -> None:
        (folder / "file").write_text("second")
        made_once(tmp_path / "work", lambda other: (other / "file").write_text("first"))  # in the meantime

    assert (made_once(tmp_path / "work", make) / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EFBIG])
def test_a_cache_that_takes_no_more_is_named_with_its_own_remedy(reason, tmp_path):
    work = tmp_path / "cache" / "work"

    def make(folder: Path) -> None:
        raise OSError(reason, os.strerror(reason))

    remedy = "make room, or name another folder in corpus.cache, or in TERCET_CACHE of the environment"
    with (
        pytest.raises(WriteError, match=rf"^{work} cannot be written .*: {remedy}$"),
        writing(tmp_path / "run"),
    ):
        made_once(work, make)
    with pytest.raises(WriteError, match=r"name another teacher$"), writing(tmp_path / "run"):
        made_once(work, make, "another teacher")
    assert not list(work.parent.iterdir())


def test_a_cache_that_cannot_be_written_is_no_output_that_cannot(tmp_path):
    (tmp_path / "cache").write_text("a file")
    (tmp_path / "text.txt").write_text("text")
    for write in (
        lambda: made_once(tmp_path / "cache" / "deep" / "work", lambda folder: None),
        lambda: identify_file(tmp_path / "text.txt", tmp_path / "cache"),
    ):
        said = r"cache/(deep|digests) cannot be written \(.*\): name another folder in corpus.cache, or"
        with pytest.raises(ValueError, match=said), writing(tmp_path / "run"):
            write()


MAKE = """
import time
from pathlib import Path
from tercet.data.cache import made_once
def make(folder):
    (folder / "file").write_text("half")
    print(folder.name, flush=True)
    time.sleep(60)
made_once(Path({folder!r}), make)
"""


def test_what_a_killed_process_left_goes_and_what_another_makes_stays(tmp_path):
    file = tmp_path / "program" / "tercet"  # so called, it imports only what it needs
    file.parent.mkdir()
    file.write_text(MAKE.format(folder=str(tmp_path / "cache" / "work")))
    makers = [subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, alive = (tmp_path / "cache" / maker.stdout.readline().strip() for maker in makers)
        makers[0].send_signal(signal.SIGKILL)
        makers[0].wait()
        assert killed.exists()
        made_once(tmp_path / "cache" / "other", lambda folder: None)
        assert not killed.exists()
        assert (alive / "file").exists()
        assert (
            len(list((tmp_path / "cache").iterdir())) == 3
        )  # the other work, and the living one with its lock
    finally:
        for maker in makers:
            maker.kill()
            maker.wait()
            maker.stdout.close()


def test_leftovers_are_looked_for_once(tmp_path, monkeypatch):
    made_once(tmp_path / "one", lambda folder: None)
    monkeypatch.setattr(cache, "is_abandoned", None)
    (tmp_path / ".x.1.lock.partial").write_text("")
    made_once(tmp_path / "two", lambda folder: None)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_umask_says_who_may_read(mask, tmp_path):
    earlier = os.umask(mask)
    try:
        folder = made_once(tmp_path / "work", lambda target: (target / "file").write_text("done"))
    finally:
        os.umask(earlier)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~mask
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o666 & ~mask
