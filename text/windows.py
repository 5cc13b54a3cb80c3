"""The tokens of texts, and where each begins; those of a long text are found through windows.

    text        ...........................................
    windows     [----------------|===]                          encoded by themselves; both know the overlap
                             [===|----------------|===]
    kept         ----------------|----------------|----         up to the seam, and from the seam on

A window begins and ends anywhere, so its tokens near its ends are not those of the text: a word is cut in
two, a tokenizer puts a space before what is no beginning. A few characters on, they are again. Where two
windows agree on the tokens around a place, to the character, they are joined there. If they agree nowhere (a
number of thousands of digits that is cut into threes), the windows are made twice as long, and in the end as
long as the text.

Legend: N tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Self

import numpy as np
from tokenizers import Encoding, Tokenizer

WINDOW = 100_000
"""Characters of a window; texts up to this length are encoded as they are."""
OVERLAP = 2000
"""Characters that a window shares with the next one; they have to agree over the half in the middle."""
TOGETHER = 1_000_000
"""Characters of a long text that are encoded at once."""


class Encoded(NamedTuple):
    """Tokens of some texts, and where in its text each begins."""

    ids: np.ndarray
    """(N,)"""
    starts: np.ndarray
    """First character of each token (N,)."""
    lengths: np.ndarray
    """Tokens of each text."""

    @classmethod
    def of(cls, encodings: Sequence[Encoding]) -> Self:
        """Take from encodings what a corpus needs."""
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        size = lengths.sum()
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64, size)
        places = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
        return cls(ids, np.fromiter(places, np.int64, 2 * size)[::2], lengths)

    @classmethod
    def join(cls, parts: Iterable["Encoded"]) -> Self:
        """Put the texts of some parts one after another."""
        empty = np.empty(0, dtype=np.int64)
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, cls(empty, empty, empty), strict=True)))

    def between(self, start: int, stop: int) -> "Encoded":
        """Take the tokens that begin from character `start` on and before `stop`, of a single text."""
        kept = slice(*self.starts.searchsorted([start, stop]))
        size = np.array([kept.stop - kept.start])
        return Encoded(self.ids[kept], self.starts[kept], size)


def encode(texts: Sequence[str], backend: Tokenizer) -> Encoded:
    """Encode texts without special tokens."""
    parts, short = [], []
    for text in texts:
        if len(text) <= WINDOW:
            short.append(text)
            continue
        parts += [_encode(short, backend), encode_long(text, backend, WINDOW)]
        short = []
    return Encoded.join([*parts, _encode(short, backend)])


def encode_long(text: str, backend: Tokenizer, window: int) -> Encoded:
    """Encode a text through windows of so many characters, or of twice as many if these do not agree."""
    begins = range(0, max(len(text) - OVERLAP, 1), window - OVERLAP)
    parts: list[Encoded] = []
    latest, kept_from = None, 0
    for begin, encoded in zip(begins, _through_windows(text, begins, window, backend), strict=True):
        if latest is not None:
            seam = _seam(latest, encoded, begin)
            if seam is None:
                return encode_long(text, backend, 2 * window)
            parts.append(latest.between(kept_from, seam))
            kept_from = seam
        latest = encoded
    assert latest is not None
    joined = Encoded.join([*parts, latest.between(kept_from, len(text) + 1)])
    return joined._replace(lengths=joined.lengths.sum(keepdims=True))


def _through_windows(text: str, begins: Sequence[int], window: int, backend: Tokenizer) -> Iterator[Encoded]:
    """Encode windows, some at once, with places in the whole text."""
    at_once = max(TOGETHER // window, 1)
    for first in range(0, len(begins), at_once):
        group = begins[first : first + at_once]
        encodings = backend.encode_batch(
            [text[begin : begin + window] for begin in group], add_special_tokens=False
        )
        for begin, encoding in zip(group, encodings, strict=True):
            ids, starts, lengths = Encoded.of([encoding])
            yield Encoded(ids, np.maximum.accumulate(starts) + begin, lengths)


def _seam(before: Encoded, behind: Encoded, begin: int) -> int | None:
    """Find a place around which two windows agree, of which the second one begins at `begin`."""
    quarter = OVERLAP // 4
    ours, theirs = (window.between(begin + quarter, begin + 3 * quarter) for window in (before, behind))
    if not all(map(np.array_equal, ours, theirs)):
        return None
    return int(ours.starts[len(ours.starts) // 2]) if len(ours.starts) else begin + 2 * quarter


def _encode(texts: Sequence[str], backend: Tokenizer) -> Encoded:
    return Encoded.of(backend.encode_batch(list(texts), add_special_tokens=False))
