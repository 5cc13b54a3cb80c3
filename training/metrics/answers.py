"""Scores of answers that are spans of text, as SQuAD counts them (Rajpurkar et al., 2016, section 6.1; 2018).

An answer is compared with every right one, and scored by the nearest. Case, punctuation, articles and spaces
do not count. Where there is no answer, what is empty without them is right. Four deviations: scores are 0 to
1, as all others here; what is written without spaces is compared by characters, not as one long word; wide
marks are punctuation, too, as in CMRC 2018 (Cui et al., 2019); and a right answer that is nothing but
articles and punctuation, such as "A" or "-", is compared as it is written. SQuAD's scripts equal it to any
other such text ("the", "?"; 1.1) or take it for no answer (2.0), which does for spans of an encyclopedia,
where it is rare, and is wrong for letters and signs.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
WIDE = map(chr, (*range(0x3000, 0x3040), *range(0xFF00, 0xFFF0)))
MARKS = string.punctuation + "".join(letter for letter in WIDE if unicodedata.category(letter)[0] == "P")
WITHOUT_PUNCTUATION = str.maketrans("", "", MARKS)


def answer_scores(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Score an answer for each question.

    Args:
        found: One text for each; the empty one says that there is no answer.
        references: All right answers to each, none where there is no answer.

    Returns:
        `exact_match`, the share of answers that equal a right one, and `f1`, the mean overlap in words. If
        some questions have an answer and some have none, also both of either:
        `has_answer_exact_match`, `has_answer_f1`, `no_answer_exact_match`, `no_answer_f1`.
    """
    pairs = list(zip(found, references, strict=True))
    scores = {
        "exact_match": np.array([exact_match(answer, right_answers) for answer, right_answers in pairs]),
        "f1": np.array([word_f1(answer, right_answers) for answer, right_answers in pairs]),
    }
    has_answer = np.array([len(right_answers) > 0 for right_answers in references])
    parts = {"": np.ones_like(has_answer)}
    if 0 < has_answer.sum() < len(has_answer):
        parts |= {"has_answer_": has_answer, "no_answer_": ~has_answer}
    return {
        part + name: float(values[rows].mean())
        for part, rows in parts.items()
        for name, values in scores.items()
    }


def exact_match(found: str, right_answers: Sequence[str]) -> float:
    """Return 1 if an answer equals a right one once both are normalized, else 0.

    >>> exact_match("The cat.", ["cat"]), exact_match("the", ["A"]), exact_match("A", ["A"])
    (1.0, 0.0, 1.0)
    """
    return max(float(are_equal(found, answer)) for answer in right_texts(right_answers))


def word_f1(found: str, right_answers: Sequence[str]) -> float:
    """Return the F1 of an answer's words, order aside, with those of the nearest right answer."""
    return max(
        float(are_equal(found, answer))
        if is_as_written(answer)
        else overlap(words_of(found), words_of(answer))
        for answer in right_texts(right_answers)
    )


def right_texts(right_answers: Sequence[str]) -> list[str]:
    """Return all right answers that are not empty, else the empty text, which says that there is none."""
    return [answer for answer in right_answers if answer.strip()] or [""]


def are_equal(found: str, right: str) -> bool:
    if is_as_written(right):
        return found.strip() == right.strip()
    return normalize(found) == normalize(right)


def is_as_written(right: str) -> bool:
    """Return whether a right answer has text, but nothing that counts."""
    return bool(right.strip()) and not normalize(right)


def words_of(answer: str) -> list[str]:
    return space_out(normalize(answer)).split()


def normalize(answer: str) -> str:
    """Take away what does not count.

    >>> normalize(" The  U.S. Army,")
    'us army'
    """
    composed = unicodedata.normalize("NFC", answer.lower())
    return " ".join(ARTICLES.sub(" ", composed.translate(WITHOUT_PUNCTUATION)).split())


def overlap(found: Sequence[str], right: Sequence[str]) -> float:
    """Return the F1 of two bags of words; two empty ones agree."""
    if not found and not right:
        return 1.0
    return 2 * (Counter(found) & Counter(right)).total() / (len(found) + len(right))


UNSPACED_CHARACTER = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "]"
)
"""One character of Chinese, Japanese, Thai, Lao, Khmer or Burmese; Korean has spaces."""


def space_out(text: str) -> str:
    """Put spaces around every character of an unspaced script, so that splitting gives it as a word.

    >>> space_out("BERT模型 is").split()
    ['BERT', '模', '型', 'is']
    """
    return UNSPACED_CHARACTER.sub(r" \g<0> ", text)
