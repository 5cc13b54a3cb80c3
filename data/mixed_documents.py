"""A corpus of several texts, each with a name: what is made of all documents reads them one after another."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

from .documents import Documents
from .files.problems import Record, Tally


@dataclass(frozen=True)
class MixedDocuments(Documents):
    """The documents of several texts."""

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
