"""Which of several answers a model chooses: log-likelihoods, made comparable by five normalizations.

    none         log-likelihood, the `acc` of lm-evaluation-harness
    token        over the number of tokens
    char         over the number of characters, the `acc_norm` of lm-evaluation-harness
    pmi          less the log-likelihood of the answer after "Answer:", which says how common it is by itself
                 (Brown et al., 2020, section 2.4): pointwise mutual information
    calibrated   probability over that in a prompt without content (Zhao et al., 2021, section 5); only for
                 choices that are the same in all rows

Legend: A answers of an item.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import log_softmax, logsumexp

from .request import Score

NORMALIZATIONS = ("none", "token", "char", "pmi", "calibrated")


def normalized(
    scores: Sequence[Score],
    answers: Sequence[str],
    unconditional: Sequence[Score] | None = None,
    content_free: Sequence[Sequence[Score]] = (),
) -> dict[str, np.ndarray]:
    """Give the values (A,) by which answers are compared, the highest being chosen, by normalization.

    Args:
        scores: Of the answers.
        answers: Their texts.
        unconditional: Scores of the same answers without the query, if there are any.
        content_free: Scores of the same answers in each prompt without content, if there are any.
    """
    plain = totals(scores)
    values = {
        "none": plain,
        "token": plain / [len(score.log_likelihoods) for score in scores],
        "char": plain / [max(1, len(answer.strip())) for answer in answers],
    }
    if unconditional is not None:
        values["pmi"] = plain - totals(unconditional)
    if content_free:
        without = np.stack([log_softmax(totals(own)) for own in content_free])
        values["calibrated"] = log_softmax(plain) - (logsumexp(without, axis=0) - np.log(len(without)))
    return values


def totals(scores: Sequence[Score]) -> np.ndarray:
    """Log-likelihoods of whole answers, (A,)."""
    return np.array([score.total for score in scores])


def probabilities(values: np.ndarray) -> np.ndarray:
    """Turn values (A,) into probabilities of the answers."""
    return np.exp(log_softmax(values))
