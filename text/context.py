"""Stretches of a corpus with the text around them: what a recurrent language model learns from.

    stream     a a a a a a a a a # b b b #              # ends a document
    example        a a[a a a]a a                        [a a a] are targets, the others are context
    example                      # b b b #              of a short document: it is its own context

A language model that reads one character after another begins each sequence without a state. So it reads
some characters before the first one that it is to predict, and of those it learns nothing. The backward
direction begins at the other end, and has its context there. Every token is a target exactly once in each
direction, and so is the end of each document: the forward direction predicts what ends it, the backward one
what ended the document before. Before the first document stands an end, too.

Shapes: E examples, S picked examples, N tokens of theirs, D documents.
"""

from collections.abc import Sequence

import numpy as np

from ..training.examples import Examples, PackableExamples, PackedExamples
from ..training.objective import IGNORE, Example
from ..training.packing import Ragged, stretches
from .chunks import Frame, cut, lay_out
from .corpus import TokenizedCorpus


class StretchesInContext(PackableExamples):
    """Every token of a corpus once as a target, with the tokens around it; the same in every epoch.

    Args:
        corpus: The documents.
        sequence_length: Most tokens of an example, its context included.
        context: Tokens before the targets and behind them, at most.
        document_end_ids: Stand between documents.
        isolate_documents: Whether an example ends with its document; otherwise documents are joined.

    Raises:
        ValueError: There is no context, or no room for targets beside it.
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
        """Count the tokens of each example, (E,)."""
        return self.last - self.first

    def epoch(self, number: int) -> Examples:
        """Return the stretches themselves: they are the same in every epoch."""
        return self

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.starts)

    def __getitem__(self, index: int) -> Example:
        """Make an example: `input_ids` and `labels` (T,), which are -100 at context, and `index`."""
        packed = self.pack(np.array([index]))
        return {name: packed.makers[name]()[0] for name in ("input_ids", "labels")} | {"index": index}

    def pack(self, indices: np.ndarray) -> PackedExamples:
        """Prepare many examples at once, each as `__getitem__` gives it."""
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
