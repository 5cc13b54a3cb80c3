"""A text is known by name, size and hash; a hash is computed once, and one that was cut short again."""

import hashlib
import os

import pytest

from tercet.data.identities import identify_file

TEXT = b"Some text.\n"
KNOWN = {"name": "part.txt", "bytes": len(TEXT), "sha256": hashlib.sha256(TEXT).hexdigest()}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "part.txt"
    file.write_bytes(TEXT)
    return file


def test_a_file_is_read_once(file, tmp_path, monkeypatch):
    assert identify_file(file, tmp_path / "cache") == KNOWN
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert identify_file(file, tmp_path / "cache") == KNOWN


@pytest.mark.parametrize("left", [b"", b"\0" * 65, b"\xff", KNOWN["sha256"][:40].encode(), b"f" * 64])
def test_a_digest_that_was_cut_short_is_computed_anew(file, tmp_path, left):
    identify_file(file, tmp_path / "cache")
    (kept,) = (tmp_path / "cache" / "digests").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(left)
    assert identify_file(file, tmp_path / "cache") == KNOWN
    assert kept.read_bytes() == whole


def test_many_small_files_do_not_wait_for_the_disk(tmp_path, monkeypatch):
    """Each waiting takes milliseconds: 20,000 files took minutes."""
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    for number in range(20):
        (tmp_path / f"{number}.txt").write_bytes(TEXT)
        identify_file(tmp_path / f"{number}.txt", tmp_path / "cache")
    assert waits == []


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_changed_with_equal_size_and_time_is_known_as_what_it_is(file, tmp_path, is_replaced):
    """As `rsync -t` and archives leave it."""
    identify_file(file, tmp_path / "cache")
    times = file.stat()
    other = tmp_path / "other.txt" if is_replaced else file
    other.write_bytes(TEXT.upper())
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(file)
    assert file.stat().st_mtime_ns == times.st_mtime_ns
    known = identify_file(file, tmp_path / "cache")
    assert known["sha256"] == hashlib.sha256(TEXT.upper()).hexdigest()


def test_a_digest_of_a_file_that_is_written_meanwhile_is_not_kept(file, tmp_path, monkeypatch):
    def digest(contents, kind):
        file.write_bytes(TEXT * 2)
        return hashlib.sha256(TEXT)

    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", digest)
        identify_file(file, tmp_path / "cache")
    assert not (tmp_path / "cache" / "digests").exists()
