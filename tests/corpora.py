"""Tokenized corpora of documents whose sizes a test says."""

from collections.abc import Sequence

import numpy as np

from tercet.data.corpus import TokenizedCorpus, offsets


def make_corpus(
    documents: Sequence[Sequence[int]],
    tokens: np.ndarray | int | None = None,
    word_starts: np.ndarray | None = None,
) -> TokenizedCorpus:
    """Documents as lists of sentence lengths; tokens are numbered from 10 so that each tells its place."""
    sentences = [size for document in documents for size in document]
    total = sum(sentences)
    if tokens is None:
        tokens = np.arange(10, total + 10, dtype=np.uint32)
    return TokenizedCorpus(
        tokens=np.full(total, tokens, dtype=np.uint16) if isinstance(tokens, int) else tokens,
        word_starts=np.ones(total, dtype=bool) if word_starts is None else word_starts,
        sentence_offsets=offsets(np.array(sentences)),
        document_offsets=offsets(np.array([len(document) for document in documents])),
        document_bytes=np.ones(len(documents), dtype=np.int64),
    )
