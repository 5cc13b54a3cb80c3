"""What a score of a run is, whatever kind of run it is of, and what the parts of its name mean.

Scores of pretraining have names like `mlm/accuracy`: a term, which is one thing that was learned, and a
metric. In `evaluation.json`, `mlm/accuracy/interval` is the 95 % interval of such a score, low and high.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

TERMS = {
    "mlm": ("hidden tokens", "fill-mask"),
    "mntp": ("hidden tokens, predicted from the position before", "fill-mask"),
    "rtd": ("replaced tokens", "other"),
    "reconstruction": ("tokens of the restored sentence", "other"),
    "nsp": ("next sentences", "text-classification"),
    "sop": ("the order of two texts", "text-classification"),
    "clm": ("next tokens", "text-generation"),
    "forward": ("next characters", "text-generation"),
    "backward": ("previous characters", "other"),
    "fill_in_the_middle": ("next tokens, middles included", "text-generation"),
    "span_corruption": ("tokens of hidden spans", "text2text-generation"),
    "prefix_lm": ("tokens behind a prefix", "text2text-generation"),
    "mixture_of_denoisers": ("tokens of hidden spans", "text2text-generation"),
    "denoising": ("tokens of the restored text", "text2text-generation"),
    "translation": ("tokens of the translation", "translation"),
    "classification": ("labels of texts", "text-classification"),
    "multi_label": ("sets of labels", "text-classification"),
    "regression": ("numbers", "text-classification"),
    "tagging": ("labels of words", "token-classification"),
    "question_answering": ("answers", "question-answering"),
    "multiple_choice": ("choices", "multiple-choice"),
    "ranking": ("searches", "sentence-similarity"),
    "generation": ("written texts", "text2text-generation"),
    "chat": ("answers in dialogues", "text-generation"),
    "distillation": ("what the teacher knows", "other"),
}
"""Term -> what is scored, and the Hub's name of the task."""

METRICS = {
    "loss": "loss (nats)",
    "perplexity": "perplexity",
    "accuracy": "accuracy",
    "bits_per_byte": "bits per byte",
    "bleu": "BLEU",
    "chrf": "chrF",
    "f1": "F1",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "matthews_correlation": "Matthews correlation",
    "calibration_error": "expected calibration error",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "mean_squared_error": "mean squared error",
    "span_f1": "F1 of spans",
    "span_precision": "precision of spans",
    "span_recall": "recall of spans",
    "exact_match": "exact match",
    "has_answer_exact_match": "exact match where there is an answer",
    "has_answer_f1": "F1 where there is an answer",
    "no_answer_exact_match": "exact match where there is none",
    "no_answer_f1": "F1 where there is none",
    "mrr": "MRR",
    "ndcg@10": "nDCG@10",
    "recall@1": "recall@1",
    "recall@10": "recall@10",
    "map": "MAP",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "retained": "share of the teacher's score",
    "fewer_parameters": "share of the teacher's parameters saved",
    "times_faster": "times the teacher's throughput",
}
"""Metrics that a reader knows, as they are written."""

INTERVAL = "interval"


@dataclass(frozen=True)
class Score:
    """A score, how sure it is, and what it is to be compared with."""

    name: str
    """`accuracy`; of pretraining the term and the metric, `mlm/accuracy`."""
    value: float | None
    """The score; `None` if it is undefined."""
    interval: tuple[float, float] | None = None
    """The ends of its 95 % interval, if that was computed."""
    baseline: Mapping[str, float | None] = field(default_factory=dict)
    """The same score of what needs no learning, or of another model, by its name."""
    n: int | None = None
    """How many rows or targets it is of."""
    split: str | None = None
    """Which part of the data they are."""

    @property
    def term(self) -> str:
        """The term of the loss, which `TERMS` puts in words."""
        return self.name.partition("/")[0]

    @property
    def metric(self) -> str:
        """A key of `METRICS`, behind the term."""
        return self.name.partition("/")[2]

    def __str__(self) -> str:
        """Write the score, with its interval in brackets."""
        ends = "" if self.interval is None else f" [{', '.join(map(number, self.interval))}]"
        return f"{number(self.value)}{ends}"


def as_data(scores: Iterable[Score]) -> list[dict[str, Any]]:
    """Return scores as plain data, for a run's `scores.json`."""
    return [asdict(score) for score in scores]


def from_data(data: Mapping[str, Any]) -> Score:
    """Return the score that plain data describe."""
    return Score(**{**data, "interval": as_pair(data["interval"])})


def as_pair(interval: Iterable[float] | None) -> tuple[float, float] | None:
    """Return an interval as JSON has it; there may be none."""
    if interval is None:
        return None
    low, high = interval
    return low, high


def between(interval: tuple[float, float]) -> str:
    """Write the ends of an interval."""
    return " to ".join(map(number, interval))


def number(value: float | None) -> str:
    """Write a score; one that is not finite is written as JSON's null."""
    return "undefined" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def what_is_scored(term: str) -> str:
    """Return a term in words."""
    return TERMS[term][0] if term in TERMS else term.replace("_", " ")


def about_bytes(names: Iterable[str], lost: Sequence[str]) -> Iterator[str]:
    """Yield why bits per byte, if they are among the names of scores, are too low to be compared.

    Args:
        names: Of the scores.
        lost: What the tokenizer takes out of a text before it reads it.
    """
    if lost and any(name.rpartition("/")[2] == "bits_per_byte" for name in names):
        yield (
            f"bits per byte are too low: the tokenizer takes {' and '.join(lost)} out of the text, but not "
            "out of its bytes"
        )
