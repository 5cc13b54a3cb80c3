"""What answers are worth: a record for every item, and scores over records.

A record is plain data, one line of the log: the prompt, its tokens and what the model said of them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..metrics.answer_metrics import exact_match as squad_exact_match
from ..metrics.answer_metrics import word_f1
from ..metrics.bootstrap import bootstrap_interval
from ..metrics.text_metrics import bleu, score_of_rows, tokenization_for
from .choosing import WAYS, compared, probabilities
from .items import Item, is_choosing
from .prompting import Question
from .request import Score
from .task_recipes import Choosing, Common, CompletionRecipe, GenerationRecipe, MinimalPairRecipe

Record = dict[str, Any]

NUM_BINS = 10
"""Bins of confidence in a reliability plot."""

MEANS_OF_WRITING = ("exact_match", "squad_exact_match", "f1")
"""Scores of what was written that are means over items."""


def criterion_of(task: Common) -> str:
    """Name the score that decides."""
    if isinstance(task, GenerationRecipe):
        return task.score
    return "accuracy" if is_choosing(task) or isinstance(task, CompletionRecipe) else "bits_per_byte"


def way_of(task: Common) -> str:
    """Name the comparison of answers whose choice counts."""
    return task.way if isinstance(task, Choosing) else "raw"


def is_better_higher(criterion: str) -> bool:
    """Tell whether a high score is a good one."""
    return criterion != "bits_per_byte"


def record_choice(
    task: Common,
    question: Question,
    scores: Sequence[Score],
    unconditional: Sequence[Score] | None,
    content_free: Sequence[Sequence[Score]],
) -> Record:
    """Say which answer each comparison chooses, and how sure the one that counts is."""
    answers = question.item.answers
    values = compared(scores, answers, unconditional, content_free)
    sure = probabilities(values[way_of(task)])
    choices = {way: int(own.argmax()) for way, own in values.items()}
    record = {
        "values": {way: own.tolist() for way, own in values.items()},
        "choices": choices,
        "right": question.item.right,
        "is_right": {way: question.item.is_right(choice) for way, choice in choices.items()},
        "confidence": float(sure.max()),
    }
    return record | tied_pair(values) if isinstance(task, MinimalPairRecipe) else record


def tied_pair(values: Mapping[str, np.ndarray]) -> Record:
    """Say of a minimal pair whether the good sentence, the first, is strictly likelier, as BLiMP asks."""
    return {
        "is_right": {way: bool(good > bad) for way, (good, bad) in values.items()},
        "is_tied": bool(values["raw"][0] == values["raw"][1]),
    }


def record_completion(score: Score) -> Record:
    """Say whether the answer is what the model would write."""
    return {
        "is_right": score.is_greedy,
        "log_likelihood": score.total,
        "num_tokens": len(score.log_likelihoods),
    }


def record_text(item: Item, scores: Sequence[Score]) -> Record:
    """Say how probable a text is, over all its windows."""
    text = item.answers[0]
    return {
        "log_likelihood": sum(score.total for score in scores),
        "num_tokens": sum(len(score.log_likelihoods) for score in scores),
        "num_words": len(text.split()),
        "num_bytes": len(text.encode()),
    }


def record_writing(item: Item, written: str) -> Record:
    """Compare what was written with the nearest right answer: as it is, and as SQuAD does."""
    return {
        "written": written,
        "references": list(item.references),
        "exact_match": float(written.strip() in [answer.strip() for answer in item.references]),
        "squad_exact_match": squad_exact_match(written, item.references),
        "f1": word_f1(written, item.references),
    }


def scores_of(task: Common, records: Sequence[Record]) -> dict[str, float]:
    """Give all scores of some records."""
    if isinstance(task, GenerationRecipe):
        texts, references = written(records)
        means = {name: float(np.mean([record[name] for record in records])) for name in MEANS_OF_WRITING}
        return {**means, "bleu": bleu(texts, references, tokenization_for(references))}
    if is_choosing(task):
        ways = [way for way in WAYS if way in records[0]["is_right"]]
        by_way = {way: float(np.mean([record["is_right"][way] for record in records])) for way in ways}
        error = reliability(records, way_of(task))["calibration_error"]
        return {
            "accuracy": by_way[way_of(task)],
            **{f"accuracy_{way}": share for way, share in by_way.items()},
            "calibration_error": error,
        }
    nats, tokens = (sum(record[name] for record in records) for name in ("log_likelihood", "num_tokens"))
    if isinstance(task, CompletionRecipe):
        return {
            "accuracy": float(np.mean([record["is_right"] for record in records])),
            "perplexity": float(np.exp(-nats / len(records))),
            "nats_per_token": -nats / tokens,
        }
    return {
        "bits_per_byte": bits_per_byte(records),
        "perplexity_per_word": float(np.exp(-nats / max(1, sum(record["num_words"] for record in records)))),
        "perplexity_per_token": float(np.exp(-nats / tokens)),
    }


def bits_per_byte(records: Sequence[Record]) -> float:
    """Give the bits that texts take with this model, over their bytes."""
    nats, num_bytes = (sum(record[name] for record in records) for name in ("log_likelihood", "num_bytes"))
    return -nats / np.log(2) / num_bytes


def written(records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Give what was written, and the first right answer to each."""
    return [record["written"] for record in records], [record["references"][0] for record in records]


def worth_of(task: Common, record: Record) -> float:
    """Give what an item adds to the criterion, where that is a mean over items."""
    if isinstance(task, GenerationRecipe):
        return record[task.score]
    return float(record["is_right"][way_of(task)] if is_choosing(task) else record["is_right"])


def interval_of(task: Common, conditions: Sequence[Sequence[Record | None]]) -> tuple[float, float]:
    """Give the 95 % interval of the criterion: rows are drawn again, with what all seeds made of them.

    Args:
        task: What was asked.
        conditions: The records of all rows in every condition, none where a row does not count.
    """
    counts = np.array([[record is not None for record in own] for own in conditions])
    scores = [score_of_drawn(task, [record for record in own if record is not None]) for own in conditions]
    # Of each condition, where among its records those of a row stand, or -1.
    places = np.where(counts, counts.cumsum(axis=1) - 1, -1)[:, counts.any(axis=0)]

    def mean_of(rows: np.ndarray) -> float:
        drawn = [own[rows] for own in places]
        parts = [own[own >= 0] for own in drawn]
        return float(np.mean([score(part) for score, part in zip(scores, parts, strict=True) if len(part)]))

    return bootstrap_interval(mean_of, places.shape[1])


def score_of_drawn(task: Common, records: Sequence[Record]) -> Callable[[np.ndarray], float]:
    """Give the function that computes the criterion of some of the records, by their places (E,)."""
    name = criterion_of(task)
    if name == "bleu":
        texts, references = written(records)
        return score_of_rows("bleu", texts, references, tokenize=tokenization_for(references))
    if name == "bits_per_byte":
        return lambda places: bits_per_byte([records[place] for place in places])
    values = np.array([worth_of(task, record) for record in records])
    return lambda places: float(values[places].mean())


def reliability(records: Sequence[Record], way: str) -> dict[str, Any]:
    """Compare how sure a model is with how often it is right (Guo et al., 2017, section 2).

    Returns:
        `calibration_error`, the mean distance of both over bins of confidence, weighted by their items, and
        of each bin that has any: `confidence`, `accuracy` and `count`.
    """
    confidence = np.array([record["confidence"] for record in records])
    is_right = np.array([record["is_right"][way] for record in records], dtype=float)
    bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    counts = np.bincount(bins, minlength=NUM_BINS)
    filled = counts > 0
    sure, right = (
        np.bincount(bins, weights=own, minlength=NUM_BINS)[filled] for own in (confidence, is_right)
    )
    return {
        "calibration_error": float(np.abs(right - sure).sum() / len(records)),
        "confidence": (sure / counts[filled]).tolist(),
        "accuracy": (right / counts[filled]).tolist(),
        "count": counts[filled].tolist(),
    }


def by_group(task: Common, records: Sequence[Record]) -> dict[str, float]:
    """Give the criterion of each group of items."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["group"], []).append(record)
    name = criterion_of(task)
    return {group: scores_of(task, own)[name] for group, own in sorted(groups.items())}


def baselines_of(task: Common, items: Sequence[Item]) -> dict[str, float]:
    """Give what needs no model: the most frequent answer, and a random one."""
    found: dict[str, float] = {}
    if is_choosing(task):
        found["random"] = float(np.mean([1 / len(item.answers) for item in items]))
        if not isinstance(task, MinimalPairRecipe):
            found["majority"] = share_of_most([item.right for item in items])
    elif isinstance(task, CompletionRecipe):
        found["majority"] = share_of_most([item.answers[0] for item in items])
    elif isinstance(task, GenerationRecipe):
        usual = Counter(item.references[0] for item in items).most_common(1)[0][0]
        guesses = [record_writing(item, usual) for item in items]
        found["majority"] = scores_of(task, guesses)[task.score]
    return found


def share_of_most(answers: Sequence[Any]) -> float:
    """Give the share of the most frequent one."""
    return Counter(answers).most_common(1)[0][1] / len(answers)
