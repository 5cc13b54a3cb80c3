"""BLEU by the length of the source: are long sentences translated worse (Bahdanau et al., 2015, figure 2)?

Rows are put into groups of nearly equal size by the number of words of their sources, so that every point of
the curve is the BLEU of as many rows; rows of one length stay together.
"""

from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from ..metrics.bootstrap import bootstrap_interval


@dataclass(frozen=True)
class LengthGroup:
    """Rows whose sources have a similar length.

    Args:
        shortest: Words of the shortest source.
        longest: Words of the longest one.
        num_rows: How many there are.
        mean_length: Words of a source, on average.
        bleu: Of their translations, from 0 to 100.
        interval: Its 95 % interval, by drawing rows again.
    """

    shortest: int
    longest: int
    num_rows: int
    mean_length: float
    bleu: float
    interval: tuple[float, float]


def group_by_length(lengths: np.ndarray, num_groups: int) -> list[np.ndarray]:
    """Put rows of these lengths (E,) into groups from short to long, and give the rows of each.

    >>> [rows.tolist() for rows in group_by_length(np.array([3, 9, 3, 5, 7, 9]), 3)]
    [[0, 2], [3, 4], [1, 5]]
    """
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, num_groups + 1)[1:-1], method="lower"))
    numbers = np.searchsorted(edges, lengths, side="left")
    groups = (np.flatnonzero(numbers == number) for number in range(len(edges) + 1))
    return [rows for rows in groups if len(rows)]


def bleu_by_length(
    sources: list[str],
    translations: list[str],
    references: list[str],
    *,
    num_groups: int = 5,
    lowercase: bool = False,
    tokenize: str = "13a",
    resamples: int = 200,
) -> list[LengthGroup]:
    """Score translations by the length of their sources; see `score_translations` for the last options.

    Args:
        sources: What was translated.
        translations: What came out.
        references: One for each.
        num_groups: Groups at most.
        lowercase: Whether case is ignored.
        tokenize: How text is cut into tokens.
        resamples: How often rows are drawn again.

    Raises:
        ValueError: There are no rows, or another number of one kind than of the others.
    """
    if not sources or not len(sources) == len(translations) == len(references):
        raise ValueError(
            f"there are {len(sources)} sources, {len(translations)} translations and {len(references)} "
            "references: give one of each for every row"
        )
    lengths = np.array([len(source.split()) for source in sources])
    bleu = BLEU(lowercase=lowercase, tokenize=tokenize, effective_order=True)

    def score(rows: np.ndarray) -> float:
        own, right = ([texts[row] for row in rows.tolist()] for texts in (translations, references))
        return bleu.corpus_score(own, [right]).score

    groups = []
    for rows in group_by_length(lengths, num_groups):
        interval = bootstrap_interval(
            lambda drawn, rows=rows: score(rows[drawn]), len(rows), resamples=resamples
        )
        own = lengths[rows]
        groups.append(
            LengthGroup(int(own.min()), int(own.max()), len(rows), float(own.mean()), score(rows), interval)
        )
    return groups
