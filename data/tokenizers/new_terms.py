"""Terms of one's own for an existing tokenizer: each becomes one token, and other text keeps its ids.

    "chemokine" of WordPiece     che ##mo ##kin ##e  ->  chemokine         chemokines   chemokine ##s
                of byte_bpe      Ġche mok ine        ->  Ġchemokine        chemokines   as before
    "lung cancer"                lung cancer         ->  lung cancer       an added token

`tokenizer.add_tokens` would look for a term before the tokenizer cuts words. What is left of the text is then
cut by itself, and with it go the spaces before and behind a term ("Ġ", "▁", "##") and sometimes their number.
So a word goes into the vocabulary of the model instead, as the tokenizer itself spells it: lower-cased if it
does that, with and without the space that byte-level words begin with. WordPiece takes the longest known
beginning of a word, which may be a term. Pair encoding needs merges for what it makes of pieces, which would
change other words; it takes whole known words without any (`ignore_merges`, as Llama 3's does), if that
changes no other token. Where neither holds, and for terms of several words, added tokens remain, of whole
words alone.

Terms are learned by what they save: those words of a text with the largest count times (pieces - 1).
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...configs.messages import LONGEST, shortened
from ...configs.named_files import named_path
from ...modeling.saved.model_folder import keep_option

BEFORE = "a "
"""A word that stands before a term, whatever it is."""

MOST_CHARACTERS = 2**27
"""Characters of a text from which terms are learned; more change little of which words are frequent."""

LINES_CHECKED = 1000
"""Lines of the training text that are read with and without new terms, to compare."""

LEAST_COUNT = 2
"""Times that a learned term occurs at least."""


@dataclass(frozen=True)
class AddedTerms:
    """What became of terms."""

    tokens: list[str]
    """The new ones, as the tokenizer spells them, in the order of their ids."""
    phrases: list[str]
    """Those of them that are found as they stand in the text, because they are no single words."""
    known: list[str]
    """Terms that were one token already."""

    def told(self, name: str) -> str:
        """Describe it in a line."""
        known = (
            f"; {len(self.known):,} were one token already ({shortened(self.known, 4)})" if self.known else ""
        )
        phrases = (
            f", {len(self.phrases):,} of them found as they stand in the text ({shortened(self.phrases, 4)})"
            if self.phrases
            else ""
        )
        return f"{name}: {len(self.tokens):,} tokens are new ({shortened(self.tokens, 4)}){phrases}{known}"


def read_terms(source: str | Sequence[str]) -> list[str]:
    """List the terms of a file, one a line, or of a list, without spaces around them and each once."""
    if isinstance(source, str):
        file = named_path(source, "tokenizer.add")
        if not file.is_file():
            raise FileNotFoundError(
                f"tokenizer.add is {source!r}, which is not a file: name a text with a term on each line, or "
                f"write a list, tokenizer.add=[{source}]"
            )
        lines = _lines(file)
    else:
        lines = list(source)
    terms = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not terms:
        raise ValueError(f"tokenizer.add is {source!r}, which has no terms: leave it out")
    return terms


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"tokenizer.add {file} is not a text in UTF-8 ({error.reason}): save it as one"
        ) from None


def add_terms(tokenizer: PreTrainedTokenizerBase, terms: Iterable[str]) -> AddedTerms:
    """Give a tokenizer a token for each term that is none yet; the ids of all others stay.

    Args:
        tokenizer: A fast one; it is changed, and becomes one of the general class: others are built anew from
            parts of their vocabulary when they are loaded.
        terms: Words, or several words with spaces or hyphens.
    """
    before = backend_of(tokenizer)
    spelled, phrases, known = dict[str, None](), list[str](), list[str]()
    takes_words, unknown = takes_whole_words(before), unknown_id(before)
    added = {token.content for token in before.get_added_tokens_decoder().values()}
    for term in distinct_terms(before, terms):
        forms = spellings(before, term) if takes_words and term not in added else []
        ids = before.encode(term, add_special_tokens=False).ids
        new = [form for form in forms if before.token_to_id(form) is None]
        if new:  # perhaps only behind a space, or only without one
            spelled |= dict.fromkeys(new)
        elif len(ids) == 1 and ids != [unknown]:
            known.append(term)
        else:
            phrases.append(term)
    backend = extended(before, list(spelled), phrases)
    require_faithful(before, backend, [*phrases, *islice((t for t in terms if t not in known), 100)])
    adopt(tokenizer, backend)
    return AddedTerms([*spelled, *phrases], phrases, known)


def distinct_terms(backend: Tokenizer, terms: Iterable[str]) -> list[str]:
    """Leave out terms that a tokenizer reads as an earlier one, such as another case of it."""
    found = dict[str, str]()
    for term in terms:
        found.setdefault(_normal(backend, term) if is_plain(backend) else term, term)
    return list(found.values())


def is_plain(backend: Tokenizer) -> bool:
    """Return whether a normalizer puts no sign for a space before a text."""
    return _normal(backend, "a") == "a"


def learn_terms(tokenizer: PreTrainedTokenizerBase, number: int, documents: Iterable[str]) -> list[str]:
    """Find the words that would save the most tokens of a text, if each were one, as the tokenizer spells it.

    Args:
        tokenizer: A fast one, which cuts text into words.
        documents: The text; at most `MOST_CHARACTERS` of it are read.
    """
    backend = backend_of(tokenizer)
    if len(_words(backend, "a b")) != 2:
        raise ValueError(
            f"tokenizer.add_learned is {number}, but this tokenizer does not cut text into words before it "
            "cuts them into pieces: list the terms in tokenizer.add"
        )
    counts, read = Counter[str](), 0
    for text in documents:
        counts.update(_words(backend, text))
        read += len(text)
        if read >= MOST_CHARACTERS:
            break
    saved, unknown = Counter[str](), unknown_id(backend)
    for word, count in counts.items():
        if count >= LEAST_COUNT and _is_word(backend, word) and backend.token_to_id(word) is None:
            pieces = backend.model.tokenize(word)
            if unknown not in {piece.id for piece in pieces}:
                saved[word] = count * (len(pieces) - 1)
    ranked = sorted((word for word in saved if saved[word]), key=lambda word: (-saved[word], word))
    return ranked[:number]


def add_spelled(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> AddedTerms:
    """Give a tokenizer the words that `learn_terms` has found."""
    before = backend_of(tokenizer)
    if not takes_whole_words(before):
        return add_terms(tokenizer, [surface(before, word).strip() for word in words])
    backend = extended(before, words, [])
    require_faithful(before, backend, [surface(before, word).strip() for word in words[:100]])
    adopt(tokenizer, backend)
    return AddedTerms(list(words), [], [])


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Copy the tokenizer of `tokenizers` in a fast one; the copy neither pads nor cuts texts."""
    own = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(own, Tokenizer):
        raise ValueError(
            f"{type(tokenizer).__name__} is not a fast tokenizer: choose one with a tokenizer.json"
        )
    backend = Tokenizer.from_str(own.to_str())
    backend.no_padding()
    backend.no_truncation()
    return backend


def _normal(backend: Tokenizer, text: str) -> str:
    return text if backend.normalizer is None else cast(Any, backend.normalizer).normalize_str(text)


def _words(backend: Tokenizer, text: str) -> list[str]:
    # What the model of a tokenizer is given, one after another.
    if backend.pre_tokenizer is None:
        return [_normal(backend, text)]
    found = cast(Any, backend.pre_tokenizer).pre_tokenize_str(_normal(backend, text))
    return [word for word, _ in found]


def surface(backend: Tokenizer, word: str) -> str:
    """Write a word as it stands in a text, with the space before it where the spelling tells of one."""
    if word.startswith("▁"):
        return word.replace("▁", " ")
    return word if backend.decoder is None else cast(Any, backend.decoder).decode([word])


def _is_word(backend: Tokenizer, word: str) -> bool:
    # Letters, and no number, sign or line end.
    text = surface(backend, word).strip()
    return len(text) > 1 and all(character.isalpha() or character in "'\u2019" for character in text)


def unknown_id(backend: Tokenizer) -> int | None:
    """Return the id of what a tokenizer does not know, if it has one."""
    model = json.loads(backend.to_str())["model"]
    if model["type"] == "Unigram":
        return model["unk_id"]
    name = model.get("unk_token")
    return None if name is None else backend.token_to_id(name)


def spellings(backend: Tokenizer, term: str) -> list[str]:
    """Spell a term as the model of a tokenizer is given it, alone and behind a space; not if in parts."""
    alone, behind = _words(backend, term), _words(backend, BEFORE + term)
    if len(alone) != 1 or len(behind) != len(_words(backend, BEFORE.strip())) + 1:
        return []
    longest = getattr(backend.model, "max_input_chars_per_word", None)
    forms = list(dict.fromkeys((behind[-1], alone[0])))
    return [] if longest is not None and any(len(form) > longest for form in forms) else forms


def takes_whole_words(backend: Tokenizer) -> bool:
    """Return whether a word in the model's vocabulary is taken as it is, and no other text is cut anew."""
    facts = json.loads(backend.to_str())
    model, vocabulary = facts["model"], facts["model"]["vocab"]
    if not isinstance(vocabulary, dict) or len(_words(backend, "a b")) != 2:
        return False
    added = [token["content"] for token in facts["added_tokens"] if token["content"] not in vocabulary]
    if any(_words(backend, name) == [name] for name in added):  # it would be found where a text speaks of it
        return False
    if model["type"] in ("WordPiece", "WordLevel") or model.get("ignore_merges"):
        return True
    names = {token["content"] for token in facts["added_tokens"]}
    return model["type"] == "BPE" and all(
        [piece.value for piece in backend.model.tokenize(word)] == [word] or _words(backend, word) != [word]
        for word in vocabulary
        if word not in names
    )


def extended(before: Tokenizer, words: Sequence[str], phrases: Sequence[str]) -> Tokenizer:
    """Copy a tokenizer with words in its vocabulary and phrases among its added tokens, in this order."""
    facts = json.loads(before.to_str())
    model = facts["model"]
    following = max(before.get_vocab().values()) + 1
    if isinstance(model["vocab"], dict):
        # When it is read, an added token that the model does not know is numbered by the vocabulary's size.
        model["vocab"] |= {token["content"]: token["id"] for token in facts["added_tokens"]}
        model["vocab"] |= {name: following + place for place, name in enumerate([*words, *phrases])}
        if model["type"] == "BPE" and words:
            model["ignore_merges"] = True
    if phrases:
        _join_behind(facts["pre_tokenizer"])
    backend = Tokenizer.from_str(json.dumps(facts))
    normalized = is_plain(before)
    backend.add_tokens([AddedToken(name, single_word=True, normalized=normalized) for name in phrases])
    return backend


def _join_behind(pre_tokenizer: dict[str, Any] | None) -> None:
    # What follows an added token begins without a space that is not there. Not where words are cut at spaces
    # first (T5, XLM-R): there each word has its "▁" from this rule alone.
    parts = [part for part in (pre_tokenizer, *((pre_tokenizer or {}).get("pretokenizers") or ())) if part]
    cuts_before = any(part["type"] == "WhitespaceSplit" for part in parts)
    for part in parts:
        if part["type"] == "Metaspace" and part["prepend_scheme"] == "always" and not cuts_before:
            part["prepend_scheme"] = "first"


def require_faithful(before: Tokenizer, after: Tokenizer, terms: Iterable[str]) -> None:
    """Check that a tokenizer with new terms writes them back, and what is around them as around a word."""
    frame, unknown = "{0}{1}, {1} b", unknown_id(before)
    plain = _written(before, frame.format(BEFORE, "a"))
    is_known = unknown not in before.encode(frame.format(BEFORE, "a"), add_special_tokens=False).ids
    for term in terms:
        text = frame.format(BEFORE, term)
        own, present = _written(after, term).strip(), _written(after, text)
        meant = (_normal(before, term), _normal(before, _written(before, term)))
        is_written = _joined(_normal(before, own)) in map(_joined, meant)
        if not is_written or (is_known and present.replace(own, "a") != plain):
            raise ValueError(
                f"tokenizer.add: {term!r} cannot become a token of this tokenizer, which would write "
                f"{text!r} back as {present!r}: leave the term out"
            )


def _written(backend: Tokenizer, text: str) -> str:
    return backend.decode(backend.encode(text, add_special_tokens=False).ids)


def _joined(text: str) -> str:
    return "".join(text.split())


def require_same_reading(
    tokenizer: PreTrainedTokenizerBase, extended: PreTrainedTokenizerBase, documents: Iterable[str]
) -> None:
    """Check on the first lines of documents that those without a new term have the ids that they had."""
    before, after = backend_of(tokenizer), backend_of(extended)
    known = set(before.get_vocab().values())
    lines = islice((line for text in documents for line in text.splitlines() if line.strip()), LINES_CHECKED)
    for line in lines:
        old, new = (each.encode(line, add_special_tokens=False).ids for each in (before, after))
        if old != new and known.issuperset(new):
            raise ValueError(
                f"tokenizer.add: the extended tokenizer would read {line[:LONGEST]!r}, which "
                f"has none of them, as {after.decode(new)[:LONGEST]!r}: leave tokenizer.add out"
            )


def adopt(tokenizer: PreTrainedTokenizerBase, backend: Tokenizer) -> None:
    """Put another tokenizer of `tokenizers` into one of transformers."""
    fast = cast(Any, tokenizer)
    padding_side, names = tokenizer.padding_side, tokenizer.model_input_names
    fast._tokenizer = backend
    fast.__class__ = PreTrainedTokenizerFast
    keep_option(tokenizer, "model_input_names", names)
    keep_option(tokenizer, "padding_side", padding_side)
