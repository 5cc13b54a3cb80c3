"""Documents: the texts that a model learns from, found and read by `datasets`.

    .txt                 lines of sentences or paragraphs, a blank line between documents
    .jsonl .csv .tsv     a row is a document, its text in the column `text` or another
    .parquet             the same
    .gz .zst             any of these, compressed: part.txt.gz
    a folder, a list     of such files, in the order of their names, in the order given
    name, name:config    a data set on the Hub: the only source that needs a network
    documentation        the embedded corpus (`documentation.py`)

Files are read as streams: what should be read more than once is tokenized once (`tokenization.py`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset, IterableDataset, load_dataset

from .cache import cache_folder
from .corpus_files import KNOWN_ENDINGS, READERS, Row, ending, first_line, rows_of_dataset, rows_of_file
from .documentation import documentation_file

Source = str | Path | Sequence[str | Path]
"""What a recipe may name as a corpus."""

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")


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
        """Read one file after another."""
        for file in self.files:
            yield from rows_of_file(file)

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
        return rows_of_dataset(self._open())

    def fingerprint(self) -> str:
        """Describe the data set by what `datasets` computed from its files."""
        return repr([self.column, self.required, self.name, getattr(self._open(), "_fingerprint", None)])

    def _open(self) -> Dataset | IterableDataset:
        try:
            return load_dataset(self.dataset, self.config, split=self.split, streaming=self.streaming)  # pyright: ignore[reportReturnType]
        except Exception as error:  # whatever a network, a Hub and a foreign data set may do
            raise ValueError(
                f"corpus {self.name} is neither a file or folder here nor a data set that could be loaded "
                f"({first_line(error)}): check the name, or the network"
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
    return path.exists() or not HUB_ID.fullmatch(source) or source.startswith(".") or ending(path) in READERS


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and ending(file) in READERS)
        if not files:
            raise ValueError(f"folder {path} has no corpus files: their names end in {KNOWN_ENDINGS}")
        return files
    if not path.exists():
        raise FileNotFoundError(f"corpus {path} does not exist: check the path, relative to {Path.cwd()}")
    if ending(path) not in READERS:
        raise ValueError(f"corpus {path} has an unknown ending: use {KNOWN_ENDINGS}")
    return [path]


def _text(row: Row, column: str, name: str) -> str:
    if column not in row:
        columns = ", ".join(row)
        raise ValueError(
            f"corpus {name} has no column {column!r}: set text_column to one of its columns ({columns})"
        )
    value = row[column]
    return "" if value is None else str(value).strip()
