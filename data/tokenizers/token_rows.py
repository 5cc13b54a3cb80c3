"""Rows of a new vocabulary from those of an old one: of its table, its head, and the head's bias.

    the same token in both           its row                                (FOCUS: Dobler and de Melo, 2023)
    the same role ([CLS], <s>)       its row
    another one                      the mean of the pieces that the old tokenizer cuts it into
                                                            (Gee et al., 2022, "Fast Vocabulary Transfer")
    nothing known of it              the mean of all old tokens              (Hewitt, 2021)

Tokens are the same if they stand for the same text: "Ġthe" of byte-level pair encoding, "▁the" of
SentencePiece and "the" of WordPiece are " the", and "##ing" is "ing". FOCUS and WECHSEL (Minixhofer et al.,
2022) weigh old rows by similarities of outside word vectors; the pieces need none.

Legend: V old ids, W new ids, P pieces of all new ids.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ...modeling.saved.inheritance import TokenRows
from .new_terms import backend_of, unknown_id

ROLES = ("pad", "unk", "cls", "bos", "sep", "eos", "mask")
"""What special tokens are for; one of a new tokenizer begins as the old one's of the same role."""


def rows_between(
    old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, num_rows: int, num_new_rows: int
) -> TokenRows | None:
    """Find the rows with which the ids of a new tokenizer begin; nothing if it is the old one.

    Args:
        num_rows: Rows of the model's table, perhaps more than the tokenizer's ids.
    """
    ids, numbers = old.get_vocab(), new.get_vocab()
    if ids == numbers and num_rows == num_new_rows:
        return None
    ids = {token: number for token, number in ids.items() if number < num_rows}
    of_roles = roles_between(old, new)
    spelling = Spelling(backend_of(old), backend_of(new), ids)
    pieces: list[Sequence[int]] = [()] * num_new_rows
    for token, number in numbers.items():
        if number < num_new_rows:
            pieces[number] = of_roles[number] if number in of_roles else spelling.pieces_of(token, number)
    if keeps_ids(old, new):  # rows of no token stay what they are
        for number in set(range(min(num_rows, num_new_rows))) - set(numbers.values()):
            pieces[number] = (number,)
    return TokenRows(pieces, min(max(ids.values()) + 1, num_rows))


def new_ids(old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, ids: Iterable[int]) -> dict[int, int]:
    """Find the ids of the same tokens in a new tokenizer, by text or by role, where it has one for each."""
    tokens, of_roles = {number: token for token, number in old.get_vocab().items()}, roles_between(new, old)
    spelling = Spelling(backend_of(new), backend_of(old), new.get_vocab())
    found = {
        number: of_roles.get(number) or spelling.pieces_of(tokens[number], number)
        for number in ids
        if number in tokens
    }
    return {number: pieces[0] for number, pieces in found.items() if len(pieces) == 1}


def keeps_ids(old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase) -> bool:
    """Return whether every token of an old tokenizer has the same id in a new one."""
    numbers = new.get_vocab()
    return all(numbers.get(token) == number for token, number in old.get_vocab().items())


def roles_between(old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase) -> dict[int, tuple[int]]:
    """Return the old ids of the special tokens of a new tokenizer that have other names in the old one."""
    found: dict[int, tuple[int]] = {}
    known = old.get_vocab()
    substitutes = {"cls": "bos", "bos": "cls", "sep": "eos", "eos": "sep"}
    for role in ROLES:
        number = getattr(new, f"{role}_token_id")
        former = getattr(old, f"{role}_token_id")
        if former is None and role in substitutes:
            former = getattr(old, f"{substitutes[role]}_token_id")
        if number is not None and former is not None and getattr(new, f"{role}_token") not in known:
            found.setdefault(number, (former,))
    return found


class Spelling:
    """Finds the tokens of a new tokenizer in an old one, however both spell spaces and parts of words."""

    def __init__(self, old: Tokenizer, new: Tokenizer, ids: dict[str, int]):
        self.old, self.ids = old, ids
        self.old_kind, self.new_kind = kind_of(old), kind_of(new)
        added = new.get_added_tokens_decoder()
        self.added = {number: token.content for number, token in added.items()}
        self.special = {number for number, token in added.items() if token.special}
        self.unknown, self.known = unknown_id(old), set(ids.values())

    def pieces_of(self, token: str, number: int) -> tuple[int, ...]:
        """Return the old ids whose text is that of a new token, in order; none if it has none."""
        if token in self.ids and (self.old_kind == self.new_kind or number in self.added):
            return (self.ids[token],)
        if number in self.special:
            return ()
        if number in self.added:
            found = self.old.encode(self.added[number], add_special_tokens=False).ids
        else:
            spelled = self._in_old(token)
            if spelled in self.ids:
                return (self.ids[spelled],)
            found = [piece.id for piece in self.old.model.tokenize(spelled)] if spelled else []
        return tuple(each for each in found if each != self.unknown and each in self.known)

    def _in_old(self, token: str) -> str:
        text = text_of(token, self.new_kind)
        read = self._old_case(text)
        if self.old_kind == self.new_kind and read == text:
            return token
        return spelled(read, self.old_kind)

    def _old_case(self, text: str) -> str:
        if self.old.normalizer is None or not text.strip():
            return text
        core = text.strip()
        return text.replace(core, cast(Any, self.old.normalizer).normalize_str(core).strip("▁ "))


def kind_of(backend: Tokenizer) -> str:
    """Return how a tokenizer spells spaces and parts of words: `bytes`, `metaspace`, `parts` or `plain`."""
    facts = json.loads(backend.to_str())
    written = json.dumps([facts["normalizer"], facts["pre_tokenizer"], facts["decoder"]], ensure_ascii=False)
    if facts["model"]["type"] == "WordPiece":
        return "parts"
    if '"ByteLevel"' in written:
        return "bytes"
    return "metaspace" if "▁" in written else "plain"


BYTES = {character: byte for byte, character in bytes_to_unicode().items()}
"""The byte that each character of a byte-level token stands for (Radford et al., 2019)."""

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def text_of(token: str, kind: str) -> str:
    """Write a token as it stands in a text, with a space before a word."""
    if kind == "parts":
        return token.removeprefix("##") if token.startswith("##") else f" {token}"
    if kind == "metaspace":
        return token.replace("▁", " ")
    if kind == "bytes":
        try:
            return bytes(BYTES[character] for character in token).decode("utf-8")
        except (KeyError, UnicodeDecodeError):  # a part of a character
            return ""
    return token


def spelled(text: str, kind: str) -> str:
    """Write a text as a token of some kind."""
    if kind == "parts":
        return text.strip() if text.startswith(" ") else f"##{text}" if text else ""
    if kind == "metaspace":
        return text.replace(" ", "▁")
    if kind == "bytes":
        return "".join(part for part, _ in cast(Any, BYTE_LEVEL).pre_tokenize_str(text)) if text else ""
    return text
