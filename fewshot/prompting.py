"""Prompts: description, demonstrations, the row that is asked, as far as the model reads.

What is too long loses its first demonstrations, one after the other, and they are counted. If the row alone
is too long, the beginning of its context is cut off, as lm-evaluation-harness does, and that is counted as
well.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from .boundary import Prompt, PromptEncoder
from .items import Item, row_error
from .request import Request
from .subject import Subject
from .task_recipes import Common, PerplexityRecipe


@dataclass(frozen=True)
class Question:
    """An item as it is put to a model."""

    item: Item
    prompts: tuple[Prompt, ...]
    """With demonstrations."""
    requests: list[Request]
    """One for each answer."""
    demonstrations: list[Item]
    dropped: int = 0
    """Demonstrations that did not fit."""
    cut: int = 0
    """Tokens of the context that did not fit."""


class Prompter:
    """Puts items to a model.

    Args:
        subject: The model.
        encoder: What cuts its prompts.
        task: Says what stands between the parts of a prompt.
        place: Where the rows stand, for messages.
    """

    def __init__(self, subject: Subject, encoder: PromptEncoder, task: Common, place: str = "data.test"):
        self.subject, self.encoder, self.task, self.place = subject, encoder, task, place

    def pose(self, items: Sequence[Item], demonstrations: Sequence[list[Item]]) -> list[Question]:
        """Put items with their demonstrations.

        Raises:
            ValueError: An answer has no tokens, or more than the model reads.
        """
        shown = [list(own) for own in demonstrations]
        questions: list[Question | None] = [None] * len(items)
        waiting = list(range(len(items)))
        while waiting:
            prompts = [self.prompts(items[number], shown[number]) for number in waiting]
            requests = self.encode([items[number] for number in waiting], prompts)
            too_long = []
            for number, own, asked in zip(waiting, prompts, requests, strict=True):
                with self.naming(items[number]):
                    excess = max(map(self.excess, asked), default=0)
                if excess and shown[number]:
                    del shown[number][0]
                    too_long.append(number)
                    continue
                dropped = len(demonstrations[number]) - len(shown[number])
                asked = [self.shortened(request, excess) for request in asked]
                questions[number] = Question(items[number], own, asked, shown[number], dropped, excess)
            waiting = too_long
        return [question for question in questions if question is not None]

    def pose_to_write(
        self, items: Sequence[Item], demonstrations: Sequence[list[Item]], room: int
    ) -> list[Question]:
        """Put items behind which the model writes as many tokens as there is `room` for; see `pose`."""
        questions = []
        for item, own in zip(items, demonstrations, strict=True):
            shown = list(own)
            while True:
                (prompt,) = self.prompts(item, shown)
                with self.naming(item):
                    request = Request(self.encoder.context_of(prompt.context), (0,) * room)
                    excess = self.subject.excess(request)
                if not excess or not shown:
                    break
                del shown[0]
            context = self.shortened(request, excess).context
            asked = [Request(context, ())]
            questions.append(Question(item, (prompt,), asked, shown, len(own) - len(shown), excess))
        return questions

    def encode(self, items: Sequence[Item], prompts: Sequence[tuple[Prompt, ...]]) -> list[list[Request]]:
        """Give the requests of each item, all encoded at once; if that fails, find out which one is wrong."""
        try:
            encoded = iter(self.encoder.encode([prompt for own in prompts for prompt in own]))
        except ValueError:
            for item, own in zip(items, prompts, strict=True):
                with self.naming(item):
                    self.encoder.encode(own)
            raise
        return [[request for _ in own for request in next(encoded)] for own in prompts]

    @contextmanager
    def naming(self, item: Item) -> Iterator[None]:
        """Say of what is wrong with an item in which row of which file it stands."""
        try:
            yield
        except ValueError as error:
            raise row_error(self.place, item.number, error) from None

    def excess(self, request: Request) -> int:
        """Count the tokens that are too many; texts by themselves are read in windows instead."""
        return 0 if isinstance(self.task, PerplexityRecipe) else self.subject.excess(request)

    def prompts(self, item: Item, demonstrations: Sequence[Item]) -> tuple[Prompt, ...]:
        """Write an item behind its demonstrations."""
        before = self.before(demonstrations)
        return tuple(replace(prompt, context=before + prompt.context) for prompt in item.prompts)

    def before(self, demonstrations: Sequence[Item]) -> str:
        """Write what stands before an item."""
        parts = [self.task.description] if self.task.description else []
        parts += [each.demonstration for each in demonstrations]
        return "".join(part + self.task.separator for part in parts)

    def shortened(self, request: Request, excess: int) -> Request:
        """Cut the beginning of a context off, behind what opens it."""
        if not excess:
            return request
        opening = self.encoder.opening
        is_opened = opening and request.context[: len(opening)] == opening
        begin = len(opening) if is_opened else 0
        context = request.context[:begin] + request.context[begin + excess :]
        if not context:
            context = request.context[-1:]
        return replace(request, context=context)
