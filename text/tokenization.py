"""From text to a tokenized corpus: once, in parallel, kept in the cache.

    Documents -> sentences -> tokenizer -> TokenizedCorpus

Sentences are encoded one by one, so that a corpus knows where they begin; since a sentence keeps the space
before it, its tokens are those it has within its document. Whatever looks like a special token in a text
("[MASK]" in a manual) is encoded as the text it is.

A long text is tokenized in shards, each whole or not there, which then become one corpus: an interrupted run
goes on with the next shard, and only reads again, ten times as fast, what it had. Meanwhile a corpus takes
twice its room on the disk.

An encoding takes a hundred times the memory of its text, so at most about `CHARACTERS_AT_ONCE` are encoded
before the few bytes a token that a corpus keeps are taken from them: the sentences of a long document come
some at a time. A sentence that is long by itself is cut between two words (`sentences.py`).

The parallelism is the tokenizer's own threads. On two cores they were faster (1.4 million tokens a second)
than two processes (0.8 million), which have to send what they made.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from .bad_records import Tally
from .cache import cache_folder, made_once, name_of
from .corpus import TokenizedCorpus, offsets, save_corpus, token_kind
from .documents import Documents
from .sentences import pieces_of, split_sentences

EDITION = 2
"""To be raised whenever the same text gives another corpus."""
CHARACTERS_AT_ONCE = 1_000_000
"""Characters that are encoded together, give or take a piece of a sentence."""
BATCHES_OF_A_SHARD = 64
"""Some ten seconds of two cores, which an interruption costs at most."""


def tokenized_corpus(
    documents: Documents, tokenizer: PreTrainedTokenizerBase, cache: str | Path | None = None
) -> TokenizedCorpus:
    """Tokenize documents, or find in the cache what an earlier run made of them.

    Args:
        documents: Where the text comes from. If files change, they are tokenized anew.
        tokenizer: A fast one.
        cache: Folder of the cache; by default `TERCET_CACHE`, else `~/.cache/tercet`.

    Warns:
        UserWarning: Bad records were skipped, be it by an earlier run.

    Raises:
        ValueError: The documents cannot be read or are empty, or the tokenizer is not a fast one.
    """
    backend = text_backend(tokenizer)
    folder = cache_folder(cache) / "tokenized" / name_of(EDITION, backend.to_str(), documents.fingerprint())
    shards = folder.with_name(f"{folder.name}-{CHARACTERS_AT_ONCE}-{BATCHES_OF_A_SHARD}.shards")
    try:
        made_once(folder, lambda target: _fill(target, shards, documents, backend))
    except ValueError:  # the text has to change, and then this is of no use
        shutil.rmtree(shards, ignore_errors=True)
        raise
    shutil.rmtree(shards, ignore_errors=True)
    corpus = TokenizedCorpus.load(folder)
    corpus.tally.warn(documents.name)
    return corpus


def tokenize(documents: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> TokenizedCorpus:
    """Tokenize documents into memory."""
    backend = text_backend(tokenizer)
    return _tokenize(list(documents), backend, token_kind(_num_ids(backend)))


def text_backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Copy the tokenizer for text alone: it neither cuts nor pads, and finds no special tokens."""
    original = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(original, Tokenizer):
        raise ValueError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, which is needed for the starts of words: "
            f"choose one with a tokenizer.json"
        )
    backend = Tokenizer.from_str(original.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    return backend


def _fill(folder: Path, shards: Path, documents: Documents, backend: Tokenizer) -> None:
    """Write the tokenized documents into a folder, by way of `shards`, with a progress bar."""
    tally, size = Tally(), _num_ids(backend)
    kind = token_kind(size)
    with tqdm(desc=f"tokenizing {documents.name}", unit=" documents", disable=None, leave=False) as bar:

        def tokenized(batches: Iterable[tuple[int, list[str]]]) -> Iterator[TokenizedCorpus]:
            for _, texts in batches:
                yield _tokenize(texts, backend, kind)
                bar.update(len(texts))

        def parts() -> Iterator[TokenizedCorpus]:
            batches = enumerate(_batches(documents.read(tally)))
            for number, group in groupby(batches, lambda numbered: numbered[0] // BATCHES_OF_A_SHARD):
                write = partial(save_corpus, tokenized(group), vocabulary_size=size, tally=Tally())
                yield TokenizedCorpus.load(made_once(shards / f"{number:06}", write))

        save_corpus(parts(), folder, size, tally)


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Collect documents until they are enough for all threads, however long one is."""
    texts: list[str] = []
    size = 0
    for text in documents:
        texts.append(text)
        size += len(text)
        if size >= CHARACTERS_AT_ONCE:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def _num_ids(backend: Tokenizer) -> int:
    """Count the ids up to the last: more than there are tokens where some are left out."""
    return max(backend.get_vocab().values()) + 1


def _tokenize(texts: Sequence[str], backend: Tokenizer, kind: np.dtype) -> TokenizedCorpus:
    num_sentences = 0
    counted: list[np.ndarray] = []  # per portion, (3, pieces): document, sentence, tokens
    tokens, starts = [np.empty(0, kind)], [np.empty(0, bool)]
    for portion in _portions(_pieces(texts, backend)):
        documents, begins, pieces = zip(*portion, strict=True)
        encodings = backend.encode_batch(list(pieces), add_special_tokens=False)
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        tokens.append(np.fromiter(_ids(encodings), dtype=kind, count=lengths.sum()))
        starts.append(_word_starts(encodings, offsets(lengths[lengths > 0])))
        counted.append(np.stack([np.array(documents), np.cumsum(begins) + num_sentences - 1, lengths]))
        num_sentences += sum(begins)
    document, sentence, lengths = np.concatenate([np.empty((3, 0), np.int64), *counted], axis=1)
    lengths = np.bincount(sentence, weights=lengths, minlength=num_sentences).astype(np.int64)
    document_of_sentence = np.zeros(num_sentences, dtype=np.int64)
    document_of_sentence[sentence] = document
    has_tokens = lengths > 0  # not so a sentence of control characters
    return TokenizedCorpus(
        tokens=np.concatenate(tokens),
        word_starts=np.concatenate(starts),
        sentence_offsets=offsets(lengths[has_tokens]),
        document_offsets=offsets(np.bincount(document_of_sentence[has_tokens], minlength=len(texts))),
        document_bytes=np.array([len(text.encode()) for text in texts], dtype=np.int64),
    )


def _pieces(texts: Sequence[str], backend: Tokenizer) -> Iterator[tuple[int, bool, str]]:
    """Cut documents into sentences, and long ones into pieces: document, whether a sentence begins, text."""
    for number, text in enumerate(texts):
        for sentence in split_sentences(text):
            for place, piece in enumerate(pieces_of(sentence, backend)):
                yield number, place == 0, piece


def _portions(pieces: Iterable[tuple[int, bool, str]]) -> Iterator[list[tuple[int, bool, str]]]:
    """Collect pieces until they are as many characters as are encoded together."""
    portion, size = [], 0
    for piece in pieces:
        portion.append(piece)
        size += len(piece[2])
        if size >= CHARACTERS_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _ids(encodings: Sequence[Encoding]) -> Iterator[int]:
    return chain.from_iterable(encoding.ids for encoding in encodings)


def _word_starts(encodings: Sequence[Encoding], token_offsets: np.ndarray) -> np.ndarray:
    """Mark the tokens whose word is not that of the token before them in the same sentence: (N,)."""
    words = chain.from_iterable(encoding.word_ids for encoding in encodings)
    word_of_token = np.fromiter(words, dtype=np.int64, count=token_offsets[-1])
    starts = np.ones(len(word_of_token), dtype=bool)
    starts[1:] = word_of_token[1:] != word_of_token[:-1]
    starts[token_offsets[:-1]] = True
    return starts
