"""Where words begin, by the text alone: the same words whatever the tokenizer.

    The ferry left at 3.50, it can't wait.        The|ferry|left|at|3.50|,|it|can't|wait|.
    海风很大 ツアー                                  海|风|很|大|ツアー

These are the default word boundaries of Unicode (UAX #29, rules WB3c to WB13b), with one character a word
where a script is written without spaces between words and takes a dictionary to cut: ideographs, hiragana,
and the letters of Thai, Lao, Khmer and Burmese. Left out are the rules for Hebrew quotes and pairs of flags.

A tokenizer's own `word_ids` would not do. What it calls a word is what it cuts before its model, which is a
sentence or a whole text for SentencePiece without a pre-tokenizer, and a whole clause of Chinese for the
byte-level ones.

Legend: C characters, N tokens.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np

OTHER, SPACE, LINE, LETTER, DIGIT, CONNECTOR, KATAKANA, SINGLE, SYMBOL, EXTEND, JOINER = range(11)
IN_WORD, IN_NUMBER, IN_BOTH = range(11, 14)
"""Classes of characters: see `classes`."""

CATEGORIES = {
    LETTER: ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl"), DIGIT: ("Nd",), CONNECTOR: ("Pc",), SYMBOL: ("So",),
    EXTEND: ("Mn", "Me", "Mc", "Cf"),
}  # fmt: skip
"""What the classes are by Unicode's general categories; all others are `OTHER`."""
RANGES = {
    SINGLE: (
        (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x2FDF), (0x3005, 0x3007),
        (0x3041, 0x3096), (0x309D, 0x309F), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF),
        (0xAA60, 0xAA7F), (0xF900, 0xFAFF), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
    ),
    KATAKANA: (
        (0x3031, 0x3035), (0x309B, 0x309C), (0x30A0, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF),
        (0xFF66, 0xFF9D),
    ),
}  # fmt: skip
"""Letters of scripts without spaces between words, and of katakana, whose words have several letters."""
MARKS = {
    IN_WORD: (0x3A, 0xB7, 0x387, 0x55F, 0x5F4, 0x2027, 0xFE13, 0xFE55, 0xFF1A),
    IN_NUMBER: (
        0x2C, 0x3B, 0x37E, 0x589, 0x60C, 0x60D, 0x66C, 0x7F8, 0x2044, 0xFE10, 0xFE14, 0xFE50, 0xFE54, 0xFF0C,
        0xFF1B,
    ),
    IN_BOTH: (0x2E, 0x27, 0x2018, 0x2019, 0x2024, 0xFE52, 0xFF07, 0xFF0E),
}  # fmt: skip
"""Marks (colon, comma, apostrophe, ...) that belong to a word between two letters, to a number between two
digits, or to both."""


@cache
def classes() -> np.ndarray:
    """Return the class of every code point (0x110000,), uint8."""
    of = {category: kind for kind, categories in CATEGORIES.items() for category in categories}
    codes = range(0x110000)
    table = np.fromiter((of.get(unicodedata.category(chr(code)), OTHER) for code in codes), np.uint8)
    for kind, ranges in RANGES.items():
        for first, last in ranges:
            part = table[first : last + 1]
            part[(part == LETTER) | (part == OTHER)] = kind
    for kind, marks in MARKS.items():
        table[list(marks)] = kind
    for code in (0x200B, *(code for code in range(0x3001) if chr(code).isspace())):
        table[code] = LINE if chr(code).splitlines() == [""] else SPACE
    table[0x1F3FB:0x1F400] = EXTEND  # tones of skin
    table[0x200D] = JOINER
    return table


def word_numbers(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Number the words of a text.

    Returns:
        The number of each character's word (C + 1,), ascending, where spaces and the end of the text have
        some number; and for each place the first character from there on that is no space (C + 1,), C if
        there is none.
    """
    kinds = classes()[np.frombuffer(text.encode("utf-32-le"), dtype="<u4")]
    begins = np.ones(len(kinds), dtype=bool)
    begins[1:][(kinds[1:] == EXTEND) | (kinds[1:] == JOINER)] = False
    places = np.flatnonzero(begins)  # of characters that are no marks on others
    begins[places[1:][_joins(kinds, places)]] = False
    is_text = np.append(kinds != SPACE, True)
    following = np.where(is_text, np.arange(len(is_text), dtype=np.int32), np.int32(len(kinds)))
    return np.append(begins, True).cumsum(dtype=np.int32), np.minimum.accumulate(following[::-1])[::-1]


def _joins(kinds: np.ndarray, places: np.ndarray) -> np.ndarray:
    # Whether all characters at `places` but the first go on with the word before them.
    kind = kinds[places]
    before, after = kind[:-1], kind[1:]
    is_letter, is_digit = kind == LETTER, kind == DIGIT
    is_word = is_letter | is_digit
    extends = is_word | (kind == CONNECTOR) | (kind == KATAKANA)
    joins = is_word[:-1] & is_word[1:]
    joins |= (before == after) & ((after == KATAKANA) | (after == LINE))
    joins |= extends[:-1] & (after == CONNECTOR) | (before == CONNECTOR) & extends[1:]
    joins |= (after == SYMBOL) & (kinds[places[1:] - 1] == JOINER)
    for is_side, marks in ((is_letter, (IN_WORD, IN_BOTH)), (is_digit, (IN_NUMBER, IN_BOTH))):
        is_mark = np.isin(kind[1:-1], marks) & is_side[:-2] & is_side[2:]
        joins[:-1] |= is_mark
        joins[1:] |= is_mark
    return joins


def word_starts(text: str, starts: np.ndarray) -> np.ndarray:
    """Return which tokens begin a word (N,), given the character of `text` with which each begins (N,).

    A token belongs to the word of its first character that is no space; spaces belong to what follows them,
    and line ends are words.
    """
    numbers, following = word_numbers(text)
    word = numbers[following[starts]]
    return np.append(True, word[1:] != word[:-1])[: len(word)]


def token_spans(offsets: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first character of each token, and the one behind its last (N,).

    Byte-level tokenizers may leave spaces out of the offsets that they tell (RoBERTa's and GPT-NeoX's do), so
    that tokens of nothing else are empty. These hold what stands between the token before them and their end.
    """
    starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    before = np.append(0, ends)[: len(ends)]
    return np.where(starts == ends, np.minimum(before, ends), starts), ends
