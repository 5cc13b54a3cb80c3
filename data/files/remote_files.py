"""Files of an object store, or of any other file system that fsspec knows, by way of a bounded local cache.

    s3://bucket/corpus/shards/00003/tokens  ->  CACHE/remote/<SHA-256 of its contents>  ->  mapped into memory

A copy is named by its contents, so that it is never of an older file, and two processes that fetch the same
one at once write the same bytes. It is checked against that hash before it gets its name. When the copies of
a folder exceed its limit, those that were used the longest ago go. A file that is mapped stays readable to
who has mapped it, and keeps its room on the disk until then: with several processes of a machine, each may
hold as much as the limit for a while.
"""

import hashlib
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...configs.messages import first_line
from ..cache import ANOTHER_CACHE, PARTIAL
from ..corpus import mapped
from .atomic_writes import NOT_WRITTEN, explaining_a_full_disk

AT_ONCE = 2**22
ABANDONED = 3600.0
"""Seconds after which what nobody has written to is no copy under way."""


@contextmanager
def reaching(name: str) -> Iterator[tuple[Any, str]]:
    """Give the file system of a name, and its path there, as a context; what fails is told by the name."""
    try:
        from fsspec.core import url_to_fs

        yield url_to_fs(name)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{name} does not exist: check the name") from error
    except ImportError as error:
        raise ValueError(
            f"{name} needs a package that is not installed ({first_line(error)}): "
            "pip install 'tercet[prepare]'"
        ) from error
    except Exception as error:  # whatever a network and a foreign store may do
        if getattr(error, "errno", None) in NOT_WRITTEN:  # here, not there
            raise
        raise ValueError(
            f"{name} cannot be read ({first_line(error)}): check the name, the credentials and the network"
        ) from error


class RemoteFiles:
    """Arrays in files elsewhere, mapped from copies of at most `most_bytes`; a larger file is refused."""

    def __init__(self, folder: Path, most_bytes: int):
        self.folder, self.most_bytes = folder, most_bytes
        self.opened: OrderedDict[str, np.ndarray] = OrderedDict()

    def open(self, name: str, digest: str, kind: np.dtype) -> np.ndarray:
        """Map a file, copied if it is not here; `digest` is the SHA-256 of its contents."""
        if digest in self.opened:
            self.opened.move_to_end(digest)
            return self.opened[digest]
        copy = self.folder / digest
        if not copy.exists():
            self._fetch(name, digest, copy)
        with suppress(OSError):
            os.utime(copy)
        try:
            array = mapped(copy, kind)
        except FileNotFoundError:  # another process has just made room
            return self.open(name, digest, kind)
        self.opened[digest] = array
        while sum(each.nbytes for each in self.opened.values()) > self.most_bytes and len(self.opened) > 1:
            self.opened.popitem(last=False)
        return array

    def _fetch(self, name: str, digest: str, copy: Path) -> None:
        with reaching(name) as (store, path):
            size = store.size(path)
        if size > self.most_bytes:
            raise ValueError(
                f"{name} has {size:,} bytes, and the cache holds {self.most_bytes:,}: raise "
                "corpus.remote_cache, or prepare smaller shards"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{self.folder} cannot be written ({error.strerror}): name {ANOTHER_CACHE}"
            ) from error
        self._make_room(size)
        partial = copy.with_name(f"{digest}.{secrets.token_hex(4)}{PARTIAL}")
        remedy = f"make room, lower corpus.remote_cache, or name {ANOTHER_CACHE}"
        try:
            with explaining_a_full_disk(copy, None, remedy):
                found = _copied(name, partial)
            if found != digest:
                raise ValueError(
                    f"{name} has other contents (SHA-256 {found[:12]}) than its manifest says "
                    f"({digest[:12]}): copy the prepared corpus anew"
                )
            partial.rename(copy)
        finally:
            partial.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        # Those that were used the longest ago go.
        copies = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another process was faster
                about = path.stat()
                copies.append((about.st_mtime_ns, about.st_size, path))
        taken = sum(size for _, size, _ in copies)
        for last, own, path in sorted(copies):
            if taken + size <= self.most_bytes:
                return
            if not path.name.endswith(PARTIAL) or time.time() - last / 1e9 > ABANDONED:
                self.opened.pop(path.name, None)
                path.unlink(missing_ok=True)
                taken -= own


def _copied(name: str, target: Path) -> str:
    # Returns the hash of what was read.
    found = hashlib.sha256()
    with reaching(name) as (store, path), store.open(path, "rb") as source, target.open("wb") as file:
        while portion := source.read(AT_ONCE):
            found.update(portion)
            file.write(portion)
    return found.hexdigest()
