"""Tasks whose answers are compared: the answer with the highest normalized log-likelihood is the prediction.

    none         log-likelihood, the `acc` of lm-evaluation-harness
    token        over the number of tokens
    char         over the number of characters, the `acc_norm` of lm-evaluation-harness
    pmi          less the log-likelihood of the answer after "Answer:", which says how common it is by itself
                 (Brown et al., 2020, section 2.4): pointwise mutual information
    calibrated   probability over that in a prompt without content (Zhao et al., 2021, section 5); only for
                 choices that are the same in all rows

A tie is wrong: a correct answer has to be strictly likelier than every other one. A model that tells nothing
apart would otherwise be as right as the order of the answers lets it be. Every answer is scored in its
context, and where the kind has them in two others: without the query, for `pmi`, and behind the same
demonstrations in a prompt without content, for `calibrated`.

Legend: A answers of an item.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp

from ...training.metrics.calibration import expected_error, reliability
from ..prompts.boundary import Prompt
from ..prompts.items import Item
from ..prompts.prompted_model import PromptedModel
from ..prompts.prompting import Query
from ..prompts.request import Request, Score
from ..scoring.score_cache import ScoreCache
from .task import Answerer, Record, Task


class Comparison(Task):
    """Several answers are compared. Abstract: each kind has other templates, and may need other contexts."""

    metric = "accuracy"
    scored = "log-likelihoods at temperature 1; an answer that ties with a wrong one is wrong"
    normalization: str
    """The normalization that decides."""

    def without_query(self, query: Query) -> list[Prompt]:
        """Return the prompt of the answers without the query, if `pmi` is possible."""
        return []

    def without_content(self, query: Query, model: PromptedModel) -> list[Prompt]:
        """Return the prompts without content, if `calibrated` is possible."""
        return []

    def answerer(self, model: PromptedModel) -> Answerer:
        return partial(self.choose, model, model.score_cache())

    def choose(self, model: PromptedModel, cache: ScoreCache, queries: list[Query]) -> Iterator[Record]:
        """Yield which answer is chosen for each query; all requests are scored together."""
        alone = encode_each(model, [self.without_query(query) for query in queries])
        empty = encode_each(model, [self.without_content(query, model) for query in queries])
        parts = [query.requests for query in queries]
        parts += [own for each in (*alone, *empty) for own in each]
        found = iter(cache.score_all([request for own in parts for request in own]))
        taken = iter([[next(found) for _ in own] for own in parts])
        scores = [next(taken) for _ in queries]
        scores_alone = [[next(taken) for _ in own] for own in alone]
        scores_empty = [[next(taken) for _ in own] for own in empty]
        for query, own, unconditional, content_free in zip(
            queries, scores, scores_alone, scores_empty, strict=True
        ):
            values = normalized(own, query.item.answers, next(iter(unconditional), None), content_free)
            yield self.record(query.item, values) | {"answers": model.describe_answers(query, own)}

    def record(self, item: Item, values: Mapping[str, np.ndarray]) -> Record:
        """Record which answer each normalization chooses, and how confident the one that counts is."""
        is_correct = np.array([self.is_correct(item, number) for number in range(len(item.answers))])
        leads = {name: lead_of(own, is_correct) for name, own in values.items()}
        return {
            "values": {name: own.tolist() for name, own in values.items()},
            "choices": {name: int(own.argmax()) for name, own in values.items()},
            "right": item.target,
            "is_right": {name: lead > 0 for name, lead in leads.items()},
            "is_tied": leads[self.normalization] == 0,
            "confidence": float(probabilities(values[self.normalization]).max()),
        }

    def is_correct(self, item: Item, choice: int) -> bool:
        return item.is_correct(choice)

    def scores(self, records: Sequence[Record]) -> dict[str, float]:
        names = [name for name in NORMALIZATIONS if name in records[0]["is_right"]]
        accuracies = {
            name: float(np.mean([record["is_right"][name] for record in records])) for name in names
        }
        return {
            "accuracy": accuracies[self.normalization],
            **{f"accuracy_{name}": share for name, share in accuracies.items()},
            "calibration_error": expected_error(*self.confidences(records)),
        }

    def value(self, record: Record) -> float:
        return float(record["is_right"][self.normalization])

    def confidences(self, records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
        """Return how confident each prediction is, (E,), and whether it is correct, (E,)."""
        is_correct = np.array([self.value(record) for record in records])
        return np.array([record["confidence"] for record in records]), is_correct

    def details(self, records: Sequence[Record]) -> dict[str, Any]:
        ties = sum(record["is_tied"] for record in records)
        return {"reliability": reliability(*self.confidences(records)), "ties": ties}

    def baselines(self, items: Sequence[Item]) -> dict[str, list[Any]]:
        return {"random": [1 / len(item.answers) for item in items]}


def lead_of(values: np.ndarray, is_correct: np.ndarray) -> float:
    """Compute by how much the best correct answer leads the best incorrect one; 0: a tie.

    Values that are equal, infinite ones too, are tied. Without any incorrect answer the lead is infinite.

    >>> lead_of(np.array([2.0, 1.0, 2.0]), np.array([True, False, False]))
    0.0
    """
    best, other = values[is_correct].max(), values[~is_correct].max(initial=-np.inf)
    if is_correct.all():
        return float("inf")
    return 0.0 if best == other else float(best - other)


def encode_each(model: PromptedModel, prompts: Sequence[list[Prompt]]) -> list[list[list[Request]]]:
    """Encode some prompts of each query, all at once; give the requests of each prompt."""
    encoded = iter(model.encode([prompt for own in prompts for prompt in own]))
    return [[next(encoded) for _ in own] for own in prompts]


NORMALIZATIONS = ("none", "token", "char", "pmi", "calibrated")


def normalized(
    scores: Sequence[Score],
    answers: Sequence[str],
    unconditional: Sequence[Score] | None = None,
    content_free: Sequence[Sequence[Score]] = (),
) -> dict[str, np.ndarray]:
    """Return the values (A,) by which answers are compared, the highest being chosen, by normalization.

    Args:
        scores: Scores of the answers.
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
    return np.exp(log_softmax(values))
