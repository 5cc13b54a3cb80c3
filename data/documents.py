"""Documents: the texts that a model learns from, found and read.

    .txt .text           lines of sentences or paragraphs, a blank line between documents
    .md                  a file is a document
    .jsonl .csv .tsv     a row is a document, its text in the column `text` or another
    .json .parquet       the same; JSON is a list of objects, or lines of them
    .gz .zst             any of these, compressed: part.txt.gz
    a folder, a list     of such files, in the order of their names, in the order given
    name, name:config    a data set on the Hub: the only source that needs a network
    documentation        the embedded corpus (`embedded_corpus.py`)
    .../manifest.json    a prepared corpus, of tokens alone (`prepared.py`)

Files are read as streams: what is read more than once is tokenized once (`tokenizers/tokenization.py`).
No more of a record is held than `corpus.largest_record` characters (268 million by default), whatever a
compressed file holds: a bound of 16 million keeps reading below 100 MB. A longer record is a bad one.

What an editor, a notebook or a system leaves beside files is no text of a corpus: copies of older versions,
swap files, resource forks. Their names begin with a dot, or they lie in `__MACOSX`. A README describes the
files beside it. A warning names what is left out of a folder.
"""

import logging
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Self, cast

from ..configs.messages import first_line
from ..configs.model_paths import nearest
from ..configs.named_files import named_path
from .cache import cache_folder
from .files.compressed_files import COMPRESSIONS, ending
from .files.problems import TEXT_REMEDY, Limit, Place, Record, Tally, problem_of_texts, usable
from .files.reading import KNOWN_ENDINGS, READERS, naming_keys, read, require_columns
from .identities import identify_file

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

Source = str | Path | Sequence[str | Path]
"""What a recipe may name as a corpus."""

EMBEDDED = "documentation"
"""Name of the embedded corpus."""

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")
ROWS_AT_ONCE = 1000

# Its readers log a broken file before they raise: the user would read it twice.
logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Documents(ABC):
    """Texts that can be read as often as one likes, always in the same order."""

    column: str
    """Column of the text, where rows have columns."""
    required: tuple[str, ...]
    """Columns that a record must all have: both, for the sides of a pair to stay in step."""
    skip_bad_records: bool
    """Whether bad records are left out and counted, with a warning, instead of being refused."""
    limit: Limit
    """How long a record may be."""

    def __iter__(self) -> Iterator[str]:
        """Read the documents, and warn at the end if some were skipped."""
        tally = Tally()
        yield from self.read(tally)
        tally.warn(self.name)

    def read(self, tally: Tally) -> Iterator[str]:
        """Read the documents and count what is met; empty ones are left out."""
        is_empty, problem_of = True, partial(problem_of_texts, columns=self.required)
        for _, row in usable(self.records(), tally, problem_of, TEXT_REMEDY, skip=self.skip_bad_records):
            texts = {name: (row[name] or "").strip() for name in self.required}
            if all(texts.values()):
                is_empty = False
                yield texts[self.column]
            elif any(texts.values()):
                tally.one_sided += 1
        if is_empty:
            reason = f" ({tally})" if tally.left_out else ""
            raise no_text(self.name, reason)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of a recipe that name the columns."""
        is_pair = len(self.required) > 1
        keys = ("corpus.source_column", "corpus.target_column") if is_pair else ("corpus.text_column",)
        return dict(zip(self.required, keys, strict=True))

    @property
    @abstractmethod
    def name(self) -> str:
        """Name the source as its user did."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Read the records, one after another."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Describe the source so that it reads differently when its contents may have changed."""

    @abstractmethod
    def identify(self) -> list[dict[str, Any]]:
        """Identify the text, so that others can tell whether theirs is the same."""

    def _reading(self) -> tuple[object, ...]:
        return self.column, self.required, self.skip_bad_records, self.limit.characters


@dataclass(frozen=True)
class FileDocuments(Documents):
    """Documents in files on this machine."""

    files: tuple[Path, ...]
    cache: Path
    """Folder in which hashes of files are kept for the next time."""

    @property
    def name(self) -> str:
        first, *others = self.files
        return f"{first} and {len(others)} more" if others else str(first)

    def records(self) -> Iterator[Record]:
        with naming_keys(self.keys):
            for file in self.files:
                yield from read(file, self.required, self.limit)

    def fingerprint(self) -> str:
        # Hashing takes a hundredth of the time that tokenizing does.
        return repr([*self._reading(), [(each["name"], each["sha256"]) for each in self.identify()]])

    def identify(self) -> list[dict[str, Any]]:
        return [identify_file(file, self.cache) for file in self.files]


@dataclass(frozen=True)
class HubDocuments(Documents):
    """Documents of a data set on the Hub, of one `split` of one `config` of a `dataset`."""

    dataset: str
    config: str | None
    split: str
    streaming: bool
    """Read over the network, again each time, instead of downloading once."""

    @property
    def name(self) -> str:
        return f"{self.dataset}{f':{self.config}' if self.config else ''} ({self.split})"

    def records(self) -> Iterator[Record]:
        dataset, number = self._open(), 0
        if dataset.column_names:  # which not every stream knows
            with naming_keys(self.keys):
                require_columns(f"corpus {self.name}", dataset.column_names, self.required)
            dataset = dataset.select_columns(list(self.required))  # pictures and sounds stay encoded
        try:
            for columns in cast(Iterator[dict[str, list[Any]]], dataset.iter(batch_size=ROWS_AT_ONCE)):
                for values in zip(*columns.values(), strict=True):
                    number += 1
                    yield Place(self.name, number), dict(zip(columns, values, strict=True))
        except Exception as error:  # whatever a network and a foreign data set may do
            raise ValueError(
                f"corpus {self.name} broke off after row {number} ({first_line(error)}): check the network"
            ) from error

    def fingerprint(self) -> str:
        return repr([*self._reading(), self.name, self._version()])

    def identify(self) -> list[dict[str, Any]]:
        return [{"name": self.name, "dataset": self.dataset, "fingerprint": self._version()}]

    def _version(self) -> str:
        # Of a stream, whose rows are not known, the Hub's commit.
        from datasets import load_dataset_builder

        version = getattr(self._open(), "_fingerprint", None)
        return version or str(load_dataset_builder(self.dataset, self.config).hash)

    def _open(self) -> "Dataset | IterableDataset":
        from .files.data_sets import load_dataset  # takes a second, which files do without

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
    skip_bad_records: bool = False,
    largest_record: int = Limit().characters,
    cache: str | Path | None = None,
) -> Documents:
    """Find the documents that a recipe names.

    Args:
        source: A file, a folder, a list of them, a Hub id with or without `:config`, or `documentation`.
        column: Column of the text, where rows have columns.
        required: For pairs: both columns. Rows in which one is empty are left out on either side.
        split: `train` or `validation`, where the source itself is divided: the embedded corpus and the Hub.
        streaming: Do not download a data set of the Hub, read it over the network.
        skip_bad_records: Leave out and count what cannot be read, instead of refusing it.
        largest_record: Characters of a record at most; one that is longer is bad.
        cache: Folder for the embedded corpus, and for hashes of files.
    """
    required = tuple(required) or (column,)
    limit = Limit(largest_record, "corpus.largest_record=... allows for more")
    if source == EMBEDDED:
        from .embedded_corpus import documentation_file

        file = documentation_file(split, cache_folder(cache))
        return FileDocuments("text", ("text",), skip_bad_records, limit, (file,), cache_folder(cache))
    if isinstance(source, str) and not _is_path(source):
        dataset, _, config = source.partition(":")
        return HubDocuments(
            column, required, skip_bad_records, limit, dataset, config or None, split, streaming
        )
    sources = [source] if isinstance(source, str | Path) else source
    found = [(str(entry), find_files(named_path(entry, "corpus"))) for entry in sources]
    require_apart("corpus", found)
    files = tuple(file for _, files in found for file in files)
    if not files:
        raise ValueError(f"corpus is {source!r}: name at least one file")
    if not any(file.stat().st_size or file.suffix.lower() in COMPRESSIONS for file in files):
        raise no_text(str(files[0] if len(files) == 1 else source))
    return FileDocuments(column, required, skip_bad_records, limit, files, cache_folder(cache))


def require_unchanged(documents: Iterable[Documents], fingerprints: Iterable[str]) -> None:
    """Make sure that texts which were read are those that had these fingerprints; kept hashes make it cheap.

    What the Hub has is not asked for again.
    """
    for text, fingerprint in zip(documents, fingerprints, strict=True):
        if not isinstance(text, HubDocuments) and text.fingerprint() != fingerprint:
            raise ValueError(
                f"corpus {text.name} has changed while it was read, so nothing of it is kept: start again "
                "when it is complete"
            )


def no_text(source: str, reason: str = "") -> ValueError:
    return ValueError(f"corpus {source} has no text{reason}: give a file with at least one document")


def _is_path(source: str) -> bool:
    # No id of the Hub: it exists, or could not be one.
    path = named_path(source, "corpus")
    return path.exists() or not HUB_ID.fullmatch(source) or source.startswith(".") or ending(path) in READERS


RESOURCE_FORKS = "__MACOSX"
"""Folder that archives made by macOS have, with a file for each of theirs."""

README = "readme"

SHOWN = 5
"""Names of left-out files that a message has, at most."""


def find_files(path: Path) -> list[Path]:
    """Find a corpus file, or those of a folder and of the folders in it, in the order of their names.

    Links are followed. What is named by itself is read whatever its name is but for the ending; of a folder,
    what is hidden or has another ending than a corpus file is left out.
    """
    try:
        if path.is_dir():
            left_out: list[Path] = []
            files = list(_files_below(path, (), left_out))
            require_texts(path, *([each.relative_to(path) for each in some] for some in (files, left_out)))
            return files
        if not path.exists():
            remedy = nearest(path, Path.exists, f"check the path, relative to {Path.cwd()}")
            raise FileNotFoundError(f"corpus {path} does not exist: {remedy}")
    except PermissionError as error:
        raise ValueError(f"{error.filename} cannot be read: check its permissions") from error
    if ending(path) not in READERS:
        raise ValueError(f"corpus {path} has an unknown ending: use {KNOWN_ENDINGS}")
    return [_file(path)]


def _files_below(folder: Path, above: tuple[Path, ...], left_out: list[Path]) -> Iterator[Path]:
    if folder.resolve() in above:
        raise ValueError(f"{folder} is a link to a folder that contains it: remove it, or list the files")
    for path in sorted(folder.iterdir()):
        if is_hidden(path.name):
            left_out.append(path)
        elif path.is_dir():
            yield from _files_below(path, (*above, folder.resolve()), left_out)
        elif is_text(path):
            yield _file(path)
        else:
            left_out.append(path)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is passed over in a folder, with all that is in it."""
    return name.startswith(".") or name == RESOURCE_FORKS


def is_text(file: PurePath) -> bool:
    """Return whether a file in a folder is text of a corpus, by its name."""
    return ending(file) in READERS and file.name.lower().partition(".")[0] != README


def require_texts(folder: str | Path, files: Sequence[PurePath], left_out: Sequence[PurePath]) -> None:
    """Make sure that a folder has text, and none twice; tell what is left out."""
    names = ", ".join(str(path)[-60:] for path in left_out[:SHOWN])
    if len(left_out) > SHOWN:
        names += f" and {len(left_out) - SHOWN:,} more"
    if not files:
        raise ValueError(
            f"folder {folder} has no corpus files{f' but {names}' if names else ''}: their names end "
            f"in {KNOWN_ENDINGS}"
        )
    found: dict[PurePath, PurePath] = {}  # of `base.txt` beside `base.txt.gz`, the text would count twice
    for file in files:
        plain = file.with_suffix("") if file.suffix.lower() in COMPRESSIONS else file
        if (other := found.setdefault(plain, file)) is not file:
            inner = "/".join([str(folder).rstrip("/"), *file.parent.parts])
            raise ValueError(
                f"folder {inner} has {other.name} and {file.name}, which by their names are the same "
                f"text: remove one, or list the files to read"
            )
    if names:
        warnings.warn(f"folder {folder}: {names} left out, as no text of the corpus", stacklevel=3)


def require_apart(key: str, found: Iterable[tuple[str, Sequence[Path | str]]]) -> None:
    """Refuse a file that two texts of a recipe have, be it by another path: its text would count twice.

    Args:
        found: What it names, each with its files or addresses.
    """
    owners: dict[Path | str, str] = {}
    for name, files in found:
        places = {file.resolve() if isinstance(file, Path) else file: file for file in files}
        if shared := next((place for place in places if place in owners), None):
            raise ValueError(
                f"{key}: {owners[shared]} and {name} both have {places[shared]}, whose text would count "
                "twice: name it once"
            )
        owners |= dict.fromkeys(places, name)


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"corpus {path} is not a file but a pipe, a device or a broken link: remove it")
    return path


@dataclass(frozen=True)
class MixedDocuments(Documents):
    """The documents of several texts, each with a name, one text after another."""

    parts: Mapping[str, Documents]
    """The texts, by name."""

    @classmethod
    def of(cls, parts: Mapping[str, Documents]) -> Self:
        """Put texts that are read alike together."""
        first = next(iter(parts.values()))
        return cls(first.column, first.required, first.skip_bad_records, first.limit, parts)

    @property
    def name(self) -> str:
        return ", ".join(self.parts)

    def read(self, tally: Tally) -> Iterator[str]:
        return chain.from_iterable(part.read(tally) for part in self.parts.values())

    def records(self) -> Iterator[Record]:
        return chain.from_iterable(part.records() for part in self.parts.values())

    def fingerprint(self) -> str:
        return repr([part.fingerprint() for part in self.parts.values()])

    def identify(self) -> list[dict[str, Any]]:
        return [entry for part in self.parts.values() for entry in part.identify()]


def single_texts(documents: Documents) -> list[Documents]:
    """List the texts of a corpus, one or several."""
    return [*parts_of(documents).values()] or [documents]


def parts_of(documents: Documents) -> Mapping[str, Documents]:
    """Return the texts of a corpus of several by name; of one text, none."""
    return documents.parts if isinstance(documents, MixedDocuments) else {}
