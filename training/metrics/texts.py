"""Scores of written texts.

BLEU (Papineni et al., 2002) and chrF (Popović, 2015) are sacrebleu's, ROUGE (Lin, 2004) is rouge_score's.

Legend: E texts.
"""

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest
from typing import Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from .answers import UNSPACED_CHARACTER, space_out

Tokenization = Literal["13a", "intl", "zh", "char", "none"]
"""Those of sacrebleu's tokenizers that need no download: `13a` cuts as the WMT campaigns did, but not what is
written without spaces, which needs `zh` or `char`."""

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")
"""Overlap of words, of pairs of words, and of the longest common subsequence."""


def tokenization_for(texts: Sequence[str]) -> Tokenization:
    """Choose how BLEU is to cut texts: into characters where most of them are written without spaces.

    >>> tokenization_for(["一只狗在草地上跑。"]), tokenization_for(["The word 狗 means dog."])
    ('zh', '13a')
    """
    joined = "".join(texts)
    num_unspaced = len(UNSPACED_CHARACTER.findall(joined))
    return "zh" if 2 * num_unspaced > sum(map(str.isalpha, joined)) else "13a"


def text_scores(
    found: Sequence[str],
    references: Sequence[str],
    tokenize: Tokenization = "13a",
    *,
    lowercase: bool = False,
) -> dict[str, float]:
    """Score texts by one reference each.

    Args:
        tokenize: How BLEU cuts them into words.
        lowercase: Whether case is ignored, as ROUGE always does.

    Returns:
        `bleu` and `chrf` over all texts, 0 to 100, as they are published; `rouge1`, `rouge2`, `rougeL`, mean
        F1 of the texts, 0 to 1; `exact_match`, the share of texts that equal their reference.
    """
    return {
        "bleu": bleu(found, references, tokenize, lowercase=lowercase),
        "chrf": CHRF(lowercase=lowercase).corpus_score(found, [references]).score,
        **rouge(found, references),
        "exact_match": float(matches(found, references, lowercase=lowercase).mean()),
    }


def bleu(
    found: Sequence[str],
    references: Sequence[str],
    tokenize: Tokenization = "13a",
    *,
    lowercase: bool = False,
) -> float:
    """Return BLEU over all texts, 0 to 100."""
    return BLEU(tokenize=tokenize, lowercase=lowercase).corpus_score(found, [references]).score


def rouge(found: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the mean F1 of each kind of ROUGE, 0 to 1, without stemming."""
    return {kind: float(values.mean()) for kind, values in rouge_of_each(found, references).items()}


def rouge_of_each(found: Sequence[str], references: Sequence[str]) -> dict[str, np.ndarray]:
    """Return each text's F1 of each kind of ROUGE, (E,)."""
    from rouge_score.rouge_scorer import RougeScorer  # it imports nltk, which takes a second

    scorer = RougeScorer(ROUGE_TYPES, tokenizer=LettersOfEveryScript())
    scores = [scorer.score(reference, text) for text, reference in zip(found, references, strict=True)]
    return {kind: np.array([score[kind].fmeasure for score in scores]) for kind in ROUGE_TYPES}


def matches(found: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> np.ndarray:
    """Return which texts equal their reference, spaces at both ends and Unicode's forms aside, (E,)."""
    pairs = zip(*([settled(text, lowercase) for text in texts] for texts in (found, references)), strict=True)
    return np.array([text == reference for text, reference in pairs])


def settled(text: str, lowercase: bool) -> str:
    """Leave out of a text what does not count when it is compared as a whole."""
    text = unicodedata.normalize("NFC", text.strip())
    return text.lower() if lowercase else text


def score_of_rows(
    name: str,
    found: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: Tokenization = "13a",
    lowercase: bool = False,
) -> Callable[[np.ndarray], float]:
    """Return a function that computes one of the scores of some of the texts, by their indices (E,).

    Texts are compared once. What BLEU and chrF are computed from adds up over them, as sacrebleu has it for
    its own significance tests (Koehn, 2004); the other scores are means.
    """
    if name not in ("bleu", "chrf"):
        is_exact = name == "exact_match"
        values = (
            matches(found, references, lowercase=lowercase)
            if is_exact
            else rouge_of_each(found, references)[name]
        )
        return lambda rows: float(values[rows].mean())
    metric = BLEU(tokenize=tokenize, lowercase=lowercase) if name == "bleu" else CHRF(lowercase=lowercase)
    return by_counts(metric, found, [references])


def bleu_of_rows(
    found: Sequence[str], references: Sequence[Sequence[str]], tokenize: Tokenization = "13a"
) -> Callable[[np.ndarray], float]:
    """Return `score_of_rows` of BLEU, with one or more references for each text."""
    return by_counts(BLEU(tokenize=tokenize), found, [*zip_longest(*references)])


def by_counts(
    metric: BLEU | CHRF, found: Sequence[str], references: Sequence[Sequence[str]]
) -> Callable[[np.ndarray], float]:
    """Compare texts with a reference of each list, and return what adds the counts of some of them up."""
    counts = np.array(metric._extract_corpus_statistics(found, references))
    return lambda rows: metric._compute_score_from_stats(counts[rows].sum(axis=0).tolist()).score


class LettersOfEveryScript:
    """Words of lower-case letters and digits of any script; characters of scripts without spaces stand alone.

    rouge_score's own tokenizer knows the letters a to z only: it finds no words in Chinese or Russian, and
    makes `caf` of `café`. Of text in ASCII both make the same words.

    >>> LettersOfEveryScript().tokenize("Über 3,5 Cafés: 模型.")
    ['über', '3', '5', 'cafés', '模', '型']
    """

    def tokenize(self, text: str) -> list[str]:
        composed = unicodedata.normalize("NFC", text.lower())
        return space_out("".join(map(letter_or_space, composed))).split()


@cache
def letter_or_space(character: str) -> str:
    """Keep letters, their marks and numbers; all else only separates."""
    return character if unicodedata.category(character)[0] in "LMN" else " "
