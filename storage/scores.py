"""A run's scores, for the card's table and for the Hub, which shows those of its `model-index` itself.

Scores have names like `mlm/accuracy`: a term, which is one thing that was learned, and a metric. Where a run
knows how sure a score is, `mlm/accuracy/interval` holds its 95 % interval, low and high.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from huggingface_hub import EvalResult

from .finished_run import FinishedRun

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
    """The value of a metric, and how sure it is."""

    term: str
    """The term of the loss, which `TERMS` puts in words."""
    metric: str
    """A key of `METRICS`."""
    value: float
    interval: tuple[float, float] | None
    """The 95 % interval."""

    @property
    def shown(self) -> str:
        """Write the value with four digits, and its interval."""
        if self.interval is None:
            return f"{self.value:.4g}"
        low, high = self.interval
        return f"{self.value:.4g} [{low:.4g}, {high:.4g}]"


def read_scores(run: FinishedRun) -> Iterator[Score]:
    """List the scores that are finite and mean something to a reader."""
    scores = run.evaluation.get("scores", {})
    for name, value in scores.items():
        term, _, metric = name.partition("/")
        if metric in METRICS and value is not None:
            interval = scores.get(f"{name}/{INTERVAL}")
            yield Score(term, metric, value, tuple(interval) if interval else None)


def evaluation_results(run: FinishedRun) -> list[EvalResult]:
    """Return the scores in the form of the Hub's metadata."""
    texts = run.texts.get(run.scored_split) or run.texts.get("train", [])
    name = ", ".join(text["name"] for text in texts) or "held-out text"
    identity = next((text["dataset"] for text in texts if "dataset" in text), name)
    return [
        EvalResult(
            task_type=TERMS[score.term][1] if score.term in TERMS else "other",
            task_name=what_is_scored(score.term),
            dataset_type=identity,
            dataset_name=name,
            dataset_split=run.scored_split,
            metric_type=score.metric,
            metric_name=f"{METRICS[score.metric]} of {what_is_scored(score.term)}",
            metric_value=score.value,
            metric_args={"interval_95": list(score.interval)} if score.interval else None,
        )
        for score in read_scores(run)
    ]


def what_is_scored(term: str) -> str:
    """Return a term in words."""
    return TERMS[term][0] if term in TERMS else term.replace("_", " ")
