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

from typing import NamedTuple

import numpy as np

from ..training.packing import Ragged, stretches


class Frame(NamedTuple):
    """The special tokens of a kind of sequences; each may be empty."""

    prefix: np.ndarray
    """Before the text."""
    suffix: np.ndarray
    """Behind the text."""
    document_end: np.ndarray
    """Behind each document, as part of the text."""


class Layout(NamedTuple):
    """Packed sequences as places in a corpus."""

    lengths: np.ndarray
    """Tokens of each sequence (S,)."""
    places: np.ndarray
    """Where each packed token is in the corpus (N,); those of special tokens mean nothing."""
    special: np.ndarray
    """Numbers of the packed tokens that are special (M,) ..."""
    special_ids: np.ndarray
    """... and their ids (M,)."""
    text_begins: np.ndarray
    """Numbers of the packed tokens that are the first of a text (S,)."""
    pieces: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Where the text of each piece begins and ends in the corpus, and where it begins when packed, all (K,)."""

    def input_ids(self, tokens: np.ndarray) -> Ragged:
        """Give the ids, from the corpus's tokens."""
        ids = self._take(tokens).astype(np.int64)
        ids[self.special] = self.special_ids
        return Ragged(ids, self.lengths)

    def word_starts(self, word_starts: np.ndarray) -> Ragged:
        """Tell where words begin; a special token is one, and a text begins with one."""
        flags = self._take(word_starts)
        flags[self.special] = flags[self.text_begins] = True
        return Ragged(flags, self.lengths)

    def sentence_starts(self, sentence_offsets: np.ndarray) -> Ragged:
        """Tell where sentences begin; a special token does not begin one, a text does."""
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
    first = np.searchsorted(breaks, starts, side="right") - 1
    num_pieces = np.searchsorted(breaks, stops) - first
    sequence, document = np.repeat(np.arange(len(starts)), num_pieces), stretches(first, num_pieces)  # (K,)
    piece_starts = np.maximum(starts[sequence], breaks[document])
    piece_stops = np.minimum(stops[sequence], breaks[document + 1])
    is_last = np.diff(sequence, append=len(starts)) > 0
    is_first = np.roll(is_last, 1)

    shift = document * num_end  # the ends of earlier documents are not in the corpus
    before = is_first * num_prefix
    sizes = before + piece_stops - piece_starts + is_last * num_suffix
    ends = np.cumsum(sizes)
    text_begins = ends - sizes + before
    places = stretches(piece_starts - shift - before, sizes)

    special = [(text_begins[is_first] - num_prefix)[:, None] + np.arange(num_prefix)]
    special += [(ends[is_last] - num_suffix)[:, None] + np.arange(num_suffix)]
    ids = [np.broadcast_to(frame.prefix, special[0].shape), np.broadcast_to(frame.suffix, special[1].shape)]
    text_stops = breaks[document + 1] - num_end
    for idx, end_id in enumerate(frame.document_end):
        is_here = (piece_starts <= text_stops + idx) & (text_stops + idx < piece_stops)
        special.append((text_begins + text_stops + idx - piece_starts)[is_here])
        ids.append(np.full(len(special[-1]), end_id))
    return Layout(
        lengths=np.diff(ends[is_last], prepend=0),
        places=places,
        special=np.concatenate([numbers.ravel() for numbers in special]),
        special_ids=np.concatenate([row.ravel() for row in ids]),
        text_begins=text_begins[is_first],
        pieces=(piece_starts - shift, np.minimum(piece_stops, text_stops) - shift, text_begins),
    )
