"""Which part of a text is prepared together: files, or pieces of them, in their order.

    a.txt  b.txt  c.jsonl (large)             d.parquet
    [-----------][--------------][----------][---------]      tasks, each of which becomes a shard

Tasks follow from the names and sizes of the files alone, not from the number of workers. A plain file is cut
where no document is: after a blank line (`.txt`), or after any line (`.jsonl`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ...configs.named_files import is_remote, named_path
from ...data.cache import cache_folder
from ...data.documents import EMBEDDED, find_files, is_hidden, is_text, require_apart, require_texts
from ...data.embedded_corpus import documentation_file
from ...data.files.compressed_files import MARKS, ending
from ...data.files.reading import KNOWN_ENDINGS, READERS
from ...data.files.remote_files import reaching

BOM = b"\xef\xbb\xbf"
CUT_AT_BLANK = (".txt", ".text")
CUT_AT_LINES = (".jsonl",)
"""Endings of plain files that may be cut."""


class Piece(NamedTuple):
    """A file, or the bytes of one from `start` up to `stop`."""

    file: str
    start: int
    stop: int
    size: int
    """Size of the whole file."""

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.stop == self.size


def files_of(source: str | Sequence[str]) -> list[str]:
    """List the files that a recipe names, in order: paths of this machine, and addresses."""
    found: list[tuple[str, list[Path] | list[str]]] = []
    for name in [source] if isinstance(source, str) else source:
        if name == EMBEDDED:
            files = [documentation_file("train", cache_folder())]
        elif is_remote(name):
            files = remote_files(name)
        else:
            files = find_files(named_path(name, "corpus.path"))
        found.append((name, files))
    require_apart("corpus.path", found)
    return [str(file) for _, files in found for file in files]


def remote_files(name: str) -> list[str]:
    """List the corpus files of an address: a file, a pattern, or a folder with the folders in it.

    Of a folder, what a folder of this machine has is read or left out, in the same order, as by `find_files`.
    """
    with reaching(name) as (store, path):
        is_pattern = any(sign in path for sign in "*?[")
        depth = 0 if is_pattern else len(PurePosixPath(path).parts)
        listed = store.glob(path) if is_pattern else store.find(path)
        found = {
            PurePosixPath(*PurePosixPath(each).parts[depth:]): store.unstrip_protocol(each) for each in listed
        }
    if is_pattern or [*found] == [PurePosixPath()]:  # a file: it is named by itself
        files = [place for place in sorted(found) if ending(PurePosixPath(found[place])) in READERS]
    else:
        is_read = {place: is_text(place) and not any(map(is_hidden, place.parts)) for place in sorted(found)}
        files = [place for place in is_read if is_read[place]]
        if found:
            require_texts(name, files, [place for place in is_read if not is_read[place]])
    if not files:
        raise FileNotFoundError(
            f"corpus.path: {name} has no corpus files: their names end in {KNOWN_ENDINGS}"
        )
    return [found[place] for place in files]


def tasks_of(files: Sequence[str], shard_bytes: int) -> list[list[Piece]]:
    """Divide files into the tasks of a preparation, of about so many bytes each."""
    tasks: list[list[Piece]] = []
    room = 0
    for piece in (piece for file in files for piece in pieces_of(file, shard_bytes)):
        if not tasks or room <= 0 or piece.stop - piece.start > room:
            tasks.append([])
            room = shard_bytes
        tasks[-1].append(piece)
        room -= piece.stop - piece.start
    return tasks


def pieces_of(file: str, shard_bytes: int) -> Iterator[Piece]:
    """Cut a file into pieces of about so many bytes, if it may be cut."""
    with reaching(file) as (store, path):
        size = store.size(path)
        suffix = Path(file).suffix.lower()
        if size <= shard_bytes + shard_bytes // 2 or suffix not in (*CUT_AT_BLANK, *CUT_AT_LINES):
            yield Piece(file, 0, size, size)
            return
        with store.open(path, "rb") as source:
            is_text = not source.read(4).startswith(tuple(MARKS))
            start = 0
            while start < size:
                stop = size
                if is_text and size - start > shard_bytes + shard_bytes // 2:
                    stop = boundary(source, start + shard_bytes, suffix in CUT_AT_BLANK) or size
                yield Piece(file, start, stop, size)
                start = stop


def boundary(source: Any, place: int, is_blank: bool) -> int | None:
    """Find the first place from `place` on at which a file may be cut; `None` if there is none."""
    source.seek(place - 1)
    source.readline()  # the rest of a line
    while line := source.readline():
        if not is_blank or not line.strip():
            here = source.tell()
            following = source.read(4)
            if not following:
                return None
            source.seek(here)
            if not following.startswith((BOM, *MARKS)):  # which mean something at the beginning of a file
                return here
    return None


@contextmanager
def local_file(piece: Piece, folder: Path) -> Iterator[Path]:
    """Give a file of this machine with the contents of a piece: the file itself, or a copy in `folder`."""
    if piece.is_whole and not is_remote(piece.file):
        yield Path(piece.file)
        return
    copy = folder / f"piece{''.join(Path(piece.file).suffixes[-2:])}"
    with copy.open("wb") as target:
        target.writelines(portions(piece.file, piece.start, piece.stop))
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def lines_before(piece: Piece) -> int:
    """Count the lines of a file before a piece of it, to name the place of what is bad."""
    return sum(portion.count(b"\n") for portion in portions(piece.file, 0, piece.start))


def portions(file: str, start: int, stop: int) -> Iterator[bytes]:
    """Read the bytes of a file from `start` up to `stop`, so many at a time that they fit into memory."""
    with reaching(file) as (store, path), store.open(path, "rb") as source:
        source.seek(start)
        while start < stop and (portion := source.read(min(stop - start, 2**22))):
            yield portion
            start += len(portion)
