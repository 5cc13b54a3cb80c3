"""Tokenizers: trained on the corpus by `tokenizers`, wrapped for `transformers`, loaded by `AutoTokenizer`.

    wordpiece    words, cut into pieces found by WordPiece (Devlin et al., 2019)
    byte_bpe     byte pair encoding over bytes (Radford et al., 2019): knows every text, loses none
    unigram      the likeliest pieces of a unigram model (Kudo, 2018), spaces kept as in SentencePiece
    characters   one token per character
    words        the most frequent words; others as their bytes, one token each (ELMo reads characters)

Every kind has a padding token of its own, apart from the one that ends a text, and a token for each role that
an objective may ask for: bos and cls are one token, eos and sep another.

A trainer gives every character that it sees a place, so words with very rare characters are kept from it. It
numbers some tokens in the order of a hash map, which changes from run to run, so they are put in order: the
same text gives the same tokens, ids and scores. The time it takes grows with the square of a word's length,
so very long words are learned from in parts.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from huggingface_hub import snapshot_download
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...modeling.saved.foreign_folder import require_own_files
from ...modeling.saved.model_folder import (
    WANTED_OF_TOKENIZERS,
    keep_option,
    pads,
    read_fields,
    read_tokenizer,
    require_dense_ids,
    save_tokenizer,
    settle_reading,
    unreadable,
    untrusted,
)
from ...modeling.saved.weights import require_counts
from .special_tokens import SENTINEL, any_text, around

COVERAGE = 0.9999
"""Share of a corpus' characters that the vocabulary covers; the rarest become unknown."""

LONGEST_WORD = 1000
"""Characters of a stretch without white space, or of white space alone, that a trainer is given at once; a
longer word is one unknown token of `wordpiece`, whose time grows with the square of a word's length, too."""

LONGEST_RARE = 100
"""Characters, about, that a trainer does not see before and behind a rare one in the same word."""

LONGEST_PIECE = 100_000
"""Characters of a text, about, that a trainer is given at once."""

STEP, DIGITS = 0.0001, 6
"""Between the scores of characters that a unigram trainer appends; digits of scores that do not vary."""

BETWEEN_WORDS = re.compile(r"(?<=[^\W_])(?= [^\W_])")

CONTROLS, SPACES = (
    Regex("[\u0001-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]"),
    Regex("[\t\n\f\r\u1680\u200b\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd]"),
)
"""What SentencePiece's rules (`Nmt`) leave out of a text, and what they make a space, but for U+200C and
U+200D: these join the parts of words (Persian) and of emoji."""

LONG = re.compile(rf"\S{{{LONGEST_WORD + 1}}}|\s{{{LONGEST_WORD + 1}}}")


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens that are no text, by what they are for.

    `padding` fills up, `unknown` stands for what the vocabulary lacks (`None`: it lacks nothing), `opening`
    and `closing` stand around texts, and `mask` for a token that is to be predicted.
    """

    padding: str
    unknown: str | None
    opening: str
    closing: str
    mask: str
    are_for_words: bool = False
    """Whether tokens begin with the space before them, so that what stands for one takes that space, too."""

    def added(self, names: Sequence[str], holes: Sequence[str]) -> list[AddedToken]:
        """Make tokens of names, of which some are `holes` in a text that stand for tokens."""
        strips = {name for name in (self.mask, *holes) if self.are_for_words}
        return [AddedToken(name, lstrip=name in strips, normalized=False, special=True) for name in names]

    def names(self) -> list[str]:
        """List the tokens in the order of their ids, which are the first (`unigram`: the last)."""
        names = [self.padding, self.unknown, self.opening, self.closing, self.mask]
        return [name for name in names if name is not None]

    def roles(self) -> dict[str, str | None]:
        """Name the tokens as `transformers` does."""
        return {
            "pad_token": self.padding,
            "unk_token": self.unknown,
            "cls_token": self.opening,
            "bos_token": self.opening,
            "sep_token": self.closing,
            "eos_token": self.closing,
            "mask_token": self.mask,
        }


BRACKETS = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLES = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>", are_for_words=True)
BYTES = SpecialTokens("<pad>", None, "<s>", "</s>", "<mask>", are_for_words=True)


def _wordpiece(documents: Iterable[str], size: int, lowercase: bool, special: SpecialTokens) -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token=special.unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    alphabet = _alphabet(documents)
    characters = sorted(set(backend.normalizer.normalize_str("".join(alphabet))))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=characters,
        # Not special at all: what is named here is numbered in this order, not in the order of a hash map.
        special_tokens=[
            *special.names(),
            *(f"##{character}" for character in characters if _continues(backend, character)),
        ],
        show_progress=False,
    )
    backend.train_from_iterator(_parts(_common_text(documents, alphabet)), trainer)
    model = models.WordPiece(
        backend.get_vocab(), unk_token=special.unknown, max_input_chars_per_word=LONGEST_WORD
    )
    return _with_model(backend, model)


def _byte_bpe(documents: Iterable[str], size: int, lowercase: bool, special: SpecialTokens) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=special.added(special.names(), ()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_parts(documents), trainer)
    return backend


def _unigram(documents: Iterable[str], size: int, lowercase: bool, special: SpecialTokens) -> Tokenizer:
    steps = [
        normalizers.Replace(CONTROLS, ""),
        normalizers.Replace(SPACES, " "),
        normalizers.NFKC(),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()] if lowercase else steps)
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    alphabet = _alphabet(documents)
    characters = set(backend.normalizer.normalize_str("".join(alphabet)))
    if len(characters) + len(special.names()) > size:
        raise too_small(size, len(characters) + len(special.names()))
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special.names(), unk_token=special.unknown, show_progress=False
    )
    backend.train_from_iterator(_parts(_common_text(documents, alphabet)), trainer)
    # Special tokens stay out of the model, which would find them in texts that only speak of them.
    learned = json.loads(backend.to_str())["model"]["vocab"]
    scores = settled_scores({piece: score for piece, score in learned if piece not in special.names()})
    assert special.unknown is not None
    pieces = [(special.unknown, 0.0), *sorted(scores.items())]
    model = models.Unigram(pieces, unk_id=0, byte_fallback=False)
    return _with_model(backend, model)


def settled_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Give the pieces of a unigram model the scores that every training of the same text gives them.

    Characters that are no pieces get the lowest score and the next ones in steps, in the order of a hash map:
    here in their own. Sums of floating-point numbers, whose order differs, are rounded.
    """
    scores = {piece: round(score, DIGITS) for piece, score in scores.items()}
    tied: list[str] = []
    for number in count():
        score = round(min(scores.values()) + number * STEP, DIGITS)
        here = [piece for piece, own in scores.items() if own == score and len(piece) == 1]
        if not here:
            break
        tied += here
    return scores | dict(zip(sorted(tied), sorted(scores[piece] for piece in tied), strict=True))


def _characters(documents: Iterable[str], size: int, lowercase: bool, special: SpecialTokens) -> Tokenizer:
    alphabet = _alphabet(text.lower() if lowercase else text for text in documents)
    vocabulary = {name: number for number, name in enumerate([*special.names(), *alphabet])}
    # Byte pair encoding without pairs.
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token=special.unknown))
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s"), "merged_with_next")
    backend.decoder = decoders.Fuse()
    return backend


def _words(documents: Iterable[str], size: int, lowercase: bool, special: SpecialTokens) -> Tokenizer:
    normalizer = normalizers.BertNormalizer(clean_text=False, lowercase=lowercase, strip_accents=False)
    words = pre_tokenizers.BertPreTokenizer()
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    counts: Counter[str] = Counter()
    for text in _parts(documents):
        found = words.pre_tokenize_str(normalizer.normalize_str(text))
        counts.update(word for word, _ in found)
    byte_names = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*special.names(), *byte_names, *(f"##{name}" for name in byte_names)]
    if len(names) > size:
        raise too_small(size, len(names))
    known = set(names)
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        name = "".join(part for part, _ in as_bytes.pre_tokenize_str(word))
        if len(names) < size and name not in known:
            names.append(name)
    vocabulary = {name: number for number, name in enumerate(names)}
    # Byte pair encoding without pairs, which takes a word that it knows as it is.
    backend = Tokenizer(
        models.BPE(
            vocabulary,
            [],
            unk_token=special.unknown,
            continuing_subword_prefix="##",
            ignore_merges=True,
        )
    )
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    backend.decoder = decoders.Sequence(
        [decoders.WordPiece(cleanup=False), decoders.Replace(" ", "Ġ"), decoders.ByteLevel()]
    )
    return backend


Learn = Callable[[Iterable[str], int, bool, SpecialTokens], Tokenizer]

KINDS: dict[str, tuple[SpecialTokens, Learn]] = {
    "wordpiece": (BRACKETS, _wordpiece),
    "byte_bpe": (BYTES, _byte_bpe),
    "unigram": (ANGLES, _unigram),
    "characters": (BRACKETS, _characters),
    "words": (BRACKETS, _words),
}
"""Kind -> its special tokens, and what learns at most so many tokens from documents."""


def _with_model(backend: Tokenizer, model: models.Model) -> Tokenizer:
    # All but the model, and what its trainer took for special.
    copy = Tokenizer(model)
    copy.normalizer, copy.pre_tokenizer, copy.decoder = (
        backend.normalizer,
        backend.pre_tokenizer,
        backend.decoder,
    )
    return copy


def _alphabet(texts: Iterable[str]) -> list[str]:
    # By frequency, without the rarest ones.
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    allowed_to_miss = (1 - COVERAGE) * counts.total()
    alphabet = sorted(counts, key=lambda character: (-counts[character], character))
    while len(alphabet) > 1 and counts[alphabet[-1]] <= allowed_to_miss:
        allowed_to_miss -= counts[alphabet.pop()]
    return alphabet


def _common_text(documents: Iterable[str], alphabet: list[str]) -> Iterator[str]:
    # Lines, cut where words have rare characters; text without spaces loses a part of such a word.
    rare, word = f"[^{re.escape(''.join(alphabet))}\n]", rf"\S{{0,{LONGEST_RARE}}}"
    is_rare, cut = re.compile(rare), re.compile(rf"(?:(?<!\S){word})?{rare}(?:{word}(?!\S))?")
    for line in chain.from_iterable(text.split("\n") for text in documents):
        yield from cut.split(line) if is_rare.search(line) else (line,)


def _parts(texts: Iterable[str]) -> Iterator[str]:
    # Texts with very long words are cut, and long ones between words: a trainer holds a text many times.
    for text in texts:
        if LONG.search(text):
            yield from (text[start : start + LONGEST_WORD] for start in range(0, len(text), LONGEST_WORD))
        elif text:
            yield from _pieces(text)


def _pieces(text: str) -> Iterator[str]:
    # Of about `LONGEST_PIECE`, cut before the spaces of words.
    start = 0
    while len(text) - start > LONGEST_PIECE and (match := BETWEEN_WORDS.search(text, start + LONGEST_PIECE)):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]


def _continues(backend: Tokenizer, character: str) -> bool:
    # A mark or a Chinese character is a word for itself.
    assert backend.normalizer is not None
    assert backend.pre_tokenizer is not None
    text = backend.normalizer.normalize_str(f"a{character}")
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] == [f"a{character}"]


def too_small(room: int, needed: int) -> ValueError:
    """Return the error of a vocabulary that cannot hold what every one of its kind must hold."""
    return ValueError(
        f"tokenizer.vocab_size leaves room for {room} tokens beside sentinels and the like, but special "
        f"tokens and characters alone are {needed}: raise it well above that"
    )


Kind = Literal["wordpiece", "byte_bpe", "unigram", "characters", "words"]
Template = Literal["pair", "single", "end", "both_ends", "plain"]

DEFAULT_TEMPLATES: dict[str, Template] = {
    "wordpiece": "pair",
    "characters": "pair",
    "words": "single",
    "byte_bpe": "plain",
    "unigram": "plain",
}


def train_tokenizer(
    documents: Iterable[str],
    kind: Kind,
    vocab_size: int,
    *,
    lowercase: bool = False,
    sentinels: int = 0,
    special_tokens: Sequence[str] = (),
    template: Template | None = None,
    model_max_length: int | None = None,
) -> PreTrainedTokenizerFast:
    """Learn a vocabulary from documents.

    Args:
        documents: Texts, read twice (`byte_bpe`: once).
        kind: How words are cut.
        vocab_size: Most tokens of the vocabulary, special tokens and sentinels included.
        lowercase: Drop case; `wordpiece` then drops accents, too, as BERT's uncased models do.
        sentinels: How many of `<extra_id_0>`, `<extra_id_1>`, ... to have (T5: 100). They have the last
            ids, ascending.
        special_tokens: Names of further ones, e.g. `<fim_middle>`; their ids are those before the sentinels'.
        template: What a call of the tokenizer puts around a text: `pair` [CLS] A [SEP] B [SEP] with token
            types, `single` the same without token types, `end` A [SEP], as sequence-to-sequence models are
            fed, `both_ends` [SEP] A [SEP], as models are that read from both ends, `plain` nothing, as
            decoders are. By default `pair` for `wordpiece` and `characters`, `single` for `words`, `plain`
            for the others.
        model_max_length: Tokens to which `truncation=True` cuts.
    """
    if kind not in KINDS:
        raise ValueError(f"tokenizer kind is {kind!r}: use one of {', '.join(KINDS)}")
    special, learn = KINDS[kind]
    holes = [SENTINEL.format(number) for number in range(sentinels)]
    names = [*special_tokens, *holes]
    room = vocab_size - len(names)
    if room <= len(special.names()):
        raise too_small(room, len(special.names()) + 1)
    backend = learn(documents, room, lowercase, special)
    backend.add_special_tokens(special.added(special.names() + names, holes))
    if backend.get_vocab_size() > vocab_size:
        raise too_small(room, backend.get_vocab_size() - len(names))
    return wrapped(backend, special, template or DEFAULT_TEMPLATES[kind], names, model_max_length)


def wrapped(
    backend: Tokenizer,
    special: SpecialTokens,
    template: Template,
    special_tokens: list[str],
    model_max_length: int | None,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of `transformers` from one of `tokenizers`."""
    if template != "plain":
        ends = [special.opening], [special.closing]
        backend.post_processor = framing(template, backend.get_vocab(), *ends)
    options: dict[str, Any] = {} if model_max_length is None else {"model_max_length": model_max_length}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        extra_special_tokens=special_tokens,
        model_input_names=[
            "input_ids",
            *(["token_type_ids"] if template == "pair" else []),
            "attention_mask",
        ],
        padding_side="left" if template == "plain" else "right",  # a decoder continues at the right end
        clean_up_tokenization_spaces=False,
        **special.roles(),
        **options,
    )


def framing(
    template: Template, vocabulary: Mapping[str, int], opening: Sequence[str], closing: Sequence[str]
) -> processors.TemplateProcessing:
    """Build what a call of a tokenizer puts around a text, and around two.

    Args:
        template: See `train_tokenizer`; what is `plain` begins with `opening`.
    """
    before = {"end": [], "both_ends": closing}.get(template, opening)
    behind = [] if template == "plain" else closing
    kind = ":0" if template in {"plain", "both_ends"} else ":1"
    single = [*before, "$A", *behind]
    pair = [*single, f"$B{kind}", *(f"{name}{kind}" for name in behind)]
    return processors.TemplateProcessing(
        single,
        pair,
        [(name, vocabulary[name]) for name in dict.fromkeys([*before, *behind])],
    )


def fit_frame(tokenizer: PreTrainedTokenizerBase, template: Template, name: str) -> None:
    """Let a tokenizer put around a text what the model learns to see there, and print what changes.

    BERT's closes texts, after which a decoder would begin another one; GPT-2's leaves out the tokens between
    which an encoder reads. What else stands around a text (the code of a language) stays. A tokenizer of a
    class of its own becomes one of the general class: some build their frames anew when they are loaded.

    Args:
        template: See `train_tokenizer`; whatever begins a text may stay where it is `plain`.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return
    opening, closing = (tokenizer.convert_ids_to_tokens(ids) for ids in frame_ids(tokenizer))
    text = any_text(tokenizer)
    theirs = before, behind = [tokenizer.convert_ids_to_tokens(ids) for ids in around(tokenizer(text))]
    if template == "plain":
        opening, is_fit = before, not behind
    else:
        needed = {"end": [], "both_ends": closing}.get(template, opening)
        is_fit = set(needed) <= set(before) and set(closing) <= set(behind)
    if is_fit:
        return
    tokenizer.backend_tokenizer.post_processor = framing(template, tokenizer.get_vocab(), opening, closing)
    tokenizer.__class__ = PreTrainedTokenizerFast
    keep_option(tokenizer, "model_input_names", tokenizer.model_input_names)
    keep_option(tokenizer, "padding_side", "left" if template == "plain" else tokenizer.padding_side)
    learned = [tokenizer.convert_ids_to_tokens(ids) for ids in around(tokenizer(text))]
    shown = [" ".join([*frame[0], "TEXT", *frame[1]]) for frame in (theirs, learned)]
    print(
        f"{name}: the tokenizer writes {shown[0]}; beside the model, it writes what that learns, {shown[1]}",
        file=sys.stderr,
        flush=True,
    )


def load_tokenizer(path: str, folder: Path | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder or the Hub; one without a padding token gets one, see `pads`."""
    is_here = folder is not None or Path(path).exists()
    try:
        found = folder or Path(
            path if is_here else snapshot_download(path, allow_patterns=WANTED_OF_TOKENIZERS)
        )
    except Exception as error:  # a name, a network, a Hub: each fails in its own way
        raise unreadable(f"tokenizer.path {path!r}", error, "check the path") from error
    if found.is_dir():
        require_own_files(found)
        require_counts(found, read_fields(found))
    try:
        tokenizer = read_tokenizer(
            str(folder or path), trust_remote_code=False, revision=None if is_here else found.name
        )  # without a question on the terminal
    except Exception as error:  # every kind fails in its own way
        if "trust_remote_code" in str(error):
            raise untrusted(f"tokenizer.path {path!r} brings", None) from error
        raise unreadable(f"tokenizer.path {path!r}", error, "check the path") from error
    if not tokenizer.is_fast:
        raise ValueError(f"tokenizer.path {path!r} has no fast tokenizer: choose one with a tokenizer.json")
    if not pads(tokenizer, path):
        raise ValueError(
            f"tokenizer.path {path!r} has neither a pad token nor an eos token: add one "
            "(tokenizer.add_special_tokens({'pad_token': '[PAD]'})), and save it again"
        )
    require_dense_ids(tokenizer, path)
    settle_reading(tokenizer, str(folder or path))
    return tokenizer


def saved_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, bytes]:
    """Return what `save_tokenizer` writes of a tokenizer, by path: named templates lie in a folder."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_tokenizer(tokenizer, folder)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def frame_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the ids that open and close a text: [CLS] and [SEP], else bos and eos, else nothing."""
    opening = tokenizer.bos_token_id if tokenizer.cls_token_id is None else tokenizer.cls_token_id
    closing = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    return [[] if token is None else [token] for token in (opening, closing)]  # pyright: ignore[reportReturnType]
