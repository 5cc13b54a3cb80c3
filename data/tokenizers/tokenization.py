"""From text to a tokenized corpus: once, in parallel, kept in the cache.

    Documents -> tokenizer -> tokens, each with its characters -> TokenizedCorpus

A document has the tokens that its tokenizer gives for it as a whole. Where sentences and words begin is found
in the text (`sentences.py`, `words.py`), and passed on to the tokens by the characters they are from: a token
that holds the end of one sentence and the beginning of the next belongs to the first of them.

Whatever looks like a special token in a text ("[MASK]" in a manual) is encoded as the text it is, except for
control tokens (`special_tokens.py`): the user's own, which stand in the text on purpose.

A long text is tokenized in shards, each whole or not there, which then become one corpus: an interrupted run
goes on with the next shard, and only reads again, ten times as fast, what it had. Meanwhile a corpus takes
twice its room on the disk.

An encoding takes a hundred times the memory of its text, so at most about `CHARACTERS_AT_ONCE` are encoded
before the few bytes a token that a corpus keeps are taken from them, and a longer document is encoded through
windows:

    text        ...........................................
    windows     [----------------|===]                          encoded by themselves; both know the overlap
                             [===|----------------|===]
    kept         ----------------|----------------|----         up to the seam, and from the seam on

A window begins and ends anywhere, so its tokens near its ends are not those of the text: a word is cut in
two, a tokenizer puts a space before what is no beginning. A few characters on, they are again. Where two
windows agree on the tokens around a place, to the character, they are joined there. If they agree nowhere (a
number of thousands of digits that is cut into threes), the windows are made twice as long, and in the end as
long as the text.

The parallelism is the tokenizer's own threads. On two cores they were faster (1.4 million tokens a second)
than two processes (0.8 million), which have to send what they made.

Legend: N tokens.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers import __version__ as tokenizers_version
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from ..cache import cache_folder, key_of, made_once
from ..corpus import TokenizedCorpus, join_corpora, offsets, save_corpus, token_kind
from ..documents import Documents, require_unchanged
from ..files.problems import Tally
from ..prepared import PreparedDocuments
from .sentences import sentence_begins
from .special_tokens import control_tokens as find_control_tokens
from .special_tokens import counting_of_dropped, ends_read_as_text
from .words import word_starts

EDITION = 5
"""To be raised whenever the same text gives another corpus."""
CHARACTERS_AT_ONCE = 1_000_000
"""Characters that are encoded together, give or take a document; a longer one is encoded through windows."""
BATCHES_OF_A_SHARD = 64
"""Some ten seconds of two cores, which an interruption costs at most."""


def tokenized_corpus(
    documents: Documents,
    tokenizer: PreTrainedTokenizerBase,
    cache: str | Path | None = None,
    control_tokens: Sequence[str] | None = None,
) -> TokenizedCorpus:
    """Tokenize documents, or find in the cache what an earlier run made of them.

    Args:
        documents: Where the text comes from. If files change, they are tokenized anew; prepared ones are
            opened.
        cache: Folder of the cache; by default `TERCET_CACHE`, else `~/.cache/tercet`.
        control_tokens: Special tokens that are recognized in the text; by default those without a role.

    Warns:
        UserWarning: Bad records were skipped, be it by an earlier run, ends of texts were read as text, or
            the tokenizer drops text.
    """
    backend = text_backend(tokenizer, control_tokens)
    if isinstance(documents, PreparedDocuments):
        documents.manifest.tally.warn(documents.name)
        return documents.corpus(digest_of(backend))
    fingerprint = documents.fingerprint()
    name = key_of(EDITION, tokenizers_version, backend.to_str(), fingerprint)
    folder = cache_folder(cache) / "tokenized" / name
    ends = ends_read_as_text(tokenizer, control_tokens or ())
    shards = folder.with_name(f"{folder.name}-{CHARACTERS_AT_ONCE}-{BATCHES_OF_A_SHARD}.shards")

    def make(target: Path) -> None:
        _fill(target, shards, documents, backend, ends)
        require_unchanged([documents], [fingerprint])

    try:
        made_once(folder, make)
    except ValueError:  # the text has to change, and then this is of no use
        shutil.rmtree(shards, ignore_errors=True)
        raise
    shutil.rmtree(shards, ignore_errors=True)
    corpus = TokenizedCorpus.load(folder)
    corpus.tally.warn(documents.name)
    return corpus


def tokenize(
    documents: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    control_tokens: Sequence[str] | None = None,
) -> TokenizedCorpus:
    """Tokenize documents into memory; see `tokenized_corpus`."""
    backend = text_backend(tokenizer, control_tokens)
    kind = token_kind(num_ids(backend))
    batches = list(_batches(documents)) or [[]]
    return join_corpora([_tokenize(texts, backend, kind) for texts in batches])


def tokenized_parts(documents: Iterable[str], backend: Tokenizer) -> Iterator[TokenizedCorpus]:
    """Tokenize documents some at a time, each part in memory; see `tokenized_corpus`."""
    kind = token_kind(num_ids(backend))
    for texts in _batches(documents):
        yield _tokenize(texts, backend, kind)


def digest_of(backend: Tokenizer) -> str:
    """Hash how a tokenizer reads text, as `text_backend` made it: its vocabulary, rules and control tokens.

    What it puts around texts is left out: a run changes that to what its model learns (`fit_frame`).
    """
    description = json.loads(backend.to_str())
    description.pop("post_processor", None)
    return hashlib.sha256(json.dumps([EDITION, description], sort_keys=True).encode()).hexdigest()


def text_backend(
    tokenizer: PreTrainedTokenizerBase, control_tokens: Sequence[str] | None = None
) -> Tokenizer:
    """Copy the tokenizer for text alone: it neither cuts nor pads, and finds no special but control tokens.

    The others are not looked for. Pair encoding then writes their names by pieces, but a unigram model (T5,
    XLM-R) or a vocabulary of words takes a name for its token wherever it stands, as in `<s>old</s>`: there
    the names become such that no text holds. A name of one character is text (CLIP pads with `!`).

    Args:
        control_tokens: Their names; by default those of all special tokens without a role.
    """
    original = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(original, Tokenizer):
        raise ValueError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, which is needed for the places of tokens: "
            f"choose one with a tokenizer.json"
        )
    recognized = find_control_tokens(tokenizer) if control_tokens is None else control_tokens
    description = json.loads(original.to_str())
    added, model = description["added_tokens"], description["model"]
    if "dropout" in model:  # a text is read in one way
        model["dropout"] = None
    special = {*tokenizer.all_special_tokens, *(token["content"] for token in added if token["special"])}
    special -= set(recognized)
    hidden = {} if model.get("merges") else {name: f"\0{name}" for name in special if len(name) > 1}
    for token in added:  # `encode_special_tokens` makes text of those that are special
        name = token["content"]
        token["special"] = name in special
        if name in hidden:  # a normalizer might take the first character off again
            token |= {"content": hidden[name], "normalized": False}
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden.get(name, name): idx for name, idx in model["vocab"].items()}
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    else:
        model["vocab"] = [(hidden.get(name, name), score) for name, score in model["vocab"]]
    backend = Tokenizer.from_str(json.dumps(description))
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    return backend


class TextCounter:
    """Count in texts what their tokenizer reads otherwise than their author may expect, or not at all.

    Args:
        ends: Names of tokens that begin or end texts, which it reads as text.
    """

    def __init__(self, backend: Tokenizer, ends: Sequence[str]):
        self.ends = ends
        self.count_dropped = counting_of_dropped(backend)

    def __call__(self, text: str, tally: Tally) -> None:
        tally.count_names(text, self.ends)
        if self.count_dropped is not None:
            tally.bytes += len(text.encode())
            tally.dropped += self.count_dropped(text)


def _fill(folder: Path, shards: Path, documents: Documents, backend: Tokenizer, ends: Sequence[str]) -> None:
    # By way of `shards`, with a progress bar; `ends` are counted.
    tally, size = Tally(), num_ids(backend)
    kind, count = token_kind(size), TextCounter(backend, ends)
    with tqdm(desc=f"tokenizing {documents.name}", unit=" documents", disable=None, leave=False) as bar:

        def counted(text: str) -> str:
            count(text, tally)
            return text

        def tokenized(batches: Iterable[tuple[int, list[str]]]) -> Iterator[TokenizedCorpus]:
            for _, texts in batches:
                yield _tokenize(texts, backend, kind)
                bar.update(len(texts))

        def parts() -> Iterator[TokenizedCorpus]:
            batches = enumerate(_batches(map(counted, documents.read(tally))))
            for number, group in groupby(batches, lambda numbered: numbered[0] // BATCHES_OF_A_SHARD):
                write = partial(save_corpus, tokenized(group), vocabulary_size=size, tally=Tally())
                yield TokenizedCorpus.load(made_once(shards / f"{number:06}", write))

        save_corpus(parts(), folder, size, tally)


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    # Enough documents for all threads, however long one is.
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


def num_ids(backend: Tokenizer) -> int:
    """Count the ids up to the last: more than there are tokens where some are left out."""
    return max(backend.get_vocab().values()) + 1


def _tokenize(texts: Sequence[str], backend: Tokenizer, kind: np.dtype) -> TokenizedCorpus:
    # Sentences and words are found in all documents at once, joined by line ends.
    encoded = encode(texts, backend)
    begins = [sentence_begins(text) for text in texts]
    bases = offsets(np.array([len(text) + 1 for text in texts], dtype=np.int64))[:-1]
    numbers = np.array([len(places) for places in begins], dtype=np.int64)
    sentences = np.fromiter(chain.from_iterable(begins), np.int64, numbers.sum()) + bases.repeat(numbers)
    starts = np.maximum.accumulate(encoded.starts + bases.repeat(encoded.lengths))
    sentence_of_token = sentences.searchsorted(starts, side="right") - 1
    lengths = np.bincount(sentence_of_token, minlength=len(sentences))
    has_tokens = lengths > 0  # not so a sentence of control characters
    document_of_sentence = np.arange(len(texts)).repeat(numbers)
    sentence_offsets = offsets(lengths[has_tokens])
    words = word_starts("\n".join(texts), starts)
    words[sentence_offsets[:-1]] = True
    return TokenizedCorpus(
        tokens=encoded.ids.astype(kind),
        word_starts=words,
        sentence_offsets=sentence_offsets,
        document_offsets=offsets(np.bincount(document_of_sentence[has_tokens], minlength=len(texts))),
        document_bytes=np.array([len(text.encode()) for text in texts], dtype=np.int64),
    )


WINDOW = 100_000
"""Characters of a window; texts up to this length are encoded as they are."""
OVERLAP = 2000
"""Characters that a window shares with the next one; they have to agree over the half in the middle. They are
no fewer than twice `LONGEST_WORD` of our tokenizers, so that windows notice where they cut a longer word."""
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
    # Some windows at once, with places in the whole text.
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
    # Around it both windows agree; the second one begins at `begin`.
    quarter = OVERLAP // 4
    ours, theirs = (window.between(begin + quarter, begin + 3 * quarter) for window in (before, behind))
    if not all(map(np.array_equal, ours, theirs)):
        return None
    return int(ours.starts[len(ours.starts) // 2]) if len(ours.starts) else begin + 2 * quarter


def _encode(texts: Sequence[str], backend: Tokenizer) -> Encoded:
    return Encoded.of(backend.encode_batch(list(texts), add_special_tokens=False))
