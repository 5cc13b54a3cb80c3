"""What a score of a run is, whatever kind of run it is of, and what the parts of its name mean.

Scores of pretraining have names like `mlm/accuracy`: a term, which is one thing that was learned, and a
metric. In `evaluation.json`, `mlm/accuracy/interval` is the 95 % interval of such a score, low and high.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

OTHER_TERMS = {"distillation": ("what the teacher knows", "other")}
"""Terms of no objective and no task -> what is scored, and the Hub's name of the task."""

METRICS = {
    "loss": "loss (nats)",
    "perplexity": "perplexity",
    "accuracy": "accuracy",
    "bits_per_byte": "bits per byte",
    "bleu": "BLEU",
    "chrf": "chrF",
    "f1": "F1",
    "f1_macro": "macro F1",
    "exact_match": "exact match",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "retained": "share of the teacher's score",
    "fewer_parameters": "share of the teacher's parameters saved",
    "times_faster": "times the teacher's throughput",
}
"""Metrics of several tasks, or of none, as they are written."""

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
        """The term of the loss, which `what_is_scored` puts in words."""
        return self.name.partition("/")[0]

    @property
    def metric(self) -> str:
        """A key of `metric_words`, behind the term."""
        return self.name.partition("/")[2]

    def __str__(self) -> str:
        """Write the score, with its interval in brackets."""
        ends = "" if self.interval is None else f" [{', '.join(map(number, self.interval))}]"
        return f"{number(self.value)}{ends}"


def as_data(scores: Iterable[Score]) -> list[dict[str, Any]]:
    """Return scores as plain data, for a run's `scores.json`."""
    return [asdict(score) for score in scores]


def from_data(data: Mapping[str, Any]) -> Score:
    return Score(**{**data, "interval": as_pair(data["interval"])})


def as_pair(interval: Iterable[float] | None) -> tuple[float, float] | None:
    """Return an interval as JSON has it; there may be none."""
    if interval is None:
        return None
    low, high = interval
    return low, high


def between(interval: tuple[float, float]) -> str:
    return " to ".join(map(number, interval))


def number(value: float | None) -> str:
    """Write a score; one that is not finite is written as JSON's null."""
    return "undefined" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


@cache
def words_of_term(term: str) -> tuple[str, str] | None:
    """Find what is scored by a term, and the Hub's name of the task, in the first recipe that has it."""
    from ..finetune.tasks.recipes import TASKS
    from ..pretraining.objectives.recipes import OBJECTIVES

    if term in TASKS:  # which are asked alone: each imports what its metrics need
        return TASKS[term].TERMS[term]
    words = (recipe.TERMS.get(term) for recipe in OBJECTIVES.values())
    return OTHER_TERMS.get(term) or next(filter(None, words), None)


def metric_words(term: str) -> Mapping[str, str]:
    """Return how each metric of a term that a reader knows is written; a term may be the kind of a task."""
    from ..finetune.tasks.recipes import TASKS

    return METRICS | (TASKS[term].METRICS if term in TASKS else {})


def what_is_scored(term: str) -> str:
    """Return a term in words."""
    words = words_of_term(term)
    return term.replace("_", " ") if words is None else words[0]


def about_bytes(names: Iterable[str], lost: Sequence[str]) -> Iterator[str]:
    """Yield why bits per byte, if they are among the names of scores, are too low to be compared.

    Args:
        lost: What the tokenizer takes out of a text before it reads it.
    """
    if lost and any(name.rpartition("/")[2] == "bits_per_byte" for name in names):
        yield (
            f"bits per byte are too low: the tokenizer takes {' and '.join(lost)} out of the text, but not "
            "out of its bytes"
        )
