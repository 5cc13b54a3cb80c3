"""Scores of answers that are spans of text, as SQuAD counts them (Rajpurkar et al., 2016, section 6.1; 2018).

An answer is compared with every right one, and scored by the nearest. Case, punctuation, articles and spaces
do not count. Where there is no answer, the empty text is right. Two deviations: scores are 0 to 1, as all
others here, and what is written without spaces is compared by characters, not as one long word.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from .unspaced import space_out

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


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
    """Give 1 if an answer equals a right one once both are normalized, else 0."""
    return float(normalize(found) in right_texts(right_answers))


def word_f1(found: str, right_answers: Sequence[str]) -> float:
    """Give the F1 of an answer's words, order aside, with those of the nearest right answer."""
    return max(overlap(words_of(found), words_of(answer)) for answer in right_texts(right_answers))


def right_texts(right_answers: Sequence[str]) -> list[str]:
    """Normalize what is right: all answers that are more than articles and punctuation, else no answer."""
    return [text for text in map(normalize, right_answers) if text] or [""]


def words_of(answer: str) -> list[str]:
    """Split an answer."""
    return space_out(normalize(answer)).split()


def normalize(answer: str) -> str:
    """Take away what does not count.

    >>> normalize(" The  U.S. Army,")
    'us army'
    """
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(WITHOUT_PUNCTUATION)).split())


def overlap(found: Sequence[str], right: Sequence[str]) -> float:
    """Give the F1 of two bags of words; two empty ones agree."""
    if not found and not right:
        return 1.0
    return 2 * (Counter(found) & Counter(right)).total() / (len(found) + len(right))
