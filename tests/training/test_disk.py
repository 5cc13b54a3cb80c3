"""Files that are whole or not there, and what is said when the disk is full."""

import errno
import os
from collections import namedtuple
from pathlib import Path

import pytest

from tercet.training.disk import (
    NO_ROOM,
    DiskFullError,
    WriteError,
    explaining_a_full_disk,
    reason_of,
    replace_text,
)


def no_room(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_replaced_text_is_new(tmp_path):
    for text in ("one", "two"):
        replace_text(tmp_path / "file", text)
        assert (tmp_path / "file").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_text_that_finds_no_room_leaves_the_old_one(call, monkeypatch, tmp_path):
    replace_text(tmp_path / "file", "one")
    monkeypatch.setattr(os, call, no_room)
    with pytest.raises(DiskFullError):
        replace_text(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_says_where_how_much_and_what_to_do(tmp_path):
    path = tmp_path / "not" / "yet" / "there"
    said = rf"no room on the disk for {path}, which takes 3.00 MiB where [\d,.]+ MiB are free: buy another$"
    with pytest.raises(DiskFullError, match=said), explaining_a_full_disk(path, 3 * 2**20, "buy another"):
        no_room()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cache/part", r"/cache/part where [\d,.]+ MiB are free: go on$"),
        ("run/model/part", "/run, which takes"),
    ],
)
def test_a_file_that_lies_elsewhere_is_told_of_itself(name, said, tmp_path):
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / name))
    explaining = explaining_a_full_disk(tmp_path / "run", 9, "go on", [tmp_path])
    with pytest.raises(DiskFullError, match=rf"no room on the disk for {tmp_path}{said}"), explaining:
        raise error


def test_of_an_error_that_names_no_file_the_fullest_disk_is_told(tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    for name in ("run", "elsewhere"):
        (tmp_path / name).mkdir()
    free = {"elsewhere": 2**20}
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(free.get(folder.name, 2**40)))
    said = rf"no room on the disk for {tmp_path}/elsewhere where 1.00 MiB are free"
    explaining = explaining_a_full_disk(tmp_path / "run", None, also=[tmp_path / "elsewhere"])
    with pytest.raises(DiskFullError, match=said), explaining:
        no_room()


def test_what_was_explained_already_stays(tmp_path):
    def write():
        try:
            raise OSError(errno.EROFS, "Read-only file system", "/cache")
        except OSError as error:
            raise ValueError("/cache cannot be written") from error

    with pytest.raises(ValueError, match=r"^/cache cannot"), explaining_a_full_disk(tmp_path / "run", None):
        write()


def test_what_torch_and_safetensors_make_of_a_full_disk_is_understood():
    wrapped = RuntimeError("unexpected pos 704 vs 598")
    wrapped.__context__ = OSError(errno.ENOSPC, "No space left on device")
    quoted = RuntimeError("I/O error: No space left on device (os error 28)")
    for error in (wrapped, quoted, OSError(errno.EDQUOT, "Disk quota exceeded")):
        assert reason_of(error, Path("file")) in NO_ROOM


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad"), RuntimeError("os error 2"), ValueError("28")])
def test_other_errors_remain_what_they_are(error, tmp_path):
    with pytest.raises(type(error)) as raised, explaining_a_full_disk(tmp_path / "file", 1):
        raise error
    assert raised.value is error


@pytest.mark.parametrize("error", [OSError(errno.EFBIG, "File too large"), RuntimeError("bad (os error 27)")])
def test_a_file_that_may_not_grow_says_which_and_what_to_do(error, tmp_path):
    said = r"file cannot be written: it would be larger than a file may be here \(see `ulimit -f`\).* go on"
    with pytest.raises(WriteError, match=said), explaining_a_full_disk(tmp_path / "file", None, "go on"):
        raise error


def test_a_folder_that_is_gone_says_so(tmp_path):
    with pytest.raises(WriteError, match="its folder is gone, moved or deleted by another program"):
        replace_text(tmp_path / "gone" / "file", "text")


def test_a_file_that_is_missing_elsewhere_is_no_folder_that_is_gone(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, explaining_a_full_disk(tmp_path / "run", None):
        (tmp_path / "model" / "config.json").read_text()
    assert not isinstance(raised.value, WriteError)
