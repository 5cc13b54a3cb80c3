"""Generation: the model continues a context greedily, and the text is compared with correct ones."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..metrics.answers import exact_match as squad_exact_match
from ..metrics.answers import word_f1
from ..metrics.texts import bleu, score_of_rows, tokenization_for
from ..reporting.blocks import Line, Run
from .boundary import Prompt
from .items import Item
from .prompted_model import PromptedModel
from .prompting import Prompter, Query
from .row_answers import texts_in
from .task import Answerer, Record, Task
from .task_recipes import GenerationRecipe
from .templates import Row, Template
from .writing import Writer

MEANS = ("exact_match", "squad_exact_match", "f1")
"""Metrics that are means over records."""


class Generation(Task):
    """What a model generates after a context."""

    title = "Generation"

    def __init__(self, recipe: GenerationRecipe):
        super().__init__(recipe)
        self.recipe, self.metric = recipe, recipe.metric
        self.context = Template("task.context", recipe.context)
        self.answers = Template("task.answers", recipe.answers, is_expression=recipe.several)

    def fill_in(self, number: int, row: Row) -> Item:
        """Give the context, and the correct answers."""
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
        """Put items behind their demonstrations, with room for what the model generates."""
        return prompter.queries_to_continue(items, demonstrations, self.recipe.max_new_tokens)

    def answerer(self, model: PromptedModel) -> Answerer:
        """Give what continues each query."""
        return partial(self.generate, model.writer(self.recipe.stop, self.recipe.max_new_tokens))

    def generate(self, writer: Writer, queries: list[Query]) -> Iterator[Record]:
        """Yield what follows each query."""
        texts = writer.write([query.requests[0].context for query in queries])
        for query, text in zip(queries, texts, strict=True):
            yield record_text(query.item, text)

    def scores(self, records: Sequence[Record]) -> dict[str, float]:
        """Give the means over records, and BLEU."""
        texts, references = texts_of(records)
        means = {name: float(np.mean([record[name] for record in records])) for name in MEANS}
        return {**means, "bleu": bleu(texts, references, tokenization_for(references))}

    def value(self, record: Record) -> float:
        """Give the metric of one text."""
        return record[self.metric]

    def metric_of_rows(self, records: Sequence[Record]) -> Callable[[np.ndarray], float]:
        """Give the function that computes the metric; BLEU is no mean over records."""
        if self.metric in MEANS:
            return super().metric_of_rows(records)
        texts, references = texts_of(records)
        return score_of_rows("bleu", texts, references, tokenize=tokenization_for(references))

    def baselines(self, items: Sequence[Item]) -> dict[str, float]:
        """Give the metric of the most frequent answer."""
        usual = Counter(item.references[0] for item in items).most_common(1)[0][0]
        return {"majority": self.scores([record_text(item, usual) for item in items])[self.metric]}

    def show(self, record: Mapping[str, Any]) -> Iterator[Line]:
        """Lay out the generated text beside the first correct one."""
        role = "right" if record["exact_match"] else "wrong"
        yield Line("prediction", [Run(record["written"].strip() or "nothing", role)])
        yield Line("reference", [Run(record["references"][0].strip(), "truth")])


def record_text(item: Item, text: str) -> Record:
    """Compare a generated text with the nearest correct one: as it is, and as SQuAD does."""
    return {
        "written": text,
        "references": list(item.references),
        "exact_match": float(text.strip() in [answer.strip() for answer in item.references]),
        "squad_exact_match": squad_exact_match(text, item.references),
        "f1": word_f1(text, item.references),
    }


def texts_of(records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Give the generated texts, and the first correct answer to each."""
    return [record["written"] for record in records], [record["references"][0] for record in records]
