"""The scores of this folder as modules of the `evaluate` library, which downloads its own.

    f1 = load_metric("f1_macro")
    f1.compute(predictions=[0, 1, 1], references=[0, 1, 0])
    evaluate.combine([load_metric("accuracy"), load_metric("f1")])
    evaluate.evaluator("text-classification").compute(model, rows, metric=load_metric("accuracy"), ...)

Nothing is downloaded, and nothing is written: predictions are kept in memory until they are scored.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from datasets import Features, List, Value
from evaluate import Metric, MetricInfo

from ..metrics.answers import answer_scores
from ..metrics.labels import Average, accuracy, calibration_error, f1, matthews_correlation, set_scores
from ..metrics.numbers import mean_squared_error, pearson, spearman
from ..metrics.ranking import normalized_gain, ranked_grades, reciprocal_rank
from ..metrics.spans import span_scores
from ..metrics.texts import Tokenization, bleu, chrf, exact_match, rouge

LABEL, NUMBER, TEXT = Value("int64"), Value("float64"), Value("string")


class OfflineMetric(Metric, ABC):
    """A metric that needs no network and leaves no files. Abstract: each says what it compares, and how."""

    prediction: ClassVar[Value | List]
    """What is predicted for one example."""
    reference: ClassVar[Value | List]
    """What is right for one example."""

    def __init__(self):
        # Its folder is made even for what stays in memory.
        with TemporaryDirectory() as folder:
            super().__init__(keep_in_memory=True, cache_dir=folder)

    def _info(self) -> MetricInfo:
        return MetricInfo(
            description=inspect.getdoc(type(self)) or "",
            citation="",
            features=Features(predictions=self.prediction, references=self.reference),
        )

    def _compute(
        self, *, predictions: Any = None, references: Any = None, **options: Any
    ) -> dict[str, float]:
        return self.score(predictions, references, **options)

    @abstractmethod
    def score(self, predictions: list[Any], references: list[Any]) -> dict[str, float]:
        """Compare all predictions with what is right."""


class Accuracy(OfflineMetric):
    """Share of labels that are right."""

    prediction = reference = LABEL

    def score(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        """Compare labels."""
        return {"accuracy": accuracy(np.array(predictions), np.array(references))}


class F1(OfflineMetric):
    """F1 of labels.

    Args:
        average: Of label 1 if `binary`, of all labels if `macro` or `micro`; the score is called after it.
    """

    prediction = reference = LABEL

    def __init__(self, average: Average = "binary"):
        super().__init__()
        self.average: Average = average

    def score(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        """Compare labels."""
        name = "f1" if self.average == "binary" else f"f1_{self.average}"
        return {name: f1(np.array(predictions), np.array(references), self.average)}


class MatthewsCorrelation(OfflineMetric):
    """Correlation of labels."""

    prediction = reference = LABEL

    def score(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        """Compare labels."""
        return {"matthews_correlation": matthews_correlation(np.array(predictions), np.array(references))}


class ExpectedCalibrationError(OfflineMetric):
    """Distance of how sure a model is from how often it is right.

    A prediction is the probability of every label.
    """

    prediction = List(NUMBER)
    reference = LABEL

    def score(self, predictions: list[list[float]], references: list[int]) -> dict[str, float]:
        """Compare probabilities with labels."""
        return {"calibration_error": calibration_error(np.array(predictions), np.array(references))}


class LabelSets(OfflineMetric):
    """F1 and accuracy of sets of labels, a zero or one for each label."""

    prediction = reference = List(LABEL)

    def score(self, predictions: list[list[int]], references: list[list[int]]) -> dict[str, float]:
        """Compare sets."""
        return set_scores(np.array(predictions), np.array(references))


class Pearson(OfflineMetric):
    """Linear correlation of numbers."""

    prediction = reference = NUMBER

    def score(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        """Compare numbers."""
        return {"pearson": pearson(np.array(predictions), np.array(references))}


class Spearman(OfflineMetric):
    """Correlation of the ranks of numbers."""

    prediction = reference = NUMBER

    def score(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        """Compare numbers."""
        return {"spearman": spearman(np.array(predictions), np.array(references))}


class MeanSquaredError(OfflineMetric):
    """Mean squared distance of numbers."""

    prediction = reference = NUMBER

    def score(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        """Compare numbers."""
        return {"mean_squared_error": mean_squared_error(np.array(predictions), np.array(references))}


class SpanF1(OfflineMetric):
    """F1, precision and recall of the spans that IOB2 tags mark, and the share of tags that are right."""

    prediction = reference = List(TEXT)

    def score(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, float]:
        """Compare spans."""
        return span_scores(predictions, references)


class SquadAnswers(OfflineMetric):
    """Exact match and F1 of answers, case, punctuation and articles aside, as SQuAD counts them.

    A reference is the list of all right answers, empty if there is none. The metric `exact_match` compares
    texts as they are.
    """

    prediction = TEXT
    reference = List(TEXT)

    def score(self, predictions: list[str], references: list[list[str]]) -> dict[str, float]:
        """Compare answers."""
        return answer_scores(predictions, references)


class Bleu(OfflineMetric):
    """BLEU of texts, 0 to 100.

    Args:
        tokenize: How texts are cut into words.
    """

    prediction = reference = TEXT

    def __init__(self, tokenize: Tokenization = "13a"):
        super().__init__()
        self.tokenize: Tokenization = tokenize

    def score(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        """Compare texts."""
        return {"bleu": bleu(predictions, references, self.tokenize)}


class ChrF(OfflineMetric):
    """chrF2 of texts, 0 to 100."""

    prediction = reference = TEXT

    def score(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        """Compare texts."""
        return {"chrf": chrf(predictions, references)}


class Rouge(OfflineMetric):
    """Mean F1 of three kinds of ROUGE of texts of any script."""

    prediction = reference = TEXT

    def score(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        """Compare texts."""
        return rouge(predictions, references)


class ExactMatch(OfflineMetric):
    """Share of texts that equal their reference, spaces at both ends aside."""

    prediction = reference = TEXT

    def score(self, predictions: list[str], references: list[str]) -> dict[str, float]:
        """Compare texts."""
        return {"exact_match": exact_match(predictions, references)}


class MeanReciprocalRank(OfflineMetric):
    """One over the rank of the first document that belongs to a query.

    A prediction is a query's similarity to every document, the same documents for all; a reference is the
    list of the indices of those that belong to it.
    """

    prediction = List(NUMBER)
    reference = List(LABEL)

    def score(self, predictions: list[list[float]], references: list[list[int]]) -> dict[str, float]:
        """Compare rankings with what belongs to each query."""
        grades = ranked_grades(np.array(predictions), list(map(set, references)))
        return {"mrr": float(reciprocal_rank(grades).mean())}


class NormalizedGain(OfflineMetric):
    """Gain of a search's first ten documents over the best possible one.

    Inputs are those of `MeanReciprocalRank`.
    """

    prediction = List(NUMBER)
    reference = List(LABEL)

    def score(self, predictions: list[list[float]], references: list[list[int]]) -> dict[str, float]:
        """Compare rankings with what belongs to each query."""
        grades = ranked_grades(np.array(predictions), list(map(set, references)))
        return {"ndcg@10": float(normalized_gain(grades, 10).mean())}


METRICS: dict[str, Callable[[], OfflineMetric]] = {
    "accuracy": Accuracy,
    "f1": F1,
    "f1_macro": partial(F1, "macro"),
    "f1_micro": partial(F1, "micro"),
    "matthews_correlation": MatthewsCorrelation,
    "calibration_error": ExpectedCalibrationError,
    "label_sets": LabelSets,
    "pearson": Pearson,
    "spearman": Spearman,
    "mean_squared_error": MeanSquaredError,
    "span_f1": SpanF1,
    "squad": SquadAnswers,
    "bleu": Bleu,
    "chrf": ChrF,
    "rouge": Rouge,
    "exact_match": ExactMatch,
    "mrr": MeanReciprocalRank,
    "ndcg@10": NormalizedGain,
}
"""Every metric, by the name that `load_metric` takes."""


def load_metric(name: str) -> OfflineMetric:
    """Build a metric.

    Raises:
        ValueError: There is none of this name.
    """
    if name not in METRICS:
        raise ValueError(f"there is no metric {name!r}: choose one of {', '.join(METRICS)}")
    return METRICS[name]()
