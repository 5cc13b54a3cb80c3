"""Which ids of a tokenizer are text and which are special: [MASK], [SEP], `<extra_id_0>`, [UNK], ...

Special tokens are put around and into a text by objectives, so what looks like one in a text is text.
Control tokens are the exception: `<|title|>`, `<|user|>` and the like have no role for a tokenizer or an
objective. Their user puts them into texts on purpose, and later into prompts.

A text of which every second token is unknown has a low perplexity, which says little of a model: what a
tokenizer cannot write is easy to guess. So the share of unknown tokens is shown beside the scores, always.
Pair encoding without an unknown token drops what it cannot write: such text is counted in bytes.

Legend: V ids of the tokenizer, K sentinels.
"""

import json
import re
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..files.problems import dropped_in_words

SENTINEL = "<extra_id_{}>"
"""Name of the k-th sentinel, as T5's tokenizers spell it."""
IS_SENTINEL = re.compile(r"<extra_id_\d+>")

FIM_TOKENS = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")
"""What stands before each part of a text of which the middle is to be filled in."""

MODES = ("[R]", "[S]", "[X]")
"""The mode tokens of a mixture of denoisers."""

UNKNOWN = "unknown_tokens"
"""Under this name it is told which share of the text's tokens the tokenizer does not know."""

OF_OBJECTIVES = (*FIM_TOKENS, *MODES)
"""Tokens without a role that only objectives put into a text."""

ANY_TEXT = "a"
"""Stands for any text where what a tokenizer puts around it is looked at, if it knows the letter."""


def required_token_id(tokenizer: PreTrainedTokenizerBase, role: str, needed_by: str) -> int:
    """Return the id of a special token by its role (`mask`, ...); without one, an error says who needs it."""
    token_id = getattr(tokenizer, f"{role}_token_id")
    if token_id is None:
        raise ValueError(
            f"{needed_by} needs the tokenizer's {role}_token, but it is None: "
            f"add one (tokenizer.add_special_tokens({{'{role}_token': ...}})) or train the tokenizer anew"
        )
    return token_id


ControlTokens = Literal["own"] | Sequence[str]
"""The added tokens that a text may hold as such: all without a role, or those of some names."""


def control_tokens(
    tokenizer: PreTrainedTokenizerBase,
    choice: ControlTokens = "own",
    reserved: Sequence[str] = OF_OBJECTIVES,
) -> list[str]:
    """List the special tokens that are recognized in a text.

    Args:
        tokenizer: Has them among its added tokens.
        choice: `own` for all that have no role (`bos_token`, `mask_token`, ...) and are no sentinels; or
            names, which may also be those of the tokens that begin and end a text.
        reserved: Names that only objectives put into a text.
    """
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    roles = {role: getattr(tokenizer, role) for role in tokenizer.SPECIAL_TOKENS_ATTRIBUTES}
    inserted = {*reserved, *(name for name in added if IS_SENTINEL.fullmatch(name))}
    if choice == "own":
        return [name for name in added if name not in inserted and name not in roles.values()]
    if missing := [name for name in choice if name not in added]:
        raise ValueError(
            f"corpus.control_tokens: the tokenizer has no special token {', '.join(map(repr, missing))}: add "
            f"it with tokenizer.add_special_tokens and save the tokenizer again"
        )
    ends = {roles["bos_token"], roles["eos_token"]}
    inserted |= set(roles.values()) - ends
    if refused := [name for name in choice if name in inserted]:
        raise ValueError(
            f"corpus.control_tokens: {', '.join(map(repr, refused))} is reserved, since objectives insert it "
            f"themselves: remove it from corpus.control_tokens"
        )
    return list(choice)


def ends_read_as_text(tokenizer: PreTrainedTokenizerBase, recognized: Sequence[str]) -> list[str]:
    """List the tokens that begin or end texts and are not recognized in a text, though it may hold them.

    Corpora for other programs have `<|endoftext|>` between documents, or dialogues whose turns end with it. A
    name of one character, such as a line end, is text.
    """
    ends = dict.fromkeys((tokenizer.bos_token, tokenizer.eos_token))
    return [name for name in ends if isinstance(name, str) and len(name) > 1 and name not in recognized]


def target_language(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return what the language of targets asks of a decoder, if a fast tokenizer marks it (mBART, NLLB).

    A code that stands before a target is written first. With one behind it the decoder starts: it reads the
    targets one step late, and the last token first (mBART).
    """
    before, behind = around(tokenizer(text_target=any_text(tokenizer)))
    usual = {getattr(tokenizer, f"{role}_token_id") for role in ("bos", "cls", "eos", "sep")}
    found = {"forced_bos_token_id": before[-1:], "decoder_start_token_id": behind[-1:]}
    return {name: ids[0] for name, ids in found.items() if ids and ids[0] not in usual}


def any_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a text that a tokenizer does not drop: a letter, or else its first token that is text."""

    def is_kept(text: str) -> bool:
        return bool(tokenizer(text, add_special_tokens=False)["input_ids"])

    if is_kept(ANY_TEXT):
        return ANY_TEXT
    for text in tokenizer.batch_decode(np.flatnonzero(~is_special(tokenizer))[:, None].tolist()):
        if is_kept(text):
            return text
    raise ValueError("the tokenizer has no token of text: name a model whose tokenizer has a vocabulary")


def around(encoded: BatchEncoding) -> tuple[list[int], list[int]]:
    """Return the ids that a fast tokenizer has put before a text and behind it."""
    encoding = (encoded.encodings or [])[0]
    of_text = [place for place, number in enumerate(encoding.sequence_ids) if number is not None]
    return encoding.ids[: min(of_text, default=0)], encoding.ids[max(of_text, default=-1) + 1 :]


def is_special(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Return which ids (V,) are no text: special tokens of any role, sentinels, unused ids."""
    vocabulary = np.fromiter(tokenizer.get_vocab().values(), dtype=np.int64)
    special = np.ones(vocabulary.max() + 1, dtype=bool)
    special[vocabulary] = False
    special[tokenizer.all_special_ids] = True
    special[[idx for idx, token in tokenizer.added_tokens_decoder.items() if token.special]] = True
    return special


def sentinel_ids(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """List the ids of `<extra_id_0>`, `<extra_id_1>`, ... (K,), whichever order their ids have."""
    vocabulary = tokenizer.get_vocab()
    ids = []
    while (name := SENTINEL.format(len(ids))) in vocabulary:
        ids.append(vocabulary[name])
    return np.array(ids, dtype=np.int64)


def named_token_ids(tokenizer: PreTrainedTokenizerBase, names: Sequence[str], needed_by: str) -> np.ndarray:
    """Return the ids of special tokens that have names and no role (K,), or say who misses one."""
    special = {token.content: idx for idx, token in tokenizer.added_tokens_decoder.items() if token.special}
    if missing := [name for name in names if name not in special]:
        raise ValueError(
            f"{needed_by} needs the special tokens {', '.join(names)}, but the tokenizer lacks "
            f"{', '.join(missing)}: train one for it (leave tokenizer.path and model.path out), or add them "
            f"with tokenizer.add_special_tokens and resize the model's embeddings"
        )
    return np.array([special[name] for name in names], dtype=np.int64)


LARGE = 0.01
"""Share from which on scores say little of the text; of English, WordPiece knows all but one in thousands."""


AT_ONCE = 2**22
"""Tokens of a corpus that are counted at once."""
SHOWN = 8
"""Control tokens, or characters, that are listed: the most frequent ones."""


def share_of_unknown(tokens: Iterable[np.ndarray], tokenizer: PreTrainedTokenizerBase) -> float:
    """Compute the share of tokens that stand for what a tokenizer does not know; NaN if there are no tokens.

    A tokenizer with a token for every byte knows everything: the unknown token that it may have by name has
    another use.
    """
    parts, ids = list(tokens), _unknown_ids(tokenizer)
    total = sum(map(len, parts))
    number = sum(int((part[:] == unknown).sum()) for part in parts for unknown in ids)
    return number / total if total else float("nan")


def _unknown_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    # In a `tokenizer.json`, the unknown token may have no role.
    ids: list[Any] = [tokenizer.unk_token_id]
    others: tuple[Any, ...] = ()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if isinstance(backend, Tokenizer):
        description = json.loads(backend.to_str())
        model = description["model"]
        ids += [model.get("unk_id"), backend.token_to_id(model.get("unk_token") or "")]
        if spells_bytes(description):
            others = tokenizer.bos_token_id, tokenizer.eos_token_id
    return {token_id for token_id in ids if token_id is not None and token_id not in others}


def spells_bytes(description: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer, by its `tokenizer.json`, has a token for every byte."""
    names: Iterable[str] = ()
    if reads_bytes(description):
        names = ByteLevel.alphabet()
    elif description["model"].get("byte_fallback"):
        names = map(BYTE.format, range(256))
    vocabulary = dict(description["model"]["vocab"])
    return bool(names) and all(name in vocabulary for name in names)


def reads_bytes(description: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer, by its `tokenizer.json`, makes a character of each byte of a text."""
    return '"ByteLevel"' in json.dumps([description["normalizer"], description["pre_tokenizer"]])


BYTE = "<0x{:02X}>"
"""Name of the token of a byte, as SentencePiece spells it."""
SPACES_OF_BYTES, SPACES = "ĠĊĉčČċ", "▁"
"""What stands for white space after a text is read by bytes, and otherwise (SentencePiece)."""


def counting_of_dropped(backend: Tokenizer) -> Callable[[str], int] | None:
    """Return what counts the bytes of a text that a tokenizer drops; `None` if it drops none.

    Pair encoding without an unknown token does, where a character is not in its vocabulary. What it leaves
    out on purpose (white space, or what its normalizer removes) is not counted.
    """
    description = json.loads(backend.to_str())
    model = description["model"]
    if model["type"] != "BPE" or model["unk_token"] or spells_bytes(description):
        return None
    vocabulary, is_bytes = model["vocab"], reads_bytes(description)
    before, behind = model["continuing_subword_prefix"] or "", model["end_of_word_suffix"] or ""
    spaces = SPACES_OF_BYTES if is_bytes else SPACES
    names = [token["content"] for token in description["added_tokens"] if not token["special"]]
    recognized = re.compile("|".join(map(re.escape, names)) or r"(?!)")

    def is_dropped(character: str, symbol: str) -> bool:
        if symbol in vocabulary or character in spaces or character.isspace():
            return False
        names = map(BYTE.format, character.encode())
        return not (model["byte_fallback"] and all(name in vocabulary for name in names))

    def dropped_of(word: str) -> int:
        if model["ignore_merges"] and word in vocabulary:
            return 0
        symbols = [*word[:1], *(before + character for character in word[1:])]
        symbols[-1:] = [symbol + behind for symbol in symbols[-1:]]
        dropped = [each for each in zip(word, symbols, strict=True) if is_dropped(*each)]
        return sum(1 if is_bytes else len(character.encode()) for character, _ in dropped)

    def dropped_in(text: str) -> int:
        words = Counter[str]()
        for part in recognized.split(text):
            part = backend.normalizer.normalize_str(part) if backend.normalizer else part
            cut = backend.pre_tokenizer.pre_tokenize_str(part) if backend.pre_tokenizer else [(part,)]
            words.update(word for word, *_ in cut)
        return sum(number * dropped_of(word) for word, number in words.items())

    return dropped_in


class DroppedText:
    """Warns of text that a fast tokenizer drops: once, of the first texts of which it does."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self.count = counting_of_dropped(backend) if isinstance(backend, Tokenizer) else None

    def __call__(self, texts: Iterable[str]) -> None:
        if self.count is None:
            return
        pairs = [(len(text.encode()), self.count(text)) for text in texts]
        total, dropped = map(sum, zip(*pairs, strict=True)) if pairs else (0, 0)
        if dropped:
            self.count = None
            number = sum(bool(lost) for _, lost in pairs)
            warnings.warn(
                f"{dropped_in_words(dropped, total)}: {number:,} of {len(pairs):,} texts lose "
                "some; choose a model whose tokenizer knows this language",
                stacklevel=3,
            )


def tell_of_unknown(share: float, text: str) -> None:
    """Show the share on the screen, and warn of a large one."""
    print(f"{text}: {share:.2%} of the tokens are unknown to the tokenizer", file=sys.stderr, flush=True)
    if share > LARGE:
        warnings.warn(
            f"{share:.1%} of the tokens of {text} are unknown, and one token stands for all of them: losses "
            "and perplexities are not meaningful; choose a tokenizer for this language, a larger vocabulary "
            "of words, or a byte-level one",
            stacklevel=2,
        )


def lost_by_normalizing(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Name what a text loses on the way into a tokenizer: `case`, `accents`."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if normalizer is None:
        return []
    marks = map(unicodedata.combining, unicodedata.normalize("NFD", normalizer.normalize_str("é")))
    lost = {"case": normalizer.normalize_str("A").islower(), "accents": not any(marks)}
    return [name for name, is_lost in lost.items() if is_lost]


def writes_lowercase(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether upper case is lost on the way into a tokenizer."""
    return "case" in lost_by_normalizing(tokenizer)


def tell_of_unwritable(references: Sequence[str], tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    """Say which share of references has characters that a tokenizer loses, so that no model can write them.

    Spaces do not count, and case does not where none is written. A normalizer that takes accents away, or
    writes "," for the wide comma of Chinese, makes each of them an error, whatever the model has learned.
    """
    ids: Any = tokenizer(list(references), add_special_tokens=False)["input_ids"]
    fold = str.lower if writes_lowercase(tokenizer) else str
    pairs = zip(references, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
    lost = [Counter("".join(fold(one).split())) - Counter(fold(other)) for one, other in pairs]
    if number := sum(map(bool, lost)):
        usual = " ".join(each for each, _ in sum(lost, Counter[str]()).most_common(SHOWN))
        print(
            f"{text}: {number / len(references):.1%} of the references have characters that the tokenizer "
            f"loses ({usual}): they count as errors of the model",
            file=sys.stderr,
            flush=True,
        )


def tell_of_control_tokens(
    tokens: np.ndarray, tokenizer: PreTrainedTokenizerBase, names: Sequence[str], text: str
) -> None:
    """Show on the screen which control tokens are among the tokens of a text, and how often."""
    tell_of_counts(count_control_tokens([tokens], tokenizer, names), text)


def count_control_tokens(
    parts: Iterable[np.ndarray], tokenizer: PreTrainedTokenizerBase, names: Sequence[str]
) -> dict[str, int]:
    """Count control tokens by their names among the tokens of a text, which may come in parts."""
    vocabulary = tokenizer.get_vocab()
    ids = [vocabulary[name] for name in names]
    counts = np.zeros(max(ids, default=0) + 1, dtype=np.int64)
    for tokens in parts if ids else ():
        for start in range(0, len(tokens), AT_ONCE):
            part = tokens[start : start + AT_ONCE]
            counts += np.bincount(part[part < len(counts)], minlength=len(counts))
    return {name: int(counts[idx]) for name, idx in zip(names, ids, strict=True)}


def tell_of_counts(counts: Mapping[str, int], text: str) -> None:
    """Show on the screen which control tokens stand in a text by their counts."""
    found = sorted(((count, name) for name, count in counts.items()), reverse=True)
    shown = [f"{name} {count:,}" for count, name in found[:SHOWN] if count]
    if shown:
        more = sum(count > 0 for count, _ in found[SHOWN:])
        listed = ", ".join(shown) + (f" and {more} others" if more else "")
        _say_once(f"{text}: control tokens {listed} (corpus.control_tokens=[] reads them as text)")


@cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
