"""Prompts: description, demonstrations and the query, as far as the model reads.

What is too long loses its first demonstrations, one after the other, and they are counted. If the row alone
is too long, the beginning of its context is cut off, as lm-evaluation-harness does, and that is counted as
well.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..subject import Subject
from .boundary import Prompt, PromptEncoder
from .items import Item, row_error
from .request import Request


@dataclass(frozen=True)
class Query:
    """An item as a model reads it."""

    item: Item
    prompts: tuple[Prompt, ...]
    """With demonstrations."""
    requests: list[Request]
    """One for each answer."""
    demonstrations: list[Item]
    """Those that precede it."""
    dropped: int = 0
    """Demonstrations that did not fit."""
    cut: int = 0
    """Tokens of the context that did not fit; of several contexts, those of which most did not."""


class Prompter:
    """Turns items into queries to a model.

    Args:
        subject: The model.
        encoder: What cuts its prompts.
        description: Stands before the demonstrations.
        separator: Stands between description, demonstrations and query.
        source: Where the rows stand, for messages.
        reads_windows: Whether texts that are too long are read in windows, rather than cut.
    """

    def __init__(
        self,
        subject: Subject,
        encoder: PromptEncoder,
        *,
        description: str = "",
        separator: str = "\n\n",
        source: str = "data.test",
        reads_windows: bool = False,
    ):
        self.subject, self.encoder, self.source = subject, encoder, source
        self.description, self.separator = description, separator
        self.reads_windows = reads_windows

    def queries(
        self, items: Sequence[Item], demonstrations: Sequence[list[Item]], room: int | None = None
    ) -> list[Query]:
        """Put items behind their demonstrations, as many as fit; `room` is for what the model will write."""
        shown = [list(own) for own in demonstrations]
        queries: list[Query | None] = [None] * len(items)
        waiting = list(range(len(items)))
        while waiting:
            prompts = [self.prompts(items[number], shown[number]) for number in waiting]
            requests = self.encode([items[number] for number in waiting], prompts, room)
            too_long = []
            for number, own, parts in zip(waiting, prompts, requests, strict=True):
                with self.naming(items[number]):
                    excesses = [self.excess(part) for part in parts]
                excess = max(excesses)
                if excess and shown[number]:
                    del shown[number][0]
                    too_long.append(number)
                    continue
                dropped = len(demonstrations[number]) - len(shown[number])
                cuts = zip(parts, excesses, strict=True)
                answers = [self.shortened(request, cut) for part, cut in cuts for request in part]
                if room is not None:
                    answers = [replace(request, answer=()) for request in answers]
                queries[number] = Query(items[number], own, answers, shown[number], dropped, excess)
            waiting = too_long
        return [query for query in queries if query is not None]

    def encode(
        self, items: Sequence[Item], prompts: Sequence[tuple[Prompt, ...]], room: int | None
    ) -> list[list[list[Request]]]:
        """Return the requests of each prompt of each item, all encoded at once, or say which one is wrong.

        Where the model continues, any tokens stand in the room for its answer.
        """
        if room is not None:
            contexts = [[self.encoder.context_of(prompt.context) for prompt in own] for own in prompts]
            return [[[Request(context, (0,) * room)] for context in own] for own in contexts]
        try:
            encoded = iter(self.encoder.encode([prompt for own in prompts for prompt in own]))
        except ValueError:
            for item, own in zip(items, prompts, strict=True):
                with self.naming(item):
                    self.encoder.encode(own)
            raise
        return [[next(encoded) for _ in own] for own in prompts]

    @contextmanager
    def naming(self, item: Item) -> Iterator[None]:
        """Name the row and the file of an item in its errors."""
        try:
            yield
        except ValueError as error:
            raise row_error(self.source, item.number, error) from None

    def excess(self, answers: Sequence[Request]) -> int:
        """Count the tokens that are too many for all answers to a prompt to fit; none are in windows."""
        return 0 if self.reads_windows else max(map(self.subject.excess, answers), default=0)

    def prompts(self, item: Item, demonstrations: Sequence[Item]) -> tuple[Prompt, ...]:
        before = self.before(demonstrations)
        return tuple(replace(prompt, context=before + prompt.context) for prompt in item.prompts)

    def before(self, demonstrations: Sequence[Item]) -> str:
        parts = [self.description] if self.description else []
        parts += [each.demonstration for each in demonstrations]
        return "".join(part + self.separator for part in parts)

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
