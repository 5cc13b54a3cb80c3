"""Words of a text, beside the word boundaries of another implementation."""

import numpy as np
import pytest
import regex

from tercet.data.tokenizers.words import word_numbers, word_starts

from .tokenizer_kinds import TEXTS

MORE = [
    "The ferry left at 3.50, it can't wait. e.g. U.S.A. snake_case_x a:b 1,234.5 x1y2 co-op 12:30",
    "Größe e\u0301te\u0301 Ελληνικά русский язык العربية 한국어 단어 मराठी पुस्तक",
    "ツアー カタカナ __init__ _x x_ 'quoted' \"x\" a.1 1.a a. .a",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 ok \U0001f44d\U0001f3fd!",
]


def begins(text):
    numbers, _ = word_numbers(text)
    return [place for place in range(len(text)) if place == 0 or numbers[place] != numbers[place - 1]]


@pytest.mark.parametrize("text", [*(text for name, text in TEXTS.items() if name != "thai"), *MORE])
def test_words_are_those_of_unicode(text):
    theirs = {match.start() for match in regex.finditer(r"(?w)\b", text)} - {len(text)}
    seen = lambda places: [place for place in places if not text[place].isspace()]  # noqa: E731
    assert seen(begins(text)) == seen(sorted(theirs))


def test_scripts_without_spaces_have_one_character_a_word():
    assert begins("海风很大") == [0, 1, 2, 3]
    thai = "แมวนอนอยู่บน"
    assert begins(thai) == [place for place in range(len(thai)) if regex.match(r"\P{M}", thai[place])]


def test_numbers_ascend_and_spaces_lead_to_what_follows():
    text = " It is\n\nso. "
    numbers, following = word_numbers(text)
    assert (np.diff(numbers) >= 0).all()
    assert "".join(text[place] for place in following if place < len(text)) == "IItiis\n\nso."
    assert following[-2:].tolist() == [len(text)] * 2


@pytest.mark.parametrize(
    ("text", "starts", "expected"),
    [
        ("it can't", [0, 2, 6, 7], [True, True, False, False]),
        ("海风很大", [0, 2, 3], [True, True, True]),
        ("海", [0, 0, 0], [True, False, False]),  # the bytes of a character
        ("a\n  b", [0, 1, 2, 4], [True, True, True, False]),
        ("a  b", [0, 1, 3], [True, True, False]),
        ("", [], []),
        (" ", [1], [True]),
    ],
)
def test_tokens_belong_to_the_word_of_their_first_character(text, starts, expected):
    assert word_starts(text, np.array(starts, dtype=np.int64)).tolist() == expected
