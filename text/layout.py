"""Where the tokens of many sequences lie in a corpus: what makes a batch without making its examples.

Sequences are stretches of a stream, in which every document is followed by its end (`chunks`). The corpus has
no such ends. So a sequence is cut into pieces where documents end, and each piece is a stretch of the corpus,
lengthened at both sides by as many places as special tokens stand there:

    stream     a a a a # | b b b # |              sequence 2..6, between [CLS] and [SEP]
    pieces             a a #    and   b b
    places          1  2 3 4          4 5 6       in the corpus a a a a b b b; taken, then overwritten:
    tokens      [CLS]  a a #          b b [SEP]

Shapes: S sequences, K pieces, N packed tokens, M special tokens among them, D documents.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..training.packing import Ragged, stretches


class Frame(NamedTuple):
    """The ids of special tokens in a kind of sequences; each may be empty."""

    prefix: Sequence[int]
    """Before the text."""
    suffix: Sequence[int]
    """Behind the text."""
    document_end: Sequence[int]
    """Behind each document, as part of the text."""


class Layout(NamedTuple):
    """Packed sequences as places in a corpus."""

    lengths: np.ndarray
    """Tokens of each sequence (S,)."""
    places: np.ndarray
    """Where each packed token is in the corpus (N,); those of special tokens mean nothing."""
    special: list[tuple[int, np.ndarray]]
    """An id, and the numbers of the packed tokens where it stands; as often as a sequence has such ids."""
    text_begins: np.ndarray
    """Numbers of the packed tokens that are the first of a text (S,)."""
    pieces: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Where the text of each piece begins and ends in the corpus, and where it begins when packed (K,)."""

    def input_ids(self, tokens: np.ndarray) -> Ragged:
        """Return the ids, from the corpus's tokens."""
        ids = self._take(tokens).astype(np.int64)
        for special_id, numbers in self.special:
            ids[numbers] = special_id
        return Ragged(ids, self.lengths)

    def word_starts(self, word_starts: np.ndarray) -> Ragged:
        """Return where words begin; a special token is one, and a text begins with one."""
        flags = self._take(word_starts)
        for _, numbers in self.special:
            flags[numbers] = True
        flags[self.text_begins] = True
        return Ragged(flags, self.lengths)

    def sentence_starts(self, sentence_offsets: np.ndarray) -> Ragged:
        """Return where sentences begin; a special token does not begin one, a text does."""
        begins, stops, packed = self.pieces
        first, last = np.searchsorted(sentence_offsets, [begins, stops])
        number = np.maximum(last - first, 0)
        flags = np.zeros(len(self.places), dtype=bool)
        flags[sentence_offsets[stretches(first, number)] + np.repeat(packed - begins, number)] = True
        flags[self.text_begins] = True
        return Ragged(flags, self.lengths)

    def _take(self, values: np.ndarray) -> np.ndarray:
        return values.take(self.places, mode="clip")


def lay_out(starts: np.ndarray, stops: np.ndarray, breaks: np.ndarray, frame: Frame) -> Layout:
    """Find the tokens of some stretches of the stream, from `starts` to `stops` (S,).

    Args:
        starts: Where they begin in the stream.
        stops: Where they end.
        breaks: Where documents begin in the stream, and where the last one ends (D + 1,), each ending with
            `frame.document_end`; without such ends, only where the first begins and the last ends.
        frame: What stands around and between texts.
    """
    num_prefix, num_suffix, num_end = map(len, frame)
    lengths = stops - starts + (num_prefix + num_suffix)
    ends = lengths.cumsum()
    text_begins = ends - lengths + num_prefix

    first = breaks.searchsorted(starts, side="right") - 1
    num_pieces = breaks.searchsorted(stops) - first
    document = stretches(first, num_pieces)  # (K,)
    piece_starts = np.maximum(starts.repeat(num_pieces), breaks[document])
    piece_stops = np.minimum(stops.repeat(num_pieces), breaks[document + 1])
    text_stops = breaks[document + 1] - num_end
    # From the stream to the corpus, which lacks the ends of earlier documents; and to the packed tokens.
    to_corpus, to_packed = -document * num_end, (text_begins - starts).repeat(num_pieces)

    sizes = piece_stops - piece_starts
    lasts = num_pieces.cumsum() - 1
    sizes[lasts - num_pieces + 1] += num_prefix
    sizes[lasts] += num_suffix
    places = np.arange(ends[-1])
    places += (to_corpus - to_packed).repeat(sizes)

    special = [(prefix_id, text_begins - num_prefix + idx) for idx, prefix_id in enumerate(frame.prefix)]
    special += [(suffix_id, ends - num_suffix + idx) for idx, suffix_id in enumerate(frame.suffix)]
    for idx, end_id in enumerate(frame.document_end):
        is_here = (piece_starts <= text_stops + idx) & (text_stops + idx < piece_stops)
        special.append((end_id, (text_stops + idx + to_packed)[is_here]))
    return Layout(
        lengths,
        places,
        special,
        text_begins,
        pieces=(
            piece_starts + to_corpus,
            np.minimum(piece_stops, text_stops) + to_corpus,
            piece_starts + to_packed,
        ),
    )
