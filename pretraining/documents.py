"""Documents: the texts that a model learns from, found and read by `datasets`.

    .txt                 lines of sentences or paragraphs, a blank line between documents
    .jsonl .csv .tsv     a row is a document, its text in the column `text` or another
    .parquet             the same
    .gz .zst             any of these, compressed: part.txt.gz
    a folder, a list     of such files, in the order of their names, in the order given
    name, name:config    a data set on the Hub: the only source that needs a network
    documentation        the embedded corpus (`documentation.py`)

Files are read as a stream, so nothing is copied and nothing must fit into memory: what should be read more
than once is tokenized once (`tokenization.py`).
"""

import logging
import re
import shutil
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import fsspec
import zstandard
from datasets import Dataset, IterableDataset, load_dataset

from .cache import cache_folder
from .documentation import documentation_file

Source = str | Path | Sequence[str | Path]
"""What a recipe may name as a corpus."""

Row = Mapping[str, Any]

READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".txt": ("text", {"encoding": "utf-8-sig"}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t"}),
    ".parquet": ("parquet", {}),
}
"""Ending of a file -> the builder of `datasets` that reads it, and that builder's options."""

COMPRESSIONS = (".gz", ".zst")
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")
ROWS_AT_ONCE = 1000

# Its readers log a broken file before they raise: the user would be told twice.
logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Documents(ABC):
    """Texts that can be read as often as one likes, always in the same order."""

    column: str
    """Column of the text, where rows have columns."""
    required: tuple[str, ...]
    """Columns that a row must all have filled: both, for the sides of a pair to stay in step."""

    def __iter__(self) -> Iterator[str]:
        """Read the documents; empty ones are left out."""
        is_empty = True
        for row in self.rows():
            texts = {name: _text(row, name, self.name) for name in self.required}
            if all(texts.values()):
                is_empty = False
                yield texts[self.column]
        if is_empty:
            raise ValueError(f"corpus {self.name} has no text: give a file with at least one document")

    @property
    @abstractmethod
    def name(self) -> str:
        """Name the source as its user did."""

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Read the rows, one after another."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Describe the source so that it reads differently when its contents may have changed."""


@dataclass(frozen=True)
class FileDocuments(Documents):
    """Documents in files on this machine."""

    files: tuple[Path, ...]

    @property
    def name(self) -> str:
        """Name the file, or the first of several."""
        first, *others = self.files
        return f"{first} and {len(others)} more" if others else str(first)

    def rows(self) -> Iterator[Row]:
        """Read one file after another.

        Raises:
            ValueError: A file is broken; the message names it.
        """
        for file in self.files:
            try:
                yield from _rows_of_file(file)
            except UnicodeDecodeError as error:
                byte = f"0x{error.object[error.start]:02x}"
                raise ValueError(
                    f"{file} is not UTF-8 (byte {byte}): convert it, e.g. with iconv -t utf-8"
                ) from error
            except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
                raise ValueError(
                    f"{file} cannot be read ({_first_line(error)}): copy or pack it again"
                ) from error
            except _ReadingError as error:
                raise ValueError(
                    f"{file} is not valid {_ending(file)} ({_first_line(error.__cause__)}): correct the file"
                ) from error

    def fingerprint(self) -> str:
        """List paths, sizes and times of last change."""
        stats = [(str(file.resolve()), file.stat()) for file in self.files]
        return repr([self.column, self.required, [(path, s.st_size, s.st_mtime_ns) for path, s in stats]])


@dataclass(frozen=True)
class HubDocuments(Documents):
    """Documents of a data set on the Hub."""

    dataset: str
    config: str | None
    split: str
    streaming: bool
    """Read over the network, again each time, instead of downloading once."""

    @property
    def name(self) -> str:
        """Name the data set, its configuration and split."""
        return f"{self.dataset}{f':{self.config}' if self.config else ''} ({self.split})"

    def rows(self) -> Iterator[Row]:
        """Read the data set's rows."""
        return _rows(self._open())

    def fingerprint(self) -> str:
        """Describe the data set by what `datasets` computed from its files."""
        return repr([self.column, self.required, self.name, getattr(self._open(), "_fingerprint", None)])

    def _open(self) -> Dataset | IterableDataset:
        try:
            return load_dataset(self.dataset, self.config, split=self.split, streaming=self.streaming)  # pyright: ignore[reportReturnType]
        except Exception as error:  # whatever a network, a Hub and a foreign data set may do
            raise ValueError(
                f"corpus {self.name} is neither a file or folder here nor a data set that could be loaded "
                f"({_first_line(error)}): check the name, or the network"
            ) from error


def open_documents(
    source: Source,
    *,
    column: str = "text",
    required: Sequence[str] = (),
    split: str = "train",
    streaming: bool = False,
    cache: str | Path | None = None,
) -> Documents:
    """Find the documents that a recipe names.

    Args:
        source: A file, a folder, a list of them, a Hub id with or without `:config`, or `documentation`.
        column: Column of the text, where rows have columns.
        required: For pairs: both columns. Rows in which one is empty are left out on either side.
        split: `train` or `validation`, where the source itself is divided: the embedded corpus and the Hub.
        streaming: Do not download a data set of the Hub, read it over the network.
        cache: Folder for the embedded corpus.

    Raises:
        FileNotFoundError: A named file or folder does not exist.
        ValueError: A file has an unknown ending, or a folder has no file with a known one.
    """
    required = tuple(required) or (column,)
    if source == "documentation":
        file = documentation_file(split, cache_folder(cache))
        return FileDocuments("text", ("text",), (file,))
    if isinstance(source, str) and not _is_path(source):
        dataset, _, config = source.partition(":")
        return HubDocuments(column, required, dataset, config or None, split, streaming)
    sources = [source] if isinstance(source, str | Path) else source
    files = tuple(file for entry in sources for file in _files(Path(entry).expanduser()))
    if not files:
        raise ValueError(f"corpus is {source!r}: name at least one file")
    return FileDocuments(column, required, files)


def _is_path(source: str) -> bool:
    """Tell a path from a Hub id: what exists is a path, and what could not be an id."""
    path = Path(source).expanduser()
    return path.exists() or not HUB_ID.fullmatch(source) or source.startswith(".") or _ending(path) in READERS


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and _ending(file) in READERS)
        if not files:
            raise ValueError(f"folder {path} has no corpus files: their names end in {_known_endings()}")
        return files
    if not path.exists():
        raise FileNotFoundError(f"corpus {path} does not exist: check the path, relative to {Path.cwd()}")
    if _ending(path) not in READERS:
        raise ValueError(f"corpus {path} has an unknown ending: use {_known_endings()}")
    return [path]


def _ending(path: Path) -> str:
    """Ending of a file's name without its compression, in lower case."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix in COMPRESSIONS else name.suffix


def _known_endings() -> str:
    return f"{', '.join(READERS)} (each also with {' or '.join(COMPRESSIONS)})"


class _ReadingError(Exception):
    """A reader of `datasets` refused a file; its cause says why."""


def _rows_of_file(file: Path) -> Iterator[Row]:
    rows = _rows_of_table(file)
    if _ending(file) != ".txt":
        return rows
    lines = (row["text"] for row in rows)
    return ({"text": "\n".join(group)} for has_text, group in groupby(lines, _has_text) if has_text)


def _has_text(line: str) -> bool:
    return bool(line.strip())


def _rows_of_table(file: Path) -> Iterator[Row]:
    builder, options = READERS[_ending(file)]
    if file.suffix.lower() == ".zst":
        _raise_if_cut_off(file)
    with tempfile.TemporaryDirectory() as folder:
        readable = _unpacked(file, Path(folder)) if builder == "parquet" else file
        try:
            yield from _rows(
                load_dataset(builder, data_files=str(readable), split="train", streaming=True, **options)
            )
        except (UnicodeDecodeError, OSError, EOFError, zlib.error, zstandard.ZstdError):
            raise
        except Exception as error:  # each reader has exceptions of its own (pyarrow, pandas, json)
            raise _ReadingError from error


def _unpacked(file: Path, folder: Path) -> Path:
    """Unpack a Parquet file: its reader begins at the end, and compressed files are read forwards."""
    if file.suffix.lower() not in COMPRESSIONS:
        return file
    unpacked = folder / "unpacked.parquet"
    with fsspec.open(str(file), "rb", compression="infer") as packed, unpacked.open("wb") as target:
        shutil.copyfileobj(packed, target)  # pyright: ignore[reportArgumentType]
    return unpacked


def _raise_if_cut_off(file: Path) -> None:
    """Raise an error if a Zstandard file is incomplete: its readers take that for the end of the text."""
    frame = None
    with file.open("rb") as packed:
        while chunk := packed.read(2**20):
            while chunk:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                frame.decompress(chunk)
                chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("it breaks off")


def _rows(dataset: Dataset | IterableDataset) -> Iterator[Row]:
    for columns in cast(Iterator[dict[str, list[Any]]], dataset.iter(batch_size=ROWS_AT_ONCE)):
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))


def _text(row: Row, column: str, name: str) -> str:
    if column not in row:
        columns = ", ".join(row)
        raise ValueError(
            f"corpus {name} has no column {column!r}: set text_column to one of its columns ({columns})"
        )
    value = row[column]
    return "" if value is None else str(value).strip()


def _first_line(error: BaseException | None) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
