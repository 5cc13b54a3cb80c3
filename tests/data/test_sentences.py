"""Where the rule sees sentences end."""

import pytest

from tercet.data.tokenizers.sentences import split_sentences

TEXTS = [
    "Dr. A. Smith paid $3.50. He left at 5 p.m. for the U.S. embassy! Why?",
    "  lead.\n\nA line\r\nand another. \n last ",
    "你好。我很好。“是。”他说。",
    '"Is it?" he asked. (It was.) Then... Well.',
    "",
    "   ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_joined_sentences_are_the_text(text):
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentences)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It rains. We stay! Do we? Yes.", ["It rains.", " We stay!", " Do we?", " Yes."]),
        ('"Go." She went.', ['"Go."', " She went."]),
        ("He paid 3.50. She did not.", ["He paid 3.50.", " She did not."]),
        ("one line\nanother line", ["one line", "\nanother line"]),
        ("你好。我很好。", ["你好。", "我很好。"]),
    ],
)
def test_marks_before_a_beginning_end_sentences(text, sentences):
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    "text",
    [
        "Mr. Miller and J. S. Bach met.",
        "See e.g. Table 3.",
        "It is vs. Them.",
        "1. The first item",
        "He works for the U.S. Army.",
        "It costs 3.5 dollars, i.e. much.",
        "a sentence. without a capital",
    ],
)
def test_abbreviations_initials_and_numbers_end_nothing(text):
    assert split_sentences(text) == [text]


def test_time_grows_with_the_length_of_white_space_not_with_its_square():
    text = "One." + " " * 10**6 + "two" + "\n" * 10**6 + "Three."
    assert [len(sentence) for sentence in split_sentences(text)] == [4 + 10**6 + 3, 10**6 + 6]
