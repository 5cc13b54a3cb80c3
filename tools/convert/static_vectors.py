"""Static word vectors from other programs: trained here by gensim, or read from word2vec's text format.

    texts -> skip-grams with sub-words (Bojanowski et al., 2017), by gensim's FastText -+
    lines of a word and its numbers (word2vec, GloVe, fastText's .vec) -----------------+-> a model's folder

gensim is an extra: `pip install 'tercet[vectors]'`. A folder needs it no more.

Shapes: V words, C width of a vector.
"""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...configs.messages import quietly
from ...modeling.recurrent.configurations import TercetWordVectorsConfig
from ...modeling.recurrent.static_vectors import TercetWordVectorsModel, sizes
from ...modeling.recurrent.word_tokenizer import word_tokenizer


def train_word_vectors(
    sentences: Iterable[Sequence[str]],
    *,
    width: int = 100,
    epochs: int = 5,
    smallest_count: int = 5,
    window: int = 5,
    num_ngram_rows: int = 100_000,
    seed: int = 0,
    workers: int = 1,
) -> TercetWordVectorsModel:
    """Train skip-grams with sub-words on sentences that are cut into words.

    Args:
        sentences: Read once for each epoch, and once before.
        width: C.
        epochs: Passes over the sentences.
        smallest_count: Words that are rarer have no vector of their own.
        window: Words on each side that a word predicts, at most.
        num_ngram_rows: Vectors that all n-grams share.
        seed: Seed of the first vectors and of what is drawn; the result is the same again with one worker.
        workers: Threads.
    """
    try:
        from gensim.models import FastText
    except ImportError:
        raise ValueError(
            "static vectors are trained by gensim: pip install 'tercet[vectors]', or read a file of vectors"
        ) from None
    model: Any = FastText(
        vector_size=width, window=window, min_count=smallest_count, sg=1, bucket=num_ngram_rows, seed=seed,
        workers=workers,
    )  # fmt: skip
    model.build_vocab(corpus_iterable=sentences)
    if not model.wv.key_to_index:
        raise ValueError(
            f"no word occurs {smallest_count} times: give more text, or a smaller smallest_count"
        )
    model.train(corpus_iterable=sentences, total_examples=model.corpus_count, epochs=epochs)
    return from_fasttext(model.wv)


def from_fasttext(vectors: Any) -> TercetWordVectorsModel:
    """Bring in gensim's `FastTextKeyedVectors`, with the vectors of n-grams."""
    return build(
        list(vectors.index_to_key),
        torch.from_numpy(np.array(vectors.vectors)),
        torch.from_numpy(np.array(vectors.vectors_ngrams)),
        (vectors.min_n, vectors.max_n),
    )


def read_word_vectors(file: Path, largest: int | None = None) -> TercetWordVectorsModel:
    """Read vectors from lines of a word and its numbers, perhaps behind a line of their count and width.

    Args:
        file: Text, perhaps compressed (.gz).
        largest: Most words to read; files have the frequent ones first.
    """
    rows: dict[str, np.ndarray] = {}
    opens = gzip.open if file.suffix == ".gz" else open
    with opens(file, "rt", encoding="utf-8", errors="surrogateescape") as lines:
        for word, numbers in parsed(lines, file):
            if largest is not None and len(rows) == largest:
                break
            rows.setdefault(word, numbers)
    if not rows:
        raise ValueError(f"{file} has no vectors: name a file with a word and its numbers in each line")
    return build(list(rows), torch.from_numpy(np.stack([*rows.values()])))


def parsed(lines: Iterable[str], file: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each word with its vector (C,), float32; see `read_word_vectors`."""
    width, is_first = 0, True
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"line {number} of {file}"
        require_text(line, where)
        word, *values = line.rstrip("\n ").split(" ")
        is_header = is_first and len(values) == 1 and word.isdigit()
        is_first = False
        if is_header:
            continue
        width = width or len(values)
        yield word, vector_of(values, width, shown=repr(line.strip()[:40]), where=where)


def require_text(line: str, where: str) -> None:
    """Raise a `ValueError` if a line has bytes that are not UTF-8, or no space."""
    try:
        line.encode()
    except UnicodeEncodeError:
        written = line.strip().encode(errors="surrogateescape")[:40]
        raise ValueError(
            f"{where} is not UTF-8 ({written!r}): convert it, or name a file in text format if it is binary"
        ) from None
    if " " not in line.rstrip("\n "):
        raise ValueError(
            f"{where} has no space ({line.strip()[:40]!r}): separate a word and its numbers by single spaces"
        )


def vector_of(values: Sequence[str], width: int, *, shown: str, where: str) -> np.ndarray:
    """Read the numbers (C,) of a line; errors say what is `shown` of it and `where` it stands."""
    try:
        with np.errstate(over="ignore"):
            vector = np.array(values, dtype=np.float32)
    except ValueError:
        vector = np.empty(0, dtype=np.float32)
    if len(vector) != width:
        problem = f"no {width} numbers behind its word"
    elif not np.isfinite(vector).all():
        problem = "numbers that are not finite"
    else:
        return vector
    raise ValueError(f"{where} has {problem} ({shown}): correct it, or leave it out")


def build(
    words: Sequence[str],
    vectors: Tensor,
    ngram_vectors: Tensor | None = None,
    ngram_lengths: tuple[int, int] = (3, 6),
) -> TercetWordVectorsModel:
    """Build the model that has these vectors.

    Args:
        words: V, each once.
        vectors: (V, C).
        ngram_vectors: (rows, C).
        ngram_lengths: Characters of the shortest and the longest n-gram.
    """
    if len(words) != len(vectors):
        raise ValueError(
            f"{len(words)} words are given, but {len(vectors)} vectors: give one vector for each word"
        )
    entries: dict[str, int] = {}
    for number, word in enumerate(words):
        if entries.setdefault(word, number) != number:
            raise ValueError(f"the word {word!r} is given twice: give each word once, with one vector")
    num_words, num_bytes = sizes(entries)
    config = TercetWordVectorsConfig(
        hidden_size=vectors.shape[1],
        num_words=num_words,
        num_word_bytes=num_bytes,
        num_ngram_rows=0 if ngram_vectors is None else len(ngram_vectors),
        shortest_ngram=ngram_lengths[0],
        longest_ngram=ngram_lengths[1],
    )
    model = TercetWordVectorsModel(config)
    model.words.learn(entries)
    with torch.no_grad():
        model.word_vectors.weight.copy_(vectors)
        if ngram_vectors is not None and model.ngram_vectors is not None:
            model.ngram_vectors.weight.copy_(ngram_vectors)
    return model.eval()


def save_word_vectors(model: TercetWordVectorsModel, folder: Path) -> None:
    """Write a model's folder, with the tokenizer that its inputs are made by."""
    with quietly():
        model.save_pretrained(folder)
        word_tokenizer().save_pretrained(folder)
