"""Examples cut from a tokenized corpus: full sequences, and translation pairs.

Isolated documents (the default): no sequence holds text of two documents.

    document A  a a a a a a a        [CLS] a a a a a [SEP]   [CLS] a a [SEP]
    document B  b b b                [CLS] b b b [SEP]

Joined documents ("full sentences" in Liu et al., 2019, section 4.2; Radford et al., 2019): one stream, cut
every T tokens.

    a a a a a a a | b b b            [CLS] a a a a a [SEP]   [CLS] a a | b b [SEP]   [CLS] b [SEP]

A batch is made without making its examples: by the places of its tokens in the corpus. Sequences are
stretches of a stream, in which every document is followed by its end; the corpus has no such ends. So a
sequence is cut into pieces where documents end, and each piece is a stretch of the corpus, lengthened at both
sides by as many places as special tokens stand there:

    stream     a a a a # | b b b # |              sequence 2..6, between [CLS] and [SEP]
    pieces             a a #    and   b b
    places          1  2 3 4          4 5 6       in the corpus a a a a b b b; taken, then overwritten:
    tokens      [CLS]  a a #          b b [SEP]

Shapes: E examples, S packed sequences of T tokens, K pieces of them, N packed tokens, D documents.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .corpus import TokenizedCorpus
from .steps.examples import FixedExamples, PackedExamples, count_left_out
from .steps.objective import IGNORE, Example
from .steps.packing import Ragged, stretches


class FullSequences(FixedExamples):
    """Every token of a corpus once, in sequences as long as allowed; the same in every epoch.

    Args:
        sequence_length: Most tokens of a sequence, those around the text included.
        prefix_ids: Put before the text of every sequence, e.g. [CLS].
        suffix_ids: Put after the text of every sequence, e.g. [SEP].
        isolate_documents: Whether sequences end where documents end.
        document_end_ids: Put where a document ends, as if they were text, e.g. the end of text that a decoder
            learns to predict. By default nothing, or `suffix_ids` between joined documents.
        fewest_tokens: How many of these a sequence needs to have something to predict; shorter ones are left
            out and counted, and no others.
    """

    def __init__(
        self,
        corpus: TokenizedCorpus,
        sequence_length: int,
        prefix_ids: Sequence[int] = (),
        suffix_ids: Sequence[int] = (),
        isolate_documents: bool = True,
        document_end_ids: Sequence[int] | None = None,
        fewest_tokens: int = 1,
    ):
        room = sequence_length - len(prefix_ids) - len(suffix_ids)
        if room < fewest_tokens:
            raise ValueError(
                f"corpus.sequence_length is {sequence_length}, which leaves no room for {fewest_tokens} "
                f"tokens of text beside {sequence_length - room} special tokens: raise it"
            )
        if document_end_ids is None:
            document_end_ids = [] if isolate_documents else suffix_ids
        self.corpus = corpus
        self.frame = Frame(prefix_ids, suffix_ids, document_end_ids)
        self.prefix, self.suffix, self.document_end = (np.array(ids, dtype=np.int64) for ids in self.frame)
        # Documents lie in one stream, each followed by its end; chunks are stretches of that stream.
        self.document_starts = corpus.token_offsets + np.arange(corpus.num_documents + 1) * len(
            self.document_end
        )
        bounds = self.document_starts if isolate_documents else self.document_starts[[0, -1]]
        starts, stops = cut(bounds, room)
        sizes = stops - starts
        is_kept = sizes >= fewest_tokens
        self.starts, self.stops = starts[is_kept], stops[is_kept]
        self.left_out = count_left_out(
            "sequences",
            sizes,
            ~is_kept,
            "have nothing to predict, since they are too short, and are left out",
        )
        if len(self.starts) == 0:
            raise ValueError(f"corpus has no document of {fewest_tokens} tokens or more: add more text")

    @property
    def lengths(self) -> np.ndarray:
        return self.stops - self.starts + len(self.prefix) + len(self.suffix)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Example:
        """Make a sequence: `input_ids`, `word_starts` and `sentence_starts`, all (T,), and `index`.

        The first token of the text counts as the beginning of a word and of a sentence; special tokens are
        words of their own and begin no sentence.
        """
        pieces = list(self._pieces(int(self.starts[index]), int(self.stops[index])))
        ids, words, sentences = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        words[0] = sentences[0] = True
        return {
            "input_ids": np.concatenate([self.prefix, ids, self.suffix]),
            "word_starts": np.pad(words, (len(self.prefix), len(self.suffix)), constant_values=True),
            "sentence_starts": np.pad(sentences, (len(self.prefix), len(self.suffix)), constant_values=False),
            "index": index,
        }

    def pack(self, indices: np.ndarray) -> PackedExamples:
        breaks = self.document_starts if len(self.document_end) else self.document_starts[[0, -1]]
        layout = lay_out(self.starts[indices], self.stops[indices], breaks, self.frame)
        makers = {
            "input_ids": lambda: layout.input_ids(self.corpus.tokens),
            "word_starts": lambda: layout.word_starts(self.corpus.word_starts),
            "sentence_starts": lambda: layout.sentence_starts(self.corpus.sentence_offsets),
        }
        return PackedExamples(self, indices, makers)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        # Of each piece of the stretch: ids, word starts and sentence starts.
        document = int(np.searchsorted(self.document_starts, start, side="right")) - 1
        while start < stop:
            end = int(self.document_starts[document + 1])
            # The ends of earlier documents are not in the corpus.
            shift = document * len(self.document_end)
            text_end = end - len(self.document_end)
            if start < text_end:
                yield self._text(start - shift, min(stop, text_end) - shift)
            ids = self.document_end[max(start - text_end, 0) : max(stop - text_end, 0)]
            yield ids, np.ones(len(ids), dtype=bool), np.zeros(len(ids), dtype=bool)
            start, document = end, document + 1

    def _text(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        offsets = self.corpus.sentence_offsets
        first, last = np.searchsorted(offsets, [start, stop])
        sentence_starts = np.zeros(stop - start, dtype=bool)
        sentence_starts[offsets[first:last] - start] = True
        return (
            self.corpus.tokens[start:stop].astype(np.int64),
            self.corpus.word_starts[start:stop],
            sentence_starts,
        )


def cut(bounds: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut stretches between `bounds` into pieces of `room`, the last as long as is left: starts and stops."""
    lengths = np.diff(bounds)
    num_pieces = -(-lengths // room)
    first_piece = np.cumsum(num_pieces) - num_pieces
    piece_of_stretch = np.arange(num_pieces.sum()) - np.repeat(first_piece, num_pieces)
    starts = np.repeat(bounds[:-1], num_pieces) + piece_of_stretch * room
    return starts, np.minimum(starts + room, np.repeat(bounds[1:], num_pieces))


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
        breaks: Where documents begin in the stream, and where the last one ends (D + 1,), each ending with
            `frame.document_end`; without such ends, only where the first begins and the last ends.
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


class ParallelPairs(FixedExamples):
    """Sources and their targets, each closed by `closing_ids`; the same in every epoch.

    A pair is one document of either corpus. Pairs with an empty side are left out and counted; pairs with a
    side that is too long, too: a translation that breaks off would teach to break off.

    Args:
        max_length: Most tokens of a side, with its closing ids.
    """

    def __init__(
        self, source: TokenizedCorpus, target: TokenizedCorpus, max_length: int, closing_ids: Sequence[int]
    ):
        assert source.num_documents == target.num_documents
        self.source, self.target = source, target
        self.closing = np.array(closing_ids, dtype=np.int64)
        sides = np.stack([np.diff(source.token_offsets), np.diff(target.token_offsets)])  # (2, D)
        is_empty = sides.min(axis=0) == 0
        is_too_long = ~is_empty & (sides.max(axis=0) + len(closing_ids) > max_length)
        too_long = (
            f"have a side longer than {max_length} tokens and are left out: raise corpus.sequence_length to "
            "keep them"
        )
        lengths = sides.sum(axis=0)
        self.left_out = (
            *count_left_out("pairs", lengths, is_too_long, too_long),
            *count_left_out("pairs", lengths, is_empty, "have a side without tokens and are left out"),
        )
        self.documents = np.flatnonzero(~is_too_long & ~is_empty)
        self.lengths = lengths[self.documents] + 2 * len(closing_ids)
        """Tokens of each pair, both sides, (E,)."""
        if len(self.documents) == 0:
            raise ValueError(
                f"corpus has no pair of at most {max_length} tokens a side: raise corpus.sequence_length"
            )

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: int) -> Example:
        """Make a pair: `input_ids` of the source, `labels` of the target, and `index`."""
        document = int(self.documents[index])
        return {
            "input_ids": np.concatenate([self.source.document(document), self.closing]),
            "labels": np.concatenate([self.target.document(document), self.closing]),
            "index": index,
        }

    def pack(self, indices: np.ndarray) -> PackedExamples:
        documents = self.documents[indices]
        makers = {
            "input_ids": lambda: self._closed(self.source, documents),
            "labels": lambda: self._closed(self.target, documents),
        }
        return PackedExamples(self, indices, makers)

    def _closed(self, corpus: TokenizedCorpus, documents: np.ndarray) -> Ragged:
        starts = corpus.sentence_offsets[corpus.document_offsets[documents]]
        stops = corpus.sentence_offsets[corpus.document_offsets[documents + 1]]
        lengths = stops - starts + len(self.closing)
        ids = corpus.tokens.take(stretches(starts, lengths), mode="clip").astype(np.int64)
        ids[lengths.cumsum()[:, None] - np.arange(len(self.closing), 0, -1)] = self.closing
        return Ragged(ids, lengths)


class StretchesInContext(FixedExamples):
    """Every token of a corpus once as a target, with the tokens around it; the same in every epoch.

        stream     a a a a a a a a a # b b b #          # ends a document
        example        a a[a a a]a a                    [a a a] are targets, the others are context
        example                      # b b b #          of a short document: it is its own context

    A recurrent language model begins each sequence without a state. So it reads some characters before the
    first one that it is to predict, and of those it learns nothing. The backward direction begins at the
    other end, and has its context there. Every token is a target exactly once in each direction, and so is
    the end of each document: the forward direction predicts what ends it, the backward one what ended the
    document before. Before the first document stands an end, too.

    Args:
        sequence_length: Most tokens of an example, its context included.
        context: Tokens before the targets and behind them, at most.
        isolate_documents: Whether an example ends with its document; otherwise documents are joined.
    """

    def __init__(
        self,
        corpus: TokenizedCorpus,
        sequence_length: int,
        context: int,
        document_end_ids: Sequence[int],
        isolate_documents: bool = True,
    ):
        room = sequence_length - 2 * context
        if context < 1 or room < 1:
            raise ValueError(
                f"corpus.sequence_length is {sequence_length}, of which {context} tokens on either side are "
                "context, which leaves no room for targets or for context: raise sequence_length, or change "
                "objective.context_share"
            )
        self.corpus = corpus
        self.frame = Frame((), (), document_end_ids)
        # The stream begins with an end, as if an empty document stood before the first one.
        token_offsets = np.append(0, corpus.token_offsets)
        self.document_starts = token_offsets + np.arange(len(token_offsets)) * len(document_end_ids)
        bounds = self.document_starts[1:] if isolate_documents else self.document_starts[[1, -1]]
        starts, self.stops = cut(bounds, room)
        document = bounds.searchsorted(starts, side="right") - 1
        # What ended the document before is the beginning of this one: a target of the backward direction.
        opening = bounds[document] - len(document_end_ids)
        self.starts = np.where(starts == bounds[document], opening, starts)
        self.first = np.maximum(starts - context, opening)
        """Where the context before the targets begins (E,)."""
        self.last = np.minimum(self.stops + context, bounds[document + 1])
        """Where the context behind them ends (E,)."""

    @property
    def lengths(self) -> np.ndarray:
        return self.last - self.first

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Example:
        """Make an example: `input_ids` and `labels` (T,), which are -100 at context, and `index`."""
        packed = self.pack(np.array([index]))
        return {name: packed.makers[name]()[0] for name in ("input_ids", "labels")} | {"index": index}

    def pack(self, indices: np.ndarray) -> PackedExamples:
        return PackedExamples(
            self, indices, {"input_ids": lambda: self._ids(indices), "labels": lambda: self._labels(indices)}
        )

    def _ids(self, indices: np.ndarray) -> Ragged:
        breaks = self.document_starts if self.frame.document_end else self.document_starts[[0, -1]]
        layout = lay_out(self.first[indices], self.last[indices], breaks, self.frame)
        return layout.input_ids(self.corpus.tokens)

    def _labels(self, indices: np.ndarray) -> Ragged:
        ids = self._ids(indices)
        places = stretches(self.first[indices], ids.lengths)
        begins, ends = (of_each[indices].repeat(ids.lengths) for of_each in (self.starts, self.stops))
        return Ragged(np.where((begins <= places) & (places < ends), ids.values, IGNORE), ids.lengths)
