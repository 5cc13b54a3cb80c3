"""Files opened for reading, compressed or not, and the lines of those that hold text.

A compressed file is read as a stream, and the place where it breaks off is known. Text is UTF-8; a file whose
first bytes say that it is of another encoding is not read. Other bytes become surrogates (PEP 383), which
no text holds, so that a bad line does not end the reading. No line is read beyond the most characters that a
record may have: a small compressed file may hold one of any length. Nor is more of a file decompressed than
`most_bytes`.
"""

import codecs
import gzip
import shlex
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

import pyarrow

from .problems import DamageError, Limit, foreign_character

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Ending of a compressed file -> Arrow's name for what it is compressed by."""

DECOMPRESSORS = {".gz": "gzip -dc", ".zst": "zstd -dc"}
"""Ending of a compressed file -> the command that decompresses it."""

MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Byte order mark at the beginning of a file -> its encoding; that of UTF-32 begins like that of UTF-16."""

BYTES_AT_ONCE = 2**20

MOST_GROWTH = 100
"""How many times its size a file may become: text becomes ten times at most, and zeros a thousand times."""

LEAST_MOST = 2**28
"""Bytes that any file may become, however small it is."""


def most_bytes(file: Path) -> int:
    """Return how many bytes a file may become when it is decompressed."""
    return max(LEAST_MOST, MOST_GROWTH * file.stat().st_size)


def ending(path: PurePath) -> str:
    """Return the ending of a file's name without its compression, in lower case."""
    name = PurePath(path.name.lower())
    return PurePath(name.stem).suffix if name.suffix in COMPRESSIONS else name.suffix


@contextmanager
def seekable(file: Path) -> Iterator[BinaryIO]:
    """Open a file whose reader begins at its end; of a compressed one, give a decompressed copy."""
    if file.suffix.lower() not in COMPRESSIONS:
        with file.open("rb") as source:
            yield source
        return
    with tempfile.TemporaryFile() as whole:
        with damage_at(lambda: 1), decompressed(file) as source:
            shutil.copyfileobj(source, whole)
        yield whole


def lines_of(file: Path, limit: Limit, newline: str | None = None) -> Iterator[tuple[int, str]]:
    """Read the lines of a file, numbered from 1; one that is too long is cut where it shows.

    Args:
        limit: One character more is read of a line.

    Raises:
        DamageError: The file breaks off, or is not UTF-8.
    """
    number, most = 0, limit.characters + 1
    with damage_at(lambda: number + 1), text_of(file, newline) as text:
        while line := text.readline(most):
            number += 1
            yield number, line
            while len(line) == most and not line.endswith(("\n", "\r")):  # pass over its rest
                line = text.readline(most)


def text_of(file: Path, newline: str | None = None) -> TextIOWrapper:
    """Open a file of text behind its byte order mark; one that is not UTF-8 is a `DamageError`."""
    source = decompressed(file)
    head = source.peek(4)
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            source.close()
            raise DamageError(1) from ValueError(f"it is {encoding}, not UTF-8: {conversion(file, encoding)}")
    if head.startswith(codecs.BOM_UTF8):
        source.read(len(codecs.BOM_UTF8))
    return TextIOWrapper(source, "utf-8", errors="surrogateescape", newline=newline)


def decompressed(file: Path) -> BufferedReader:
    """Open a file for reading its contents forwards.

    Whoever reads gets a `ValueError` where more than `most_bytes` would be decompressed.
    """
    compression = COMPRESSIONS.get(file.suffix.lower())
    if compression is None:
        return cast(BufferedReader, file.open("rb", buffering=BYTES_AT_ONCE))
    if file.stat().st_size == 0:
        raise EOFError("it is empty")
    if compression == "gzip":  # Arrow takes the zeros behind a file from a tape for damage
        return BufferedReader(_Bounded(gzip.open(file), file), BYTES_AT_ONCE)
    return BufferedReader(_Bounded(pyarrow.input_stream(str(file), compression), file), BYTES_AT_ONCE)


class _Bounded(RawIOBase):
    # What is decompressed of a file, up to the most that it may become.
    def __init__(self, source: Any, file: Path):
        self.source, self.file, self.room = source, file, most_bytes(file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        portion = self.source.read1(len(buffer))  # what stands before damage comes first
        buffer[: len(portion)] = portion
        self.room -= len(portion)
        if self.room < 0:
            command = f"{DECOMPRESSORS[self.file.suffix.lower()]} {shlex.quote(str(self.file))} > NEW_FILE"
            raise ValueError(
                f"{self.file} decompresses to more than {most_bytes(self.file):,} bytes, far more than a "
                f"file of its size should: decompress it yourself ({command}), and name the new file"
            )
        return len(portion)

    def close(self) -> None:
        self.source.close()
        super().close()


@contextmanager
def damage_at(number: Callable[[], int]) -> Iterator[None]:
    """Raise a `DamageError` with the line or row from which on a file is not understood."""
    try:
        yield
    except (pyarrow.ArrowException, zlib.error, OSError, EOFError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) is not None:  # of the machine, not of the file
            raise
        raise DamageError(number()) from error


def problem_of_bytes(text: str, file: Path) -> str:
    """Describe what in the contents of a file is no text; empty if everything is."""
    character = foreign_character(text)
    if character == "\0":
        return f"a NUL byte is no text; if the file is UTF-16, convert it: {conversion(file, 'UTF-16LE')}"
    if not character:
        return ""
    return (
        f"byte 0x{ord(character) - 0xDC00:02x} is not UTF-8; convert the file from the encoding that it has, "
        f"such as WINDOWS-1252: {conversion(file, 'WINDOWS-1252')}"
    )


def conversion(file: Path, encoding: str) -> str:
    name, decompress = shlex.quote(str(file)), DECOMPRESSORS.get(file.suffix.lower())
    convert = f"iconv -f {encoding} -t UTF-8"
    return f"{decompress} {name} | {convert} > NEW_FILE" if decompress else f"{convert} {name} > NEW_FILE"
