"""The classifier that a Transformer must beat: logistic regression on how often each word occurs."""

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
"""Regularizations that are tried, from strong to weak."""

Labelled = tuple[Sequence[str], Sequence[str]]
"""Texts and their labels."""


def predict_by_words(train: Labelled, validation: Labelled, texts: Sequence[str]) -> list[str]:
    """Predict labels after learning from counts of words, regularized as suits the validation rows best.

    Args:
        train: What is learned from.
        validation: What the regularization is chosen by.
        texts: To be labelled.
    """
    models = [
        make_pipeline(CountVectorizer(), LogisticRegression(C=strength, max_iter=1000)).fit(*train)
        for strength in STRENGTHS
    ]
    best = max(models, key=lambda model: model.score(*validation))
    return np.asarray(best.predict(texts)).tolist()
