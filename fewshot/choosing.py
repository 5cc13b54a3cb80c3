"""Which of several answers a model chooses, by five ways to compare their scores.

    raw              log-likelihood
    per_token        over the number of tokens
    per_character    over the number of characters, the `acc_norm` of lm-evaluation-harness
    unconditional    less that of the answer behind "Answer:", which says how common it is by itself (Brown et
                     al., 2020, section 2.4)
    calibrated       probability over that in a prompt without content (Zhao et al., 2021, section 5); only
                     for choices that are the same in all rows

Legend: A answers of an item.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import log_softmax, logsumexp

from .request import Score

WAYS = ("raw", "per_token", "per_character", "unconditional", "calibrated")


def compared(
    scores: Sequence[Score],
    answers: Sequence[str],
    unconditional: Sequence[Score] | None = None,
    content_free: Sequence[Sequence[Score]] = (),
) -> dict[str, np.ndarray]:
    """Give the values (A,) by which answers are compared, the highest being chosen, by way.

    Args:
        scores: Of the answers.
        answers: Their texts.
        unconditional: Scores of the same answers without the question, if asked for.
        content_free: Scores of the same answers in each prompt without content, if asked for.
    """
    raw = totals(scores)
    values = {
        "raw": raw,
        "per_token": raw / [len(score.log_likelihoods) for score in scores],
        "per_character": raw / [max(1, len(answer.strip())) for answer in answers],
    }
    if unconditional is not None:
        values["unconditional"] = raw - totals(unconditional)
    if content_free:
        without = np.stack([log_softmax(totals(own)) for own in content_free])
        values["calibrated"] = log_softmax(raw) - (logsumexp(without, axis=0) - np.log(len(without)))
    return values


def totals(scores: Sequence[Score]) -> np.ndarray:
    """Log-likelihoods of whole answers, (A,)."""
    return np.array([score.total for score in scores])


def probabilities(values: np.ndarray) -> np.ndarray:
    """Turn values (A,) into probabilities of the answers."""
    return np.exp(log_softmax(values))
