"""The classifier that a Transformer must beat: logistic regression on TF-IDF weights of words.

It learns from the same training rows. Texts that are written without spaces are read as pairs of characters.
Punctuation counts as words, too. The two texts of a pair have separate weights. Its time is bounded: it reads
at most `MOST_ROWS` rows, evenly spaced, `MOST_WORDS` words of each column, and every row `EPOCHS` times.

Shapes: E training rows, F other rows, L labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier

from ...training.metrics.texts import tokenization_for

MOST_ROWS = 20_000
"""Training rows that are read."""

MOST_WORDS = 30_000
"""Words of a column: the most frequent ones."""

EPOCHS = 10
"""Of stochastic gradient descent. With 30, accuracies of seven data sets changed by 0.6 points at most."""

REGULARIZATION = 3e-5
"""Strength of the L2 penalty, which was chosen once for all tasks."""

SAMPLED_TEXTS = 1000
"""Texts that decide whether words are separated by spaces."""

TextColumns = Sequence[Sequence[str]]
"""One column of texts, or two."""


class BagOfWords:
    """Logistic regression on words, for one label or several."""

    def __init__(self, columns: TextColumns):
        self.chosen = evenly_spaced(len(columns[0]))
        chosen = [[texts[int(row)] for row in self.chosen] for texts in columns]
        # A vocabulary needs a word, also where all texts are blank.
        self.vectorizers = [vectorizer_for(texts).fit([*texts, "."]) for texts in chosen]
        self.learned = self.weights_of(chosen)

    def weights_of(self, columns: TextColumns) -> Any:
        """Weigh the words of rows."""
        pairs = zip(self.vectorizers, columns, strict=True)
        return hstack([vectorizer.transform(texts) for vectorizer, texts in pairs]).tocsr()

    def probabilities(self, labels: np.ndarray, num_labels: int, columns: TextColumns) -> np.ndarray:
        """Learn labels, (E,), or sets of labels, (E, L); give their probabilities for other rows, (F, L)."""
        if labels.ndim == 1:
            return self.one_label(labels, num_labels, columns)
        shares = [self.one_label(own, 2, columns)[:, 1] for own in labels.T]
        return np.stack(shares, axis=1)

    def one_label(self, labels: np.ndarray, num_labels: int, columns: TextColumns) -> np.ndarray:
        """Learn a label for each training row, (E,); give the probabilities of all for other rows, (F, L).

        A label that no training row has gets no probability.
        """
        known, found = labels[self.chosen], np.zeros((len(columns[0]), num_labels))
        if len(present := np.unique(known)) == 1:
            found[:, present[0]] = 1.0
            return found
        model = regression().fit(self.learned, known)
        found[:, present] = model.predict_proba(self.weights_of(columns))
        return found


def regression() -> SGDClassifier:
    """Make an untrained logistic regression; of more than two labels, one against the rest for each."""
    settings: dict[str, Any] = {"max_iter": EPOCHS, "tol": None, "random_state": 0}  # its stubs allow no None
    return SGDClassifier(loss="log_loss", alpha=REGULARIZATION, **settings)


def vectorizer_for(texts: Sequence[str]) -> TfidfVectorizer:
    """Choose what counts as a word of such texts: what stands between spaces, or one or two characters."""
    options: dict[str, Any] = {"sublinear_tf": True, "max_features": MOST_WORDS, "dtype": np.float32}
    if tokenization_for(texts[:SAMPLED_TEXTS]) == "zh":
        return TfidfVectorizer(analyzer="char", ngram_range=(1, 2), **options)
    return TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", **options)


def evenly_spaced(num_rows: int) -> np.ndarray:
    """Return the indices of at most `MOST_ROWS` rows."""
    return np.unique(np.linspace(0, num_rows - 1, min(MOST_ROWS, num_rows)).round().astype(int))
