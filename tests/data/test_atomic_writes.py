"""Files that are whole or not there, and what is said when the disk is full."""

import errno
import os

import pytest

from tercet.data.files.atomic_writes import (
    NOT_WRITTEN,
    WriteError,
    explaining_a_full_disk,
    reason_of,
    replace_text,
    written_beside,
)


def no_room(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_replaced_text_is_new(tmp_path):
    for text in ("one", "two"):
        replace_text(tmp_path / "file", text)
        assert (tmp_path / "file").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["file", ".file.partial"])
def test_nothing_is_written_to_where_a_link_leads(name, tmp_path):
    """Whoever made the folder may have put one there."""
    (tmp_path / "private.txt").write_text("private")
    write_whole = {"text": replace_text, "file": write_beside}
    for what, write in write_whole.items():
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(tmp_path / "private.txt")
        write(tmp_path / "file", what)
        assert (tmp_path / "private.txt").read_text() == "private"
        assert (tmp_path / "file").read_text() == what
        assert not (tmp_path / "file").is_symlink()


def write_beside(path, text):
    with written_beside(path) as partial:
        partial.write_text(text)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_text_that_finds_no_room_leaves_the_old_one(call, monkeypatch, tmp_path):
    replace_text(tmp_path / "file", "one")
    monkeypatch.setattr(os, call, no_room)
    with pytest.raises(WriteError):
        replace_text(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_says_where_how_much_and_what_to_do(tmp_path):
    path = tmp_path / "not" / "yet" / "there"
    said = rf"^{path}, which takes 3.00 MiB, cannot be written \(.*; [\d,.]+ MiB are free\): buy another$"
    with pytest.raises(WriteError, match=said), explaining_a_full_disk(path, 3 * 2**20, "buy another"):
        no_room()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cache/part", r"/cache/part cannot be written .*: go on$"),
        ("run/model/part", "/run, which takes"),
    ],
)
def test_a_file_that_lies_elsewhere_is_told_of_itself(name, said, tmp_path):
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / name))
    explaining = explaining_a_full_disk(tmp_path / "run", 9, "go on")
    with pytest.raises(WriteError, match=rf"^{tmp_path}{said}"), explaining:
        raise error


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
        assert reason_of(error) in [(number, None) for number in NOT_WRITTEN]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad"), RuntimeError("os error 2"), ValueError("28")])
def test_other_errors_remain_what_they_are(error, tmp_path):
    with pytest.raises(type(error)) as raised, explaining_a_full_disk(tmp_path / "file", 1):
        raise error
    assert raised.value is error


@pytest.mark.parametrize("error", [OSError(errno.EFBIG, "File too large"), RuntimeError("bad (os error 27)")])
def test_a_file_that_may_not_grow_says_which_and_what_to_do(error, tmp_path):
    said = r"file cannot be written \(File too large; .*: go on$"
    with pytest.raises(WriteError, match=said), explaining_a_full_disk(tmp_path / "file", None, "go on"):
        raise error
