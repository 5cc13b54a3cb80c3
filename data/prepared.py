"""A prepared corpus: tokenized shard by shard, once, for any number of runs and machines.

    FOLDER/manifest.json               what there is: counts, hashes, the tokenizer's digest
    FOLDER/shards/00000/tokens         the arrays of a `TokenizedCorpus`, in the order of the shards:
                        word_starts    where words begin
                        ...
    FOLDER/index/sentence_offsets      where sentences and documents begin in the whole corpus, and the bytes
                 document_offsets      of documents: a tenth of the whole, so that nobody adds offsets up
                 document_bytes
    FOLDER/tokenizer/                  the tokenizer

`tercet prepare` writes it (`tools/prepare/`). Here it is read as one corpus, equal to what the same
documents, tokenized in one piece, would be: from a disk by memory map, or from an object store, where the
manifest's name is an address (`s3://bucket/corpus/manifest.json`), through a bounded
cache. The manifest names files relative to itself, so that a prepared corpus can be moved.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, SupportsIndex

import numpy as np

from ..configs.named_files import is_plain, is_remote
from .cache import cache_folder, made_once
from .corpus import TokenizedCorpus, mapped
from .documents import Documents, open_documents
from .files.problems import Limit, Record, Tally

MANIFEST = "manifest.json"
FORMAT = "tercet-corpus-2"
SHARDED = ("tokens", "word_starts")
"""Arrays that stay in shards."""
INDEXED = ("sentence_offsets", "document_offsets", "document_bytes")
"""Arrays of which the index has one for the whole corpus."""
SHARDS, INDEX, TOKENIZER = "shards", "index", "tokenizer"
PLAN = "work/plan.json"
"""File by which an unfinished corpus is known."""


@dataclass(frozen=True)
class Counts:
    """How many documents, sentences, words, tokens and bytes there are of a shard, or of the whole corpus."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    tokens: int = 0
    bytes: int = 0
    """Bytes of the documents' text in UTF-8."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, key.name) + getattr(other, key.name) for key in fields(self)))


@dataclass(frozen=True)
class Shard:
    """Documents that were prepared together."""

    name: str
    """Path of its folder, from the manifest's."""
    counts: Counts
    sha256: dict[str, str]
    """Array -> hash of its file."""
    tally: Tally
    """What was met while its text was read."""
    source: list[str]
    """What it was read from."""
    control_tokens: dict[str, int]
    """How often those stand in it."""


@dataclass(frozen=True)
class Manifest:
    """What a prepared corpus consists of."""

    counts: Counts
    tokenizer: dict[str, Any]
    """`digest` of how it reads text, `tokenizers`, the library's version, and `files` with their hashes."""
    kinds: dict[str, str]
    """Array -> kind of its numbers."""
    index: dict[str, str]
    """Array of the index -> hash of its file."""
    tally: Tally
    control_tokens: dict[str, int]
    """The tokens that were recognized in the text, and how often each stands there."""
    sources: list[dict[str, Any]]
    """The files that were read: names, sizes and, of those on a disk, hashes."""
    shards: list[Shard]
    options: dict[str, Any] = field(default_factory=dict)
    """Keys of the recipe that decide what is in the corpus."""

    def text(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, text: str, name: str) -> Self:
        try:
            data = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            data["counts"], data["tally"] = Counts(**data["counts"]), Tally(**data["tally"])
            data["shards"] = [shard_of(each) for each in data["shards"]]
            digests = [
                *data["index"].values(),
                *(one for shard in data["shards"] for one in shard.sha256.values()),
            ]
            names = [part for shard in data["shards"] for part in shard.name.split("/")]
            if not all(map(is_plain, [*digests, *names])):
                raise ValueError("it names files elsewhere")
            return cls(**data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"{name} is no manifest of a prepared corpus ({reason:.200}): name one that `tercet prepare` "
                "of this version wrote"
            ) from None


def shard_of(data: dict[str, Any]) -> Shard:
    return Shard(**{**data, "counts": Counts(**data["counts"]), "tally": Tally(**data["tally"])})


def manifest_of(source: Any) -> str | None:
    """Name the manifest that a recipe means by a text's path; `None` if it is another text."""
    if not isinstance(source, str | Path):
        return None
    name = str(source)
    if is_remote(name):
        if not name.endswith(f"/{MANIFEST}"):
            raise ValueError(
                f"corpus {name} is a remote address: name the {MANIFEST} of a prepared corpus there, or "
                f"prepare this text with `tercet prepare`, which reads such addresses"
            )
        return name
    path = Path(name).expanduser()
    if (path / PLAN).is_file() and not (path / MANIFEST).exists():
        raise ValueError(f"{path} holds a corpus that is not finished: run its `tercet prepare` again")
    path = path / MANIFEST if path.is_dir() else path
    if path.name != MANIFEST or not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        return str(path) if FORMAT.rpartition("-")[0] in file.read(200) else None


@dataclass(frozen=True)
class PreparedDocuments(Documents):
    """Documents of a prepared corpus: their tokens, whose text is not read again."""

    manifest: Manifest
    location: str
    """The manifest's path or address."""
    digest: str
    """SHA-256 of the manifest."""
    cache: Path
    """The folder of all caches."""
    most_bytes: int
    """What copies of remote files may take."""

    @property
    def name(self) -> str:
        return self.location

    def records(self) -> Iterator[Record]:
        self.refuse("something reads the text itself")

    def refuse(self, why: str) -> NoReturn:
        raise ValueError(
            f"{self.location} holds tokens, not text ({why}): name the text it was made of, or change that"
        )

    def fingerprint(self) -> str:
        return self.digest

    def identify(self) -> list[dict[str, Any]]:
        return [{"name": self.location, "bytes": self.manifest.counts.bytes, "sha256": self.digest}]

    def corpus(self, digest: str) -> TokenizedCorpus:
        """Open the corpus for a tokenizer that reads text as `digest` says."""
        own = self.manifest.tokenizer
        if own["digest"] != digest:
            raise ValueError(
                f"{self.location} was prepared by another tokenizer, or with other corpus.control_tokens "
                f"(digest {own['digest'][:12]} by tokenizers {own['tokenizers']}; here {digest[:12]}): leave "
                "tokenizer.path out to use the one it was prepared by, or prepare the text with this one"
            )
        return open_corpus(self.location, self.cache, self.most_bytes)

    def tokenizer_folder(self) -> Path:
        """Return the folder of the tokenizer; of a remote corpus, that of a copy in the cache."""
        if not is_remote(self.location):
            return Path(self.location).parent / TOKENIZER

        def make(folder: Path) -> None:
            for name, digest in self.manifest.tokenizer["files"].items():
                contents = read_bytes(beside(self.location, TOKENIZER, name))
                file = folder / name
                is_here = file.resolve().is_relative_to(folder.resolve())
                if hashlib.sha256(contents).hexdigest() != digest or not is_here:
                    raise ValueError(f"{self.location}: {TOKENIZER}/{name} is damaged: copy it anew")
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(contents)

        return made_once(self.cache / "tokenizers" / self.digest[:24], make)


REMOTE_CACHE = 2**36
"""Bytes that copies of remote files take by default."""


def open_source(
    source: Any, *, cache: str | Path | None = None, remote_cache: int = REMOTE_CACHE, **options: Any
) -> Documents:
    """Find the documents that a recipe names: a prepared corpus, by its manifest or its folder, or text.

    Args:
        source: A path, the address of a manifest, or what else `open_documents` knows.
        remote_cache: Bytes that copies of files of a remote corpus may take there.
    """
    location = manifest_of(source)
    if location is None:
        return open_documents(source, cache=cache, **options)
    contents = read_bytes(location)
    column = options.get("column", "text")
    return PreparedDocuments(
        column,
        tuple(options.get("required", ())) or (column,),
        options.get("skip_bad_records", False),
        Limit(),
        Manifest.read(contents.decode("utf-8", "replace"), location),
        location,
        hashlib.sha256(contents).hexdigest(),
        cache_folder(cache),
        remote_cache,
    )


class PiecewiseArray:
    """An array (N,) in pieces, which lie in files, read as one: its length, slices, and values at places.

        piece 0          piece 1        piece 2
        [ . . . . . ] [ . . . . ] [ . . . . . . . ]   array[4:12] is a view of one piece, or joined of several
                  ^------------------^                array.take(places) looks in each piece once

    A piece is opened when something in it is read, and by whoever holds the files: mapped into memory for
    good, or for a while, as copies of what lies elsewhere (`files/remote_files.py`).

    Args:
        open_piece: Gives a piece by its number, whenever something in it is read.
    """

    def __init__(self, sizes: Sequence[int], kind: np.dtype, open_piece: Callable[[int], np.ndarray]):
        self.bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.dtype = kind
        self.open_piece = open_piece

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, where: Any) -> Any:
        """Return a value, the values of a slice, or those at an array of places, as NumPy does."""
        if isinstance(where, slice):
            start, stop, step = where.indices(len(self))
            return self._between(start, stop) if step == 1 else self.take(np.arange(start, stop, step))
        if np.ndim(where) == 0 and isinstance(where, SupportsIndex):
            place = where.__index__()
            if not -len(self) <= place < len(self):
                raise IndexError(f"index {place} is out of bounds for size {len(self)}")
            return self.take(np.array([place % len(self)]))[0]
        where = np.asarray(where)
        return self.take(np.flatnonzero(where) if where.dtype == bool else where)

    def take(self, places: Any, mode: Literal["raise", "clip"] = "raise") -> np.ndarray:
        """Return the values at places, as `numpy.take` does."""
        places = np.asarray(places)
        if mode == "clip":
            places = places.clip(0, len(self) - 1)
        elif places.size and not (-len(self) <= places.min() and places.max() < len(self)):
            raise IndexError(f"an index is out of bounds for size {len(self)}")
        else:
            places = np.where(places < 0, places + len(self), places)
        if places.size and (number := self._piece_of(int(places.min()))) == self._piece_of(int(places.max())):
            return self.open_piece(number).take(places - self.bounds[number])
        taken = np.empty(places.shape, dtype=self.dtype)
        piece_of_place = self.bounds.searchsorted(places, side="right") - 1
        for number in np.unique(piece_of_place):
            is_here = piece_of_place == number
            taken[is_here] = self.open_piece(int(number)).take(places[is_here] - self.bounds[number])
        return taken

    def astype(self, kind: Any) -> np.ndarray:
        return self._between(0, len(self)).astype(kind)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Join the values, for what needs all of them at once."""
        values = self._between(0, len(self))
        return values if dtype is None else values.astype(dtype)

    def _piece_of(self, place: int) -> int:
        return int(self.bounds.searchsorted(place, side="right")) - 1

    def _between(self, start: int, stop: int) -> np.ndarray:
        parts = []
        while start < stop:
            number = self._piece_of(start)
            first, end = int(self.bounds[number]), min(stop, int(self.bounds[number + 1]))
            parts.append(self.open_piece(number)[start - first : end - first])
            start = end
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, dtype=self.dtype)


def open_corpus(location: str, cache: Path, most_bytes: int) -> TokenizedCorpus:
    """Open a prepared corpus by its manifest; only the index is looked at before something is read."""
    manifest = Manifest.read(read_bytes(location).decode("utf-8", "replace"), location)
    kinds = {name: np.dtype(kind) for name, kind in manifest.kinds.items()}
    remote = None
    if is_remote(location):
        from .files.remote_files import RemoteFiles

        remote = RemoteFiles(cache / "remote", most_bytes)
    kept: dict[str, np.ndarray] = {}

    def opened(folder: str, array: str, digest: str, size: int) -> np.ndarray:
        place = beside(location, folder, array)
        if remote is not None:
            values = remote.open(place, digest, kinds[array])
        elif place in kept:
            return kept[place]
        else:
            values = kept[place] = map_checked(Path(place), kinds[array], location)
        if len(values) != size:
            raise damaged(place, location, f"it has {len(values):,} values instead of {size:,}")
        return values

    def sharded(array: str) -> Any:
        shards = [shard for shard in manifest.shards if shard.counts.tokens]
        sizes = [shard.counts.tokens for shard in shards]

        def piece(number: int) -> np.ndarray:
            shard = shards[number]
            return opened(shard.name, array, shard.sha256[array], shard.counts.tokens)

        if remote is None:
            pieces = [
                piece(number) for number in range(len(shards))
            ]  # all are there, and as long as they were
            if len(pieces) == 1:
                return pieces[0]
        return PiecewiseArray(sizes, kinds[array], piece)

    counts = manifest.counts
    sizes = dict(zip(INDEXED, (counts.sentences + 1, counts.documents + 1, counts.documents), strict=True))
    return TokenizedCorpus(
        *map(sharded, SHARDED),
        *(opened(INDEX, array, manifest.index[array], sizes[array]) for array in INDEXED),
        tally=manifest.tally,
        reopen=partial(open_corpus, location, cache, most_bytes),
    )


def beside(location: str, *parts: str) -> str:
    """Name a file by its path from the manifest."""
    return "/".join([location.rpartition("/")[0] or ("." if "/" not in location else ""), *parts])


def read_bytes(location: str) -> bytes:
    """Read a small file, here or elsewhere."""
    if not is_remote(location):
        return Path(location).read_bytes()
    from .files.remote_files import reaching

    with reaching(location) as (store, path):
        return store.cat_file(path)


def map_checked(path: Path, kind: np.dtype, location: str) -> np.ndarray:
    """Map an array of a prepared corpus into memory."""
    try:
        return mapped(path, kind)
    except (OSError, ValueError) as error:
        raise damaged(str(path), location, str(error)) from error


def damaged(place: str, location: str, why: str) -> ValueError:
    """Describe that a prepared corpus is not what its manifest says."""
    return ValueError(
        f"{place} is not what {location} says ({why}): copy the prepared corpus anew, or delete its shard's "
        "folder and the manifest, and run `tercet prepare` again"
    )
