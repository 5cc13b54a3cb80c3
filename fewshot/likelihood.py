"""The kinds of tasks that are scored by the log-likelihood of one text: completion and perplexity."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from .boundary import Prompt
from .items import Item
from .prompted_model import PromptedModel
from .prompting import Query
from .request import Request, Score
from .row_answers import texts_in
from .score_cache import ScoreCache
from .subject import Subject
from .task import Answerer, Record, Task, majority
from .task_recipes import CompletionRecipe, PerplexityRecipe
from .templates import Row, Template

UNITS = {
    "bits_per_byte": "num_bytes",
    "perplexity_per_word": "num_words",
    "perplexity_per_token": "num_tokens",
}
"""What the log-likelihood of texts is divided by, for each metric of perplexity."""


class Completion(Task):
    """Whether the answer is the greedy continuation of a context."""

    title = "Completion"
    metric = "accuracy"

    def __init__(self, recipe: CompletionRecipe):
        super().__init__(recipe)
        self.delimiter = recipe.delimiter
        self.context = Template("task.context", recipe.context)
        self.answer = Template("task.answer", recipe.answer)

    def fill_in(self, number: int, row: Row) -> Item:
        """Give the answer in its context."""
        context = self.context(row)
        answer = self.delimiter + texts_in("task.answer", [self.answer(row)], least=1)[0]
        return Item(number, (Prompt(context, (answer,)),), demonstration=context + answer)

    def answerer(self, model: PromptedModel) -> Answerer:
        """Give what scores the answer to each query."""
        return partial(self.complete, model, model.score_cache())

    def complete(self, model: PromptedModel, cache: ScoreCache, queries: list[Query]) -> Iterator[Record]:
        """Yield how likely each answer is."""
        found = cache.score_all([query.requests[0] for query in queries])
        for query, score in zip(queries, found, strict=True):
            yield {
                "is_right": score.is_greedy,
                "log_likelihood": score.total,
                "num_tokens": len(score.log_likelihoods),
                "answers": model.describe_answers(query, [score]),
            }

    def scores(self, records: Sequence[Record]) -> dict[str, float]:
        """Give the share of greedy continuations, the perplexity of answers, and nats per token."""
        nats = total(records, "log_likelihood")
        return {
            "accuracy": float(np.mean([record["is_right"] for record in records])),
            "perplexity": float(np.exp(-nats / len(records))),
            "nats_per_token": -nats / total(records, "num_tokens"),
        }

    def value(self, record: Record) -> float:
        """Give 1 if the answer is the greedy continuation, else 0."""
        return float(record["is_right"])

    def baselines(self, items: Sequence[Item]) -> dict[str, float]:
        """Give the share of the most frequent answer."""
        return {"majority": majority([item.answers[0] for item in items])}


class Perplexity(Task):
    """How probable texts are; long ones are read in windows."""

    title = "Perplexity"
    is_higher_better = False
    takes_demonstrations = False
    reads_windows = True

    def __init__(self, recipe: PerplexityRecipe):
        super().__init__(recipe)
        self.text = Template("task.text", recipe.text)
        self.metric = recipe.metric

    def fill_in(self, number: int, row: Row) -> Item:
        """Give the text as the answer of an empty context."""
        return Item(number, (Prompt("", (texts_in("task.text", [self.text(row)], least=1)[0],)),))

    def answerer(self, model: PromptedModel) -> Answerer:
        """Give what scores the text of each query."""
        return partial(self.read, model, model.score_cache())

    def read(self, model: PromptedModel, cache: ScoreCache, queries: list[Query]) -> Iterator[Record]:
        """Yield how probable each text is, over all its windows."""
        windows = [windows_of(model.subject, query.requests[0]) for query in queries]
        found = iter(cache.score_all([each for own in windows for each in own]))
        for query, own in zip(queries, windows, strict=True):
            yield record_text(query.item, [next(found) for _ in own])

    def scores(self, records: Sequence[Record]) -> dict[str, float]:
        """Give bits per byte, and perplexity per word and per token."""
        return {metric: score_texts(metric, records) for metric in UNITS}

    def value(self, record: Record) -> float:
        """Give the metric of one text."""
        return score_texts(self.metric, [record])

    def metric_of_rows(self, records: Sequence[Record]) -> Callable[[np.ndarray], float]:
        """Give the function that computes the metric, which is no mean over records."""
        return lambda rows: score_texts(self.metric, [records[row] for row in rows])


def record_text(item: Item, scores: Sequence[Score]) -> Record:
    """Say how probable a text is, from the scores of its windows."""
    text = item.answers[0]
    return {
        "log_likelihood": sum(score.total for score in scores),
        "num_tokens": sum(len(score.log_likelihoods) for score in scores),
        "num_words": len(text.split()),
        "num_bytes": len(text.encode()),
    }


def score_texts(metric: str, records: Sequence[Record]) -> float:
    """Give the nats of a unit of some texts, in bits or as a perplexity."""
    nats = -total(records, "log_likelihood") / max(1, total(records, UNITS[metric]))
    return float(nats / np.log(2) if metric == "bits_per_byte" else np.exp(nats))


def total(records: Sequence[Record], name: str) -> float:
    """Sum a number over records."""
    return sum(record[name] for record in records)


def windows_of(subject: Subject, request: Request) -> list[Request]:
    """Divide a text, which is a request's answer, into windows."""
    if subject.member == "decoder":
        return list(rolling(request, subject.max_length))
    frame = len(request.lead) if subject.member == "seq2seq" else len(request.context) + len(request.suffix)
    size = max(1, subject.max_length - frame)
    return [
        replace(
            request,
            answer=request.answer[begin : begin + size],
            words=request.words[begin : begin + size],
        )
        for begin in range(0, len(request.answer), size)
    ]


def rolling(request: Request, size: int) -> Iterator[Request]:
    """Yield windows of `size` tokens; the last one has more before what it scores."""
    ids = request.answer
    size -= len(request.context) - 1
    yield Request(request.context, ids[:size])
    for begin in range(size, len(ids), size):
        end = min(begin + size, len(ids))
        yield Request(ids[end - size - 1 : begin], ids[begin:end])
