"""A part of a text that is held out, where a recipe names no other: the same documents in every run.

A document is held out if a hash of it is among the lowest: a twentieth of all, at most 1,000 documents and at
least one. So it does not depend on the order of documents, copies of one stay together, and what is added to
a text moves few from one part to the other.

Scores on text that is also learned from do not say how well a model generalizes. It may be meant: a model
that cannot learn a text by heart has a fault. So a run warns, and goes on. Files are compared by where they
lie and, where two are equally long, by the hashes of their contents as they lie there: the same text in
another compression, or a part of a larger file, is not noticed. A prepared corpus has the hashes of the files
that it was made of.
"""

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from typing import Any

from .cache import key_of, made_once
from .documents import Documents, FileDocuments, single_texts
from .files.problems import Problem, Record, Row, problem_of_texts
from .identities import identify_file
from .prepared import PreparedDocuments

SHARE = 20
"""One of so many documents is held out."""

MOST = 1000
"""Held-out documents of a text, at most."""

BITS = 64


@dataclass(frozen=True)
class PartOfDocuments(Documents):
    """The held-out documents of a text, or all others."""

    whole: Documents
    """The text."""
    is_held_out: bool
    """Which of its parts this is."""
    cache: Path
    """Folder in which the hashes of held-out documents are kept."""
    texts: Sequence[Documents]
    """All texts of the corpus: what is held out of one is not learned from in another."""

    @classmethod
    def of(
        cls, whole: Documents, cache: Path, texts: Sequence[Documents] = (), *, is_held_out: bool
    ) -> "PartOfDocuments":
        """Take a part of a text, perhaps one of several, that is read as the text is."""
        read_alike = whole.column, whole.required, whole.skip_bad_records, whole.limit
        return cls(*read_alike, whole, is_held_out, cache, texts or [whole])

    @property
    def name(self) -> str:
        return f"{self.whole.name}, held-out part" if self.is_held_out else self.whole.name

    def records(self) -> Iterator[Record]:
        # Bad ones are of the part that is learned from.
        for place, row in self.whole.records():
            if (number_of(row, self.required) in self.held_out) == self.is_held_out:
                yield place, row

    @property
    def sources(self) -> Sequence[Documents]:
        """The texts whose held-out documents this part has, or leaves out."""
        return [self.whole] if self.is_held_out else self.texts

    @cached_property
    def held_out(self) -> frozenset[int]:
        """The hashes of the documents that this part has, or leaves out."""
        return frozenset[int]().union(*map(self.held_out_of, self.sources))

    def held_out_of(self, text: Documents) -> frozenset[int]:
        """Return the hashes of a text's held-out documents."""

        def make(folder: Path) -> None:
            numbers = {*numbers_of(text)}
            below = sum(number < 2**BITS // SHARE for number in numbers)
            lowest = nsmallest(max(min(below, MOST), 1), numbers)
            facts = {"held_out": lowest, "documents": len(numbers)}
            (folder / "hashes.json").write_text(json.dumps(facts), encoding="utf-8")

        folder = made_once(self.cache / "held-out" / key_of("hashes", text.fingerprint()), make)
        facts = json.loads((folder / "hashes.json").read_text(encoding="utf-8"))
        held_out, of_all = frozenset(facts["held_out"]), facts["documents"]
        if of_all < 2:
            raise ValueError(
                f"corpus.validation is not given, and {text.name} has fewer than two documents, so "
                "none can be held out: name held-out text with corpus.validation=..., or put blank lines "
                "between documents"
            )
        if self.is_held_out and self.column == self.required[0]:  # of pairs, once
            print(
                f"{text.name}: {len(held_out):,} of {of_all:,} different documents are held out "
                "(corpus.validation=... names other text)",
                file=sys.stderr,
                flush=True,
            )
        return held_out

    def fingerprint(self) -> str:
        sources = [text.fingerprint() for text in self.sources]
        return repr(
            [self.whole.fingerprint(), "held-out part" if self.is_held_out else "other part", sources]
        )

    def identify(self) -> list[dict[str, Any]]:
        part = "held-out part" if self.is_held_out else "all but the held-out part"
        return [entry | {"part": part} for entry in self.whole.identify()]


def number_of(row: Row | Problem, names: Sequence[str]) -> int | None:
    """Hash a document, both sides of a pair; nothing if a record is bad or empty."""
    if isinstance(row, Problem) or problem_of_texts(row, names):
        return None
    texts = [(row[name] or "").strip() for name in names]
    digest = blake2b(json.dumps(texts).encode(), digest_size=BITS // 8).digest()
    return int.from_bytes(digest) if all(texts) else None


def numbers_of(documents: Documents) -> Iterator[int]:
    numbers = (number_of(row, documents.required) for _, row in documents.records())
    return (number for number in numbers if number is not None)


def warn_of_shared_documents(learned: Documents, measured: Documents, cache: Path) -> None:
    """Warn if held-out documents stand in the training text word for word; what is found is kept."""
    if any(
        isinstance(text, PreparedDocuments) for side in (learned, measured) for text in single_texts(side)
    ):
        return  # which is tokens

    def make(folder: Path) -> None:
        numbers = [*numbers_of(measured)]
        shared = {*numbers} & {*numbers_of(learned)} if numbers else set()
        facts = {"shared": sum(number in shared for number in numbers), "documents": len(numbers)}
        (folder / "shared.json").write_text(json.dumps(facts), encoding="utf-8")

    name = key_of("shared", learned.fingerprint(), measured.fingerprint())
    facts = json.loads(
        (made_once(cache / "held-out" / name, make) / "shared.json").read_text(encoding="utf-8")
    )
    if facts["shared"]:
        warnings.warn(
            f"{facts['shared']:,} of {facts['documents']:,} documents of {measured.name} are also in "
            f"{learned.name}, so that scores are partly on text that was learned: take them out of one, or "
            "leave corpus.validation out to hold a part out",
            stacklevel=2,
        )


def warn_of_overlap(learned: Documents, measured: Documents, cache: Path) -> None:
    """Warn if files of the validation text are files of the training text, too, by place or by contents."""
    files = files_of(measured)
    shared = shared_files(files_of(learned), files, cache)
    if shared:
        first = shared[0] if isinstance(shared[0], Path) else shared[0]["name"]
        more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
        warnings.warn(
            f"{len(shared)} of {len(files)} files of corpus.validation are also in corpus.train "
            f"({first}{more}), so that scores are not on held-out text: choose other files",
            stacklevel=2,
        )


File = Path | dict[str, Any]
"""A file, or the name, size and hash of one that a corpus was prepared from."""


def files_of(documents: Documents) -> Sequence[File]:
    """List the files of a text, or those with a hash that a prepared corpus was made of.

    A prepared corpus that knows none counts as one file, its manifest.
    """
    if isinstance(documents, PreparedDocuments):
        hashed: list[File] = [source for source in documents.manifest.sources if "sha256" in source]
        return hashed or documents.identify()
    return documents.files if isinstance(documents, FileDocuments) else ()


def shared_files(learned: Sequence[File], measured: Sequence[File], cache: Path) -> list[File]:
    """Find the measured files that are learned from; `cache` keeps the hashes of those equally long."""
    places = {file.resolve() for file in learned if isinstance(file, Path)}
    by_size: dict[int, list[File]] = {}
    for file in learned:
        by_size.setdefault(size_of(file), []).append(file)

    def digest_of(file: File) -> str:
        return (identify_file(file, cache) if isinstance(file, Path) else file)["sha256"]

    @lru_cache
    def contents(size: int) -> set[str]:
        return {digest_of(file) for file in by_size[size]}

    def is_shared(file: File) -> bool:
        size = size_of(file)
        return (isinstance(file, Path) and file.resolve() in places) or (
            size in by_size and digest_of(file) in contents(size)
        )

    return [file for file in measured if is_shared(file)]


def size_of(file: File) -> int:
    return file.stat().st_size if isinstance(file, Path) else file["bytes"]
