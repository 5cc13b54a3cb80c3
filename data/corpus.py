"""A tokenized corpus: all tokens in one flat array, and offsets that say where sentences and documents begin.

    tokens           t0 t1 t2 | t3 t4 | t5 t6 t7 t8 | t9 ...        (N,)
    sentence_offsets 0          3       5             9   ...        (S + 1,) into tokens
    document_offsets 0                  2                 ...        (D + 1,) into sentences

The arrays lie in files and are mapped into memory: a corpus may be larger than memory, opens at once, and is
shared by all processes of a machine. Those of a prepared corpus lie in shards (`prepared.py`).
No special token is stored; examples add those that their objective wants.

Shapes: N tokens, S sentences, D documents.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from .files.problems import Tally

ARRAYS = ("tokens", "word_starts", "sentence_offsets", "document_offsets", "document_bytes")
ABOUT = "corpus.json"
"""File that says of what kinds the arrays' numbers are, and what was met while the text was read."""


@dataclass(frozen=True, eq=False)
class TokenizedCorpus:
    """Documents as token ids, with the boundaries of their words and sentences."""

    tokens: np.ndarray
    """Token ids (N,), uint16 or uint32, without special tokens; of several shards, a `PiecewiseArray`, which
    is read alike."""
    word_starts: np.ndarray
    """Whether a token begins a word (N,), bool; likewise."""
    sentence_offsets: np.ndarray
    """Where sentences begin in `tokens`, and where the last one ends: (S + 1,), int64."""
    document_offsets: np.ndarray
    """Where documents begin among the sentences, and where the last one ends: (D + 1,), int64."""
    document_bytes: np.ndarray
    """Bytes of each document's text in UTF-8 (D,), int64: what bits per byte divide by."""
    _: KW_ONLY
    tally: Tally = field(default_factory=Tally)
    """What was met in the text's files: how many records, and how many of them were skipped."""
    folder: Path | None = None
    """Where the arrays are mapped from, if they are."""
    reopen: Callable[[], "TokenizedCorpus"] | None = None
    """Opens a prepared corpus, which lies in shards, once more."""

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_sentences(self) -> int:
        return len(self.sentence_offsets) - 1

    @property
    def num_documents(self) -> int:
        return len(self.document_offsets) - 1

    @property
    def token_offsets(self) -> np.ndarray:
        """Find where documents begin in `tokens`, and where the last one ends: (D + 1,)."""
        return self.sentence_offsets[self.document_offsets]

    def document(self, index: int) -> np.ndarray:
        return self.sentences(int(self.document_offsets[index]), int(self.document_offsets[index + 1]))

    def sentence(self, index: int) -> np.ndarray:
        """Return the tokens of one sentence, counted over the whole corpus."""
        return self.sentences(index, index + 1)

    def sentences(self, start: int, stop: int) -> np.ndarray:
        """Return the tokens of consecutive sentences, `stop` excluded, counted over the whole corpus."""
        return self.tokens[self.sentence_offsets[start] : self.sentence_offsets[stop]]

    def part(self, first: int, last: int) -> "TokenizedCorpus":
        """View the documents from `first` up to `last` (excluded); their tokens are not copied."""
        sentences = self.document_offsets[first : last + 1]
        tokens = self.sentence_offsets[sentences[0] : sentences[-1] + 1]
        return TokenizedCorpus(
            self.tokens[tokens[0] : tokens[-1]],
            self.word_starts[tokens[0] : tokens[-1]],
            tokens - tokens[0],
            sentences - sentences[0],
            self.document_bytes[first:last],
        )

    @classmethod
    def load(cls, folder: Path) -> Self:
        about = json.loads((folder / ABOUT).read_text())
        arrays = (mapped(folder / name, np.dtype(about["kinds"][name])) for name in ARRAYS)
        return cls(*arrays, tally=Tally(**about["tally"]), folder=folder)

    def __reduce__(self) -> tuple[Callable[..., "TokenizedCorpus"], tuple[object, ...]]:
        # To another process it goes by where it lies, never by its contents.
        if self.reopen is not None:
            return self.reopen, ()
        if self.folder is not None:
            return type(self).load, (self.folder,)
        return type(self), tuple(getattr(self, name) for name in ARRAYS)


class CorpusWriter:
    """Append documents to the files of a corpus; what is written is never held in memory."""

    def __init__(self, folder: Path, vocabulary_size: int):
        kinds = {
            "tokens": token_kind(vocabulary_size),
            "word_starts": np.dtype(bool),
            **dict.fromkeys(ARRAYS[2:], np.dtype(np.int64)),
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.kinds = kinds
        self.files = {name: (folder / name).open("wb") for name in ARRAYS}
        self.num_tokens = self.num_sentences = self.num_documents = 0
        self._write("sentence_offsets", np.zeros(1))
        self._write("document_offsets", np.zeros(1))

    def append(self, part: TokenizedCorpus) -> None:
        self._write("tokens", part.tokens)
        self._write("word_starts", part.word_starts)
        self._write("sentence_offsets", part.sentence_offsets[1:] + self.num_tokens)
        self._write("document_offsets", part.document_offsets[1:] + self.num_sentences)
        self._write("document_bytes", part.document_bytes)
        self.num_tokens += part.num_tokens
        self.num_sentences += part.num_sentences
        self.num_documents += part.num_documents

    def close(self, tally: Tally) -> None:
        """Finish the files; the folder can then be loaded."""
        for file in self.files.values():
            file.close()
        kinds = {name: kind.name for name, kind in self.kinds.items()}
        (self.folder / ABOUT).write_text(json.dumps({"kinds": kinds, "tally": asdict(tally)}))

    def _write(self, name: str, values: np.ndarray) -> None:
        self.files[name].write(values.astype(self.kinds[name]).tobytes())


def save_corpus(
    parts: Iterable[TokenizedCorpus], folder: Path, vocabulary_size: int, tally: Tally
) -> CorpusWriter:
    """Write `parts` one after another as one corpus, and return the writer, which knows what it counted.

    `tally` is what the parts' text was counted by while they were made.
    """
    writer = CorpusWriter(folder, vocabulary_size)
    try:
        for part in parts:
            writer.append(part)
    finally:
        writer.close(tally)
    return writer


def join_corpora(parts: Sequence[TokenizedCorpus]) -> TokenizedCorpus:
    """Put corpora one after another, in memory."""

    def joined(name: str, change: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
        return np.concatenate([change(getattr(part, name)) for part in parts])

    return TokenizedCorpus(
        tokens=joined("tokens"),
        word_starts=joined("word_starts"),
        sentence_offsets=offsets(joined("sentence_offsets", np.diff)),
        document_offsets=offsets(joined("document_offsets", np.diff)),
        document_bytes=joined("document_bytes"),
        tally=Tally.joined(part.tally for part in parts),
    )


def token_kind(vocabulary_size: int) -> np.dtype:
    """Choose the smallest type that holds every id below `vocabulary_size`."""
    return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.uint32)


def offsets(lengths: np.ndarray) -> np.ndarray:
    """Compute where things of `lengths` (n,) begin, one behind another, and where the last ends: (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def mapped(path: Path, kind: np.dtype) -> np.ndarray:
    """Map an array's file into memory."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, kind)
    # A plain view, since each slice of a memmap is slow.
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))
