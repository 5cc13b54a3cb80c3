"""One model, all its conditions: K demonstrations, a seed, an order; and what it answers in each.

Every condition asks for all its scores at once, so that those with a common beginning are read together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from .boundary import NEXT_SENTINEL, Prompt
from .demonstrations import Demonstrations
from .items import AskingChoice, is_choosing
from .judging import Record, record_choice, record_completion, record_text, record_writing
from .kept_scores import KeptAnswers, KeptScores, name_of_answers
from .prompting import Prompter, Question
from .recipe import FewShotRecipe
from .request import Request, Score
from .rows import Items
from .subject import Subject, hash_settings
from .task_recipes import Choosing, CompletionRecipe, GenerationRecipe
from .windows import windows_of
from .writing import Writer


@dataclass(frozen=True)
class Condition:
    """One way to ask all items."""

    shots: int
    seed: int
    order: int


@dataclass(frozen=True)
class Outcome:
    """What a model answers in one condition."""

    condition: Condition
    records: list[Record | None]
    """One for each item, in their order; none where demonstrations were asked for, and not one fitted."""
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
    """Asks one model.

    Args:
        recipe: What is asked, and how.
        items: The rows.
        subject: The model.
        weights: Hash of its weights.
        folder: Where answers are kept.

    Raises:
        ValueError: The model cannot be asked so.
    """

    def __init__(self, recipe: FewShotRecipe, items: Items, subject: Subject, weights: str, folder: Path):
        asking = recipe.asking
        self.recipe, self.task, self.items, self.subject = recipe, recipe.task, items, subject
        self.encoder = subject.prompts(asking.policy)
        self.prompter = Prompter(subject, self.encoder, recipe.task, items.place)
        self.drawer = Demonstrations(
            items.demonstrations, asking, are_test=items.are_one_split, place=items.place
        )
        hiding = asking.pseudo_log_likelihood if subject.member == "encoder" else ""
        settings = hash_settings(subject.model)
        name = name_of_answers(
            weights, settings, subject.member, subject.precision, hiding, asking.one_by_one
        )
        if isinstance(recipe.task, GenerationRecipe):
            kept = KeptAnswers(folder / f"written-{name}")
            own = recipe.task
            stop = (*own.stop, NEXT_SENTINEL) if asking.sentinel else own.stop
            lead = self.encoder.lead
            self.writer = Writer(subject, kept, stop, own.max_new_tokens, asking.tokens_at_once, lead)
        else:
            scorer = subject.scorer(
                asking.tokens_at_once, asking.pseudo_log_likelihood, one_by_one=asking.one_by_one
            )
            self.scores = KeptScores(scorer, folder / name)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield what is answered in each condition."""
        for condition in conditions_of(self.recipe):
            drawn = [
                self.drawer.draw(item, condition.shots, condition.seed, condition.order)
                for item in self.items.test
            ]
            questions = self.pose(drawn)
            asked = [question for question in questions if question.demonstrations or not condition.shots]
            records = {
                question.item.number: describe(question, condition) | own
                for question, own in zip(asked, self.answer(asked), strict=True)
            }
            texts = repr([[(p.context, p.answers, p.suffix) for p in q.prompts] for q in questions])
            yield Outcome(
                condition,
                [records.get(question.item.number) for question in questions],
                sum(question.dropped for question in questions),
                sum(question.cut > 0 for question in questions),
                sha256(texts.encode()).hexdigest(),
            )

    def pose(self, drawn: list[Any]) -> list[Question]:
        """Put all items to the model."""
        if isinstance(self.task, GenerationRecipe):
            return self.prompter.pose_to_write(self.items.test, drawn, self.task.max_new_tokens)
        return self.prompter.pose(self.items.test, drawn)

    def answer(self, questions: list[Question]) -> Iterator[Record]:
        """Yield the answer to each question."""
        if isinstance(self.task, GenerationRecipe):
            texts = self.writer.write([question.requests[0].context for question in questions])
            for question, text in zip(questions, texts, strict=True):
                yield record_writing(question.item, text)
        elif is_choosing(self.task):
            yield from self.choose(questions)
        elif isinstance(self.task, CompletionRecipe):
            found = self.scores.score_all([question.requests[0] for question in questions])
            for question, score in zip(questions, found, strict=True):
                yield record_completion(score) | {"answers": self.tell(question, [score])}
        else:
            windows = [windows_of(self.subject, question.requests[0]) for question in questions]
            found = iter(self.scores.score_all([each for own in windows for each in own]))
            for question, own in zip(questions, windows, strict=True):
                yield record_text(question.item, [next(found) for _ in own])

    def choose(self, questions: list[Question]) -> Iterator[Record]:
        """Yield which answer is chosen for each question."""
        unconditional = self.unconditional(questions)
        content_free = self.content_free(questions)
        parts = [question.requests for question in questions]
        parts += list(unconditional) + [own for each in content_free for own in each]
        found = iter(self.scores.score_all([request for own in parts for request in own]))
        taken: list[list[Score]] = [[next(found) for _ in own] for own in parts]
        count = len(questions)
        for number, question in enumerate(questions):
            alone = taken[count + number] if unconditional else None
            begin = count + len(unconditional) + number * (len(content_free[0]) if content_free else 0)
            without = taken[begin : begin + len(content_free[0])] if content_free else []
            record = record_choice(self.task, question, taken[number], alone, without)
            yield record | {"answers": self.tell(question, taken[number])}

    def unconditional(self, questions: list[Question]) -> list[list[Request]]:
        """Ask for the answers of each question without the question, where that makes sense."""
        if not isinstance(self.task, Choosing):
            return []
        context = self.task.unconditional
        prompts = [
            Prompt(context, question.item.answers, question.prompts[0].suffix) for question in questions
        ]
        return self.encode(prompts)

    def content_free(self, questions: list[Question]) -> list[list[list[Request]]]:
        """Ask for fixed choices behind the same demonstrations, and a row without content."""
        asking = self.items.asking
        if not (isinstance(asking, AskingChoice) and asking.has_fixed_choices):
            return []
        texts = asking.recipe.content_free
        if not texts:
            return []
        prompts = []
        for question in questions:
            before = self.prompter.before(question.demonstrations)
            for text in texts:
                empty = asking.without_content(text, self.items.columns, question.item.answers)
                prompts.append(Prompt(before + empty.context, empty.answers, empty.suffix))
        encoded = self.encode(prompts)
        return [encoded[begin : begin + len(texts)] for begin in range(0, len(encoded), len(texts))]

    def encode(self, prompts: list[Prompt]) -> list[list[Request]]:
        """Give the requests of prompts of which many are equal, cut where they are too long."""
        different = list(dict.fromkeys(prompts))
        requests = [
            [self.prompter.shortened(each, max(map(self.prompter.excess, own))) for each in own]
            for own in self.encoder.encode(different)
        ]
        found = dict(zip(different, requests, strict=True))
        return [found[prompt] for prompt in prompts]

    def tell(self, question: Question, scores: Sequence[Score]) -> list[dict[str, Any]]:
        """Say of each answer which tokens were scored, and how."""
        cut = self.subject.tokenizer.convert_ids_to_tokens
        return [
            {
                "text": text,
                "tokens": cut(list(request.answer)),
                "log_likelihoods": list(score.log_likelihoods),
            }
            for text, request, score in zip(question.item.answers, question.requests, scores, strict=True)
        ]


def describe(question: Question, condition: Condition) -> Record:
    """Say what was asked."""
    return {
        "row": question.item.number,
        "shots": condition.shots,
        "seed": condition.seed,
        "order": condition.order,
        "group": question.item.group,
        "prompt": question.prompts[0].context if len(question.prompts) == 1 else
        [prompt.context for prompt in question.prompts],
        "demonstrations": [each.number for each in question.demonstrations],
        "dropped": question.dropped,
        "cut": question.cut,
    }  # fmt: skip


def conditions_of(recipe: FewShotRecipe) -> list[Condition]:
    """List all conditions; without demonstrations, seeds and orders make no difference, nor do orders of
    one.
    """
    asking = recipe.asking
    found = []
    for shots in sorted(set(asking.shots)):
        seeds = asking.seeds if shots else asking.seeds[:1]
        orders = asking.orders if shots > 1 else 1
        found += [Condition(shots, seed, order) for seed in seeds for order in range(orders)]
    return found
