"""Tasks about one text: how likely it is, or what the model writes.

Completion and perplexity are scored by the log-likelihood of a text. In generation the model continues a
context greedily, and the text is compared with correct ones.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from ...data.files.template_program import Row
from ...training.metrics.answers import exact_match as squad_exact_match
from ...training.metrics.answers import word_f1
from ...training.metrics.texts import bleu_of_rows, tokenization_for
from ..prompts.boundary import NEXT_SENTINEL, Prompt
from ..prompts.items import Item
from ..prompts.prompted_model import PromptedModel
from ..prompts.prompting import Prompter, Query
from ..prompts.request import Request, Score
from ..scoring.score_cache import AnswerCache, ScoreCache
from ..scoring.writing import Writer
from ..subject import Subject
from .choices import texts_in
from .recipes import Common, TemplateFields
from .task import Answerer, Record, RowScore, Task, majority

UNITS = {
    "bits_per_byte": "num_bytes",
    "perplexity_per_word": "num_words",
    "perplexity_per_token": "num_tokens",
}
"""What the log-likelihood of texts is divided by, for each metric of perplexity."""


@dataclass(frozen=True, kw_only=True)
class CompletionRecipe(Common):
    """Is the answer the greedy continuation? Computed from logits, without generation, as for LAMBADA."""

    TEMPLATES = TemplateFields(("context", "answer"))

    kind: Literal["completion"]
    context: str
    """Template of the context."""
    answer: str
    """Template of the answer."""
    delimiter: str = " "
    """Text between context and answer."""

    def build(self) -> "Completion":
        return Completion(self)


class Completion(Task):
    """Whether the answer is the greedy continuation of a context."""

    title = "Completion"
    scored = (
        "an answer is correct if each of its tokens is likelier than every other one, given those before it; "
        "ties are wrong"
    )
    metric = "accuracy"

    def fill_in(self, number: int, row: Row) -> Item:
        context = self.templates["context"](row)
        texts = texts_in("task.answer", [self.templates["answer"](row)], least=1)
        answer = self.recipe.delimiter + texts[0]
        return Item(number, (Prompt(context, (answer,)),), demonstration=context + answer)

    def answerer(self, model: PromptedModel) -> Answerer:
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
        nats = total(records, "log_likelihood")
        return {
            "accuracy": float(np.mean([record["is_right"] for record in records])),
            "perplexity": float(np.exp(-nats / len(records))),
            "nats_per_token": -nats / total(records, "num_tokens"),
        }

    def value(self, record: Record) -> float:
        return float(record["is_right"])

    def baselines(self, items: Sequence[Item]) -> dict[str, list[Any]]:
        return {"majority": majority([item.answers[0] for item in items])}


@dataclass(frozen=True, kw_only=True)
class PerplexityRecipe(Common):
    """How probable are texts?"""

    TEMPLATES = TemplateFields(("text",))

    kind: Literal["perplexity"]
    text: str = "{{ text }}"
    """Template of a text."""
    metric: Literal["bits_per_byte", "perplexity_per_word", "perplexity_per_token"] = "bits_per_byte"
    """The main metric; all are reported. Those per byte and per word compare models with different
    tokenizers."""

    def build(self) -> "Perplexity":
        return Perplexity(self)


class Perplexity(Task):
    """How probable texts are; long ones are read in windows."""

    title = "Perplexity"
    scored = "log-likelihoods of texts at temperature 1; a long text is read in windows"
    is_higher_better = False
    takes_demonstrations = False
    reads_windows = True

    def __init__(self, recipe: PerplexityRecipe):
        super().__init__(recipe)
        self.text = self.templates["text"]
        self.metric = recipe.metric

    def fill_in(self, number: int, row: Row) -> Item:
        return Item(number, (Prompt("", (texts_in("task.text", [self.text(row)], least=1)[0],)),))

    def answerer(self, model: PromptedModel) -> Answerer:
        return partial(self.read, model, model.score_cache())

    def read(self, model: PromptedModel, cache: ScoreCache, queries: list[Query]) -> Iterator[Record]:
        """Yield how probable each text is, over all its windows."""
        windows = [windows_of(model.subject, query.requests[0]) for query in queries]
        found = iter(cache.score_all([each for own in windows for each in own]))
        for query, own in zip(queries, windows, strict=True):
            yield record_text(query.item, [next(found) for _ in own])

    def scores(self, records: Sequence[Record]) -> dict[str, float]:
        return {metric: score_texts(metric, records) for metric in UNITS}

    def value(self, record: Record) -> float:
        return score_texts(self.metric, [record])

    def metric_of_rows(self, records: Sequence[Record]) -> RowScore:
        # which is no mean over records
        return lambda rows: score_texts(self.metric, [records[row] for row in rows])


def record_text(item: Item, scores: Sequence[Score]) -> Record:
    """Record how probable a text is, from the scores of its windows."""
    text = item.answers[0]
    return {
        "log_likelihood": sum(score.total for score in scores),
        "num_tokens": sum(len(score.log_likelihoods) for score in scores),
        "num_words": len(text.split()),
        "num_bytes": len(text.encode()),
    }


def score_texts(metric: str, records: Sequence[Record]) -> float:
    """Return the nats of a unit of some texts, in bits or as a perplexity."""
    nats = -total(records, "log_likelihood") / max(1, total(records, UNITS[metric]))
    return float(nats / np.log(2) if metric == "bits_per_byte" else np.exp(nats))


def total(records: Sequence[Record], name: str) -> float:
    return sum(record[name] for record in records)


def windows_of(subject: Subject, request: Request) -> list[Request]:
    """Divide a text, which is a request's answer, into windows."""
    if subject.member == "decoder":
        return list(rolling(request, subject.checkpoint.max_length))
    frame = len(request.lead) if subject.member == "seq2seq" else len(request.context) + len(request.suffix)
    size = max(1, subject.checkpoint.max_length - frame)
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


MEANS = ("exact_match", "squad_exact_match", "f1")
"""Metrics that are means over records."""


@dataclass(frozen=True, kw_only=True)
class GenerationRecipe(Common):
    """What does the model generate after a context?"""

    TEMPLATES = TemplateFields(("context", "answers"), lists={"answers": "several"})

    kind: Literal["generation"]
    context: str
    """Template of the context."""
    answers: str
    """Template of the correct answer, or expression of a list of them if `several`."""
    several: bool = False
    """Whether any of several answers is correct."""
    delimiter: str = " "
    """Text between context and answer."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ("\n",)
    """Stop strings, in addition to the end-of-sequence token."""
    max_new_tokens: PositiveInt = 32
    """Maximum number of tokens in an answer."""
    metric: Literal["exact_match", "squad_exact_match", "f1", "bleu"] = "exact_match"
    """The main metric; all are reported. `exact_match` compares the texts without spaces at both ends.
    `squad_exact_match` and `f1` also ignore case, punctuation and articles, as SQuAD does (Rajpurkar et al.,
    2016, section 6.1): use them for answers in words, not for numbers, letters and signs."""

    def build(self) -> "Generation":
        return Generation(self)


class Generation(Task):
    """What a model generates after a context."""

    title = "Generation"
    scored = "greedy decoding, no sampling"

    def __init__(self, recipe: GenerationRecipe):
        super().__init__(recipe)
        self.recipe, self.metric = recipe, recipe.metric
        self.context, self.answers = self.templates["context"], self.templates["answers"]

    def fill_in(self, number: int, row: Row) -> Item:
        context, answers = self.context(row), self.answers(row)
        answers = texts_in("task.answers", [answers] if isinstance(answers, str) else answers, least=1)
        demonstration = context + self.recipe.delimiter + answers[0]
        return Item(
            number,
            (Prompt(context, ()),),
            references=tuple(answers),
            demonstration=demonstration,
        )

    def queries(
        self, prompter: Prompter, items: Sequence[Item], demonstrations: Sequence[list[Item]]
    ) -> list[Query]:
        return prompter.queries(items, demonstrations, self.recipe.max_new_tokens)

    def answerer(self, model: PromptedModel) -> Answerer:
        how, stop = model.prompting, self.recipe.stop
        if how.sentinel:
            stop = (*stop, NEXT_SENTINEL)
        lead, most = model.prompter.encoder.lead, self.recipe.max_new_tokens
        writer = Writer(model.subject, AnswerCache(), stop, most, how.tokens_at_once, lead)
        return partial(self.generate, writer)

    def generate(self, writer: Writer, queries: list[Query]) -> Iterator[Record]:
        texts = writer.write([query.requests[0].context for query in queries])
        for query, text in zip(queries, texts, strict=True):
            yield record_written(query.item, text)

    def scores(self, records: Sequence[Record]) -> dict[str, float]:
        means = {name: float(np.mean([record[name] for record in records])) for name in MEANS}
        return {**means, "bleu": bleu_of(records)(np.arange(len(records)))}

    def value(self, record: Record) -> float:
        return record[self.metric]

    def metric_of_rows(self, records: Sequence[Record]) -> RowScore:
        # BLEU is no mean over records
        if self.metric in MEANS:
            return super().metric_of_rows(records)
        return bleu_of(records)

    def baselines(self, items: Sequence[Item]) -> dict[str, list[Any]]:
        usual = Counter(item.references[0] for item in items).most_common(1)[0][0]
        return {"majority": [record_written(item, usual) for item in items]}

    def score_of_baseline(self, worth: Sequence[Any]) -> RowScore:
        return self.metric_of_rows(worth)


def record_written(item: Item, text: str) -> Record:
    """Compare a generated text with the nearest correct one: as it is, and as SQuAD does."""
    return {
        "written": text,
        "references": list(item.references),
        "exact_match": float(text.strip() in [answer.strip() for answer in item.references]),
        "squad_exact_match": squad_exact_match(text, item.references),
        "f1": word_f1(text, item.references),
    }


def bleu_of(records: Sequence[Record]) -> RowScore:
    """Return what computes BLEU of some records, against all correct answers."""
    references = [record["references"] for record in records]
    tokenize = tokenization_for([*chain.from_iterable(references)])
    return bleu_of_rows([record["written"] for record in records], references, tokenize)
