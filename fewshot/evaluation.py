"""One model, all its conditions: K demonstrations, a seed, an order; and the records of each.

Every condition scores all its requests at once, so that those with a common beginning are read together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

import numpy as np

from ..data.tokenizers.special_tokens import share_of_unknown, tell_of_unknown
from .prompts.boundary import SpecialTokenPolicy
from .prompts.items import Demonstrations
from .prompts.prompted_model import PromptedModel
from .prompts.prompting import Prompter, Query
from .recipe import PromptingRecipe
from .rows import Items
from .subject import Subject
from .tasks.task import Record


@dataclass(frozen=True)
class Condition:
    """One way to prompt with all items."""

    num_fewshot: int
    """Demonstrations of each prompt, K."""
    seed: int
    """Which ones are drawn."""
    order: int
    """Number of their order."""


@dataclass(frozen=True)
class Outcome:
    """What a model predicts in one condition."""

    condition: Condition
    records: list[Record | None]
    """One for each item, in their order; none where there should be demonstrations, and not one fitted."""
    dropped: int
    """Demonstrations that did not fit, over all items."""
    cut: int
    """Items whose own context did not fit."""
    prompt_hash: str
    """SHA-256 of all prompts and answers."""

    @property
    def counted(self) -> list[Record]:
        """The records that there are: a row without a demonstration is none of K > 0."""
        return [record for record in self.records if record is not None]


class Evaluation:
    """Evaluates one model."""

    def __init__(self, items: Items, subject: Subject, prompting: PromptingRecipe):
        self.items, self.subject, self.conditions = items, subject, conditions_of(prompting)
        self.prompter = prompter_of(items, subject, prompting.policy)
        self.drawer = drawer_of(items, prompting)
        self.answer = items.task.answerer(PromptedModel(self.prompter, prompting, items.columns))

    def outcomes(self) -> Iterator[Outcome]:
        """Yield what is predicted in each condition."""
        for number, condition in enumerate(self.conditions):
            drawn = [
                self.drawer.draw(item, condition.num_fewshot, condition.seed, condition.order)
                for item in self.items.test
            ]
            queries = self.items.task.queries(self.prompter, self.items.test, drawn)
            if not number:
                tell_of_unknown_tokens(queries, self.subject)
            counted = [query for query in queries if query.demonstrations or not condition.num_fewshot]
            records = {
                query.item.number: describe(query, condition) | own
                for query, own in zip(counted, self.answer(counted), strict=True)
            }
            texts = repr([[(p.context, p.answers, p.suffix) for p in query.prompts] for query in queries])
            yield Outcome(
                condition,
                [records.get(query.item.number) for query in queries],
                sum(query.dropped for query in queries),
                sum(query.cut > 0 for query in queries),
                sha256(texts.encode()).hexdigest(),
            )


def prompter_of(items: Items, subject: Subject, policy: SpecialTokenPolicy) -> Prompter:
    """Return what turns items into queries to a model."""
    task = items.task
    return Prompter(
        subject,
        subject.prompts(policy),
        description=task.recipe.description,
        separator=task.recipe.separator,
        source=items.source,
        reads_windows=task.reads_windows,
    )


def drawer_of(items: Items, prompting: PromptingRecipe) -> Demonstrations:
    """Return what draws the demonstrations of an item."""
    return Demonstrations(
        items.demonstrations,
        prompting.draw,
        balanced=prompting.balanced,
        are_test=items.are_one_split,
        source=items.source,
    )


def tell_of_unknown_tokens(queries: Sequence[Query], subject: Subject) -> None:
    """Say which share of the tokens of prompts and answers is unknown, if any is; warn of a large one."""
    parts = ((each.context, each.answer, each.suffix) for query in queries for each in query.requests)
    ids = np.fromiter(chain.from_iterable(chain.from_iterable(parts)), np.int64)
    share = share_of_unknown([ids], subject.tokenizer)
    if share > 0:
        tell_of_unknown(share, f"the prompts for {subject.checkpoint.name}")


def describe(query: Query, condition: Condition) -> Record:
    """Record what the model has read."""
    return {
        "row": query.item.number,
        "shots": condition.num_fewshot,
        "seed": condition.seed,
        "order": condition.order,
        "group": query.item.group,
        "prompt": query.prompts[0].context if len(query.prompts) == 1 else
        [prompt.context for prompt in query.prompts],
        "demonstrations": [each.number for each in query.demonstrations],
        "dropped": query.dropped,
        "cut": query.cut,
    }  # fmt: skip


def conditions_of(prompting: PromptingRecipe) -> list[Condition]:
    """List all conditions; without demonstrations, seeds and orders make no difference, nor orders of one."""
    found = []
    for num_fewshot in sorted(set(prompting.num_fewshot)):
        seeds = prompting.seeds if num_fewshot else prompting.seeds[:1]
        orders = prompting.orders if num_fewshot > 1 else 1
        found += [Condition(num_fewshot, seed, order) for seed in seeds for order in range(orders)]
    return found
