"""Rows as questions: what is asked about a row, what is right, and how the row looks as a demonstration."""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from .boundary import Prompt
from .row_answers import place_of, texts_in
from .task_recipes import (
    HOLE,
    Choosing,
    ClozeRecipe,
    Common,
    CompletionRecipe,
    GenerationRecipe,
    MinimalPairRecipe,
    MultipleChoiceRecipe,
    PartialEvaluationRecipe,
    PerplexityRecipe,
)
from .templates import MARK, Row, Template


def row_error(place: str, number: int, error: ValueError) -> ValueError:
    """Say of what is wrong with a row where it stands: its file, and its number from 1."""
    return ValueError(f"{place}, row {number + 1:,}: {error}")


@dataclass(frozen=True)
class Item:
    """One row as a question, without demonstrations."""

    number: int
    """Of the row, from 0."""
    prompts: tuple[Prompt, ...]
    """One with all answers, or one for each if their contexts differ."""
    right: int = 0
    """The number of the right answer."""
    references: tuple[str, ...] = ()
    """What may be written, where the model writes."""
    demonstration: str = ""
    """The row with its right answer, as it stands among the demonstrations."""
    label: str = ""
    """Its right answer, for balanced draws."""
    group: str = ""
    match: str = ""
    """Demonstrations are drawn from the items of the same one."""

    @property
    def answers(self) -> tuple[str, ...]:
        """All answers, in their order."""
        return tuple(answer for prompt in self.prompts for answer in prompt.answers)

    def is_right(self, choice: int) -> bool:
        """Tell whether an answer is the right one, or reads just like it."""
        texts = [(prompt.context, answer) for prompt in self.prompts for answer in prompt.answers]
        return texts[choice] == texts[self.right]


class Asking(ABC):
    """Turns rows into items. Abstract: every kind of task asks in its own way."""

    takes_demonstrations = True

    def __init__(self, recipe: Common):
        self.group, self.match = (
            None if source is None else Template(f"task.{name}", source, is_expression=True)
            for name, source in (("group", recipe.group), ("match", recipe.match))
        )

    @property
    def templates(self) -> list[Template]:
        """All templates of the task."""
        return [value for value in vars(self).values() if isinstance(value, Template)]

    def item(self, number: int, row: Row) -> Item:
        """Ask about a row.

        Raises:
            ValueError: The row lacks something, or its right answer is none of the answers.
        """
        item = self.ask(number, row)
        group, match = ("" if each is None else str(each(row)) for each in (self.group, self.match))
        return replace(item, group=group, match=match)

    @abstractmethod
    def ask(self, number: int, row: Row) -> Item:
        """Ask about a row, whatever its group."""


class AskingChoice(Asking):
    """One context, several answers."""

    def __init__(self, recipe: MultipleChoiceRecipe | ClozeRecipe):
        super().__init__(recipe)
        self.recipe = recipe
        self.is_cloze = isinstance(recipe, ClozeRecipe)
        if isinstance(recipe, ClozeRecipe):
            self.context = Template("task.text", recipe.text, hole=HOLE)
            if recipe.text.count(HOLE) != 1:
                raise ValueError(f"task.text = {recipe.text!r} must have one hole {HOLE}")
        else:
            self.context = Template("task.context", recipe.context)
        self.right = Template("task.right", recipe.right, is_expression=True)
        self.choices = (
            Template("task.choices", recipe.choices, is_expression=True)
            if isinstance(recipe.choices, str)
            else None
        )
        twice = [choice for choice, count in Counter(recipe.choices).items() if count > 1]
        if self.choices is None and twice:
            raise ValueError(
                f"task.choices has {twice[0]!r} more than once: give every choice a text of its own"
            )

    @property
    def has_fixed_choices(self) -> bool:
        """Whether all rows have the same choices, so that they are labels."""
        return self.choices is None

    def parts(self, row: Row) -> tuple[str, str, str]:
        """Give what stands before the answer, between the two, and behind it.

        Raises:
            ValueError: The template leaves the hole out, or repeats it.
        """
        text = self.context(row)
        if isinstance(self.recipe, MultipleChoiceRecipe):
            return text, self.recipe.delimiter, self.recipe.suffix
        if text.count(MARK) != 1:
            raise ValueError(
                f"task.text = {self.recipe.text!r} has {text.count(MARK)} holes {HOLE} in this row: "
                "write it so that each row has one"
            )
        before, _, behind = text.partition(MARK)
        context = before.rstrip(" ")
        return context, before[len(context) :], behind

    def ask(self, number: int, row: Row) -> Item:
        """Ask which choice is likeliest."""
        before, delimiter, behind = self.parts(row)
        choices = texts_in("task.choices", self.choices(row) if self.choices else self.recipe.choices)
        right = place_of(self.right(row), choices, self.recipe.labels, are_fixed=self.has_fixed_choices)
        answers = tuple(delimiter + choice for choice in choices)
        return Item(
            number,
            (Prompt(before, answers, behind),),
            right,
            demonstration=before + answers[right] + behind,
            label=str(right) if self.has_fixed_choices else "",
        )

    def require_calibrated(self, row: Row) -> None:
        """Raise a `ValueError` if calibration cannot ask about a row without content."""
        if self.has_fixed_choices:
            for text in self.recipe.content_free:
                self.without_content(text, row, ())

    def without_content(self, text: str, row: Row, answers: tuple[str, ...]) -> Prompt:
        """Ask the same about a row of which all columns say a text without content."""
        try:
            before, _, behind = self.parts(dict.fromkeys(row, text))
        except ValueError as error:
            raise ValueError(
                f"{self.context.name} = {self.context.source!r} cannot be filled in with {text!r} in all "
                "columns, for calibration: set task.content_free to texts that it can, or to []"
            ) from error
        return Prompt(before, answers, behind)


class AskingPartially(Asking):
    """Several contexts, one continuation."""

    def __init__(self, recipe: PartialEvaluationRecipe):
        super().__init__(recipe)
        self.recipe = recipe
        self.contexts = Template("task.contexts", recipe.contexts, is_expression=True)
        self.continuation = Template("task.continuation", recipe.continuation)
        self.right = Template("task.right", recipe.right, is_expression=True)

    def ask(self, number: int, row: Row) -> Item:
        """Ask which context makes the continuation likeliest."""
        contexts = texts_in("task.contexts", self.contexts(row))
        texts = texts_in("task.continuation", [self.continuation(row)], least=1)
        answer = self.recipe.delimiter + texts[0]
        right = place_of(self.right(row), contexts, (), are_fixed=False)
        prompts = tuple(Prompt(context, (answer,)) for context in contexts)
        return Item(number, prompts, right, demonstration=contexts[right] + answer)


class AskingPair(Asking):
    """Two sentences, the good one first."""

    takes_demonstrations = False

    def __init__(self, recipe: MinimalPairRecipe):
        super().__init__(recipe)
        self.good, self.bad = Template("task.good", recipe.good), Template("task.bad", recipe.bad)

    def ask(self, number: int, row: Row) -> Item:
        """Ask which sentence is likelier."""
        sentences = texts_in("task.good and task.bad", [self.good(row), self.bad(row)])
        return Item(number, (Prompt("", tuple(sentences)),))


class AskingCompletion(Asking):
    """One context, one answer, by its likelihood."""

    def __init__(self, recipe: CompletionRecipe):
        super().__init__(recipe)
        self.delimiter = recipe.delimiter
        self.context = Template("task.context", recipe.context)
        self.answer = Template("task.answer", recipe.answer)

    def ask(self, number: int, row: Row) -> Item:
        """Ask how likely the answer is."""
        context = self.context(row)
        answer = self.delimiter + texts_in("task.answer", [self.answer(row)], least=1)[0]
        return Item(number, (Prompt(context, (answer,)),), demonstration=context + answer)


class AskingToWrite(Asking):
    """One context, behind which the model writes."""

    def __init__(self, recipe: GenerationRecipe):
        super().__init__(recipe)
        self.delimiter = recipe.delimiter
        self.context = Template("task.context", recipe.context)
        self.answers = Template("task.answers", recipe.answers, is_expression=recipe.several)

    def ask(self, number: int, row: Row) -> Item:
        """Ask what follows."""
        context, answers = self.context(row), self.answers(row)
        answers = texts_in("task.answers", [answers] if isinstance(answers, str) else answers, least=1)
        demonstration = context + self.delimiter + answers[0]
        return Item(
            number,
            (Prompt(context, ()),),
            references=tuple(answers),
            demonstration=demonstration,
        )


class AskingText(Asking):
    """A text, by its likelihood."""

    takes_demonstrations = False

    def __init__(self, recipe: PerplexityRecipe):
        super().__init__(recipe)
        self.text = Template("task.text", recipe.text)

    def ask(self, number: int, row: Row) -> Item:
        """Ask how likely the text is."""
        return Item(number, (Prompt("", (texts_in("task.text", [self.text(row)], least=1)[0],)),))


ASKING: dict[type[Common], type[Any]] = {
    MultipleChoiceRecipe: AskingChoice,
    ClozeRecipe: AskingChoice,
    PartialEvaluationRecipe: AskingPartially,
    MinimalPairRecipe: AskingPair,
    CompletionRecipe: AskingCompletion,
    GenerationRecipe: AskingToWrite,
    PerplexityRecipe: AskingText,
}
"""Kind of a task -> what asks about its rows."""


def asking_of(recipe: Common) -> Asking:
    """Give what asks about the rows of a task.

    Raises:
        ValueError: A template is none, or answers cannot be compared as they shall be.
    """
    if isinstance(recipe, Choosing) and recipe.way == "calibrated":
        choices = getattr(recipe, "choices", "")
        if isinstance(choices, str) or not recipe.content_free:
            raise ValueError(
                "task.way is calibrated, which needs a list of task.choices, the same for all rows, and "
                "texts in task.content_free: name both, or set task.way=raw"
            )
    return ASKING[type(recipe)](recipe)


def is_choosing(recipe: Common) -> bool:
    """Tell whether several answers of a row are compared."""
    return isinstance(recipe, Choosing | MinimalPairRecipe)
