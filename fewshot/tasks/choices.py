"""Kinds of tasks whose answers are compared: multiple choice, cloze, partial evaluation, minimal pairs."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...data.files.columns import plain, tell_of_no_first
from ...data.files.template_program import Row, is_missing
from ..prompts.boundary import Prompt
from ..prompts.items import Item
from ..prompts.prompted_model import PromptedModel
from ..prompts.prompting import Query
from ..prompts.templates import MARK
from .comparison import Comparison
from .recipes import HOLE, OF_CHOICES, Choosing, Common, TemplateFields
from .task import majority


class TargetedComparison(Comparison):
    """A comparison whose recipe says which answer is correct. Abstract: answers or contexts differ."""

    has_fixed_choices: bool
    """Whether all rows have the same choices, so that they are labels."""

    def __init__(self, recipe: Choosing):
        super().__init__(recipe)
        self.recipe: Any = recipe
        self.normalization = recipe.normalization
        self.target = self.templates["target"]
        if recipe.normalization == "calibrated" and not (self.has_fixed_choices and recipe.content_free):
            raise ValueError(
                "task.normalization is calibrated, which needs a fixed list of task.choices and texts in "
                "task.content_free: set both, or set task.normalization=none"
            )

    def without_query(self, query: Query) -> list[Prompt]:
        context = self.recipe.unconditional
        return [Prompt(context, query.item.answers, query.prompts[0].suffix)]

    def tell_of_targets(self, source: str, items: Sequence[Item], row: Row) -> None:
        if isinstance(self.target(row), int):
            numbers, sizes = [item.target for item in items], [len(item.answers) for item in items]
            remedy = "write task.target: (TARGET) - 1"
            tell_of_no_first(numbers, sizes, f"{source}: task.target = {self.target.source!r}", remedy)

    def baselines(self, items: Sequence[Item]) -> dict[str, list[Any]]:
        return super().baselines(items) | {"majority": majority([item.target for item in items])}


class Choices(TargetedComparison):
    """One context, several answers. Abstract: they follow the context, or fill a hole in it."""

    def __init__(self, recipe: "MultipleChoiceRecipe | ClozeRecipe"):
        self.has_fixed_choices = not isinstance(recipe.choices, str)
        super().__init__(recipe)
        self.context = self.templates[recipe.TEMPLATES.texts[0]]
        self.choices = self.templates.get("choices")
        twice = [choice for choice, count in Counter(recipe.choices).items() if count > 1]
        if self.choices is None and twice:
            raise ValueError(
                f"task.choices has {twice[0]!r} more than once: give every choice a text of its own"
            )

    @abstractmethod
    def parts(self, row: Row) -> tuple[str, str, str]:
        """Return what stands before the answer, between the two, and behind it."""

    def fill_in(self, number: int, row: Row) -> Item:
        before, delimiter, behind = self.parts(row)
        choices = texts_in("task.choices", self.choices(row) if self.choices else self.recipe.choices)
        target = place_of(self.target(row), choices, self.recipe.labels, are_fixed=self.has_fixed_choices)
        answers = tuple(delimiter + choice for choice in choices)
        return Item(
            number,
            (Prompt(before, answers, behind),),
            target,
            demonstration=before + answers[target] + behind,
            label=str(target) if self.has_fixed_choices else "",
        )

    def require_calibrated(self, row: Row) -> None:
        if self.has_fixed_choices:
            for text in self.recipe.content_free:
                self.empty_prompt(text, row, ())

    def without_content(self, query: Query, model: PromptedModel) -> list[Prompt]:
        # fixed choices stand behind the same demonstrations, and a row without content
        if not self.has_fixed_choices:
            return []
        before = model.prompter.before(query.demonstrations)
        empty = [
            self.empty_prompt(text, model.columns, query.item.answers) for text in self.recipe.content_free
        ]
        return [Prompt(before + each.context, each.answers, each.suffix) for each in empty]

    def empty_prompt(self, text: str, row: Row, answers: tuple[str, ...]) -> Prompt:
        """Fill in a row of which all columns say a text without content."""
        try:
            before, _, behind = self.parts(dict.fromkeys(row, text))
        except ValueError as error:
            raise ValueError(
                f"{self.context.name} = {self.context.source!r} cannot be rendered with {text!r} in all "
                f"columns, for calibration: set task.content_free to texts for which it can, or to []"
            ) from error
        return Prompt(before, answers, behind)


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceRecipe(Choosing):
    """Which of several answers follows a context; with fixed choices, classification."""

    TEMPLATES = TemplateFields(("context",), OF_CHOICES)

    kind: Literal["multiple_choice"]
    context: str
    """Template of the context."""
    choices: str | tuple[str, ...]
    """Expression of a list; or the list itself, the same for all rows."""
    labels: tuple[str | int, ...] = ()
    """Names of the choices in `target`, in the same order."""
    delimiter: str = " "
    """Text between context and answer."""
    suffix: str = ""
    """Text after every choice: encoders read it, and demonstrations contain it."""

    def build(self) -> "MultipleChoice":
        return MultipleChoice(self)


class MultipleChoice(Choices):
    """Which of several answers follows a context."""

    title = "Multiple choice"

    def parts(self, row: Row) -> tuple[str, str, str]:
        return self.context(row), self.recipe.delimiter, self.recipe.suffix


@dataclass(frozen=True, kw_only=True)
class ClozeRecipe(Choosing):
    """Which of several verbalizers fills the blank of a cloze (Schick and Schuetze, 2021)."""

    TEMPLATES = TemplateFields(("text",), OF_CHOICES, hole=HOLE)

    kind: Literal["cloze"]
    text: str
    """Template with one `___`. A space before it belongs to the answer. Only encoders read the text after
    it."""
    choices: str | tuple[str, ...]
    """Expression of a list; or the list itself, the same for all rows."""
    labels: tuple[str | int, ...] = ()
    """Names of the choices in `target`, in the same order."""

    def build(self) -> "Cloze":
        return Cloze(self)


class Cloze(Choices):
    """Which of several verbalizers fills a hole in a text."""

    title = "Cloze"

    def __init__(self, recipe: ClozeRecipe):
        super().__init__(recipe)
        if recipe.text.count(HOLE) != 1:
            raise ValueError(f"task.text = {recipe.text!r} must have one blank {HOLE}")
        behind = recipe.text.partition(HOLE)[2]
        self.is_same_behind = "{" not in behind

    def without_query(self, query: Query) -> list[Prompt]:
        # also without what stands behind the hole if that is of the row
        prompts = super().without_query(query)
        return prompts if self.is_same_behind else [replace(prompt, suffix="") for prompt in prompts]

    def parts(self, row: Row) -> tuple[str, str, str]:
        # the text before the hole, its last spaces, and the text behind the hole
        text = self.context(row)
        if text.count(MARK) != 1:
            raise ValueError(
                f"task.text = {self.context.source!r} has {text.count(MARK)} blanks {HOLE} in this row: "
                f"change it so that each row has one"
            )
        before, _, behind = text.partition(MARK)
        context = before.rstrip(" ")
        return context, before[len(context) :], behind


@dataclass(frozen=True, kw_only=True)
class PartialEvaluationRecipe(Choosing):
    """After which of several contexts a continuation is likeliest (Trinh and Le, 2018)."""

    TEMPLATES = TemplateFields(("continuation",), OF_CHOICES)

    kind: Literal["partial_evaluation"]
    contexts: str
    """Expression of a list."""
    continuation: str
    """Template of the common continuation."""
    delimiter: str = " "
    """Text between context and continuation."""

    def build(self) -> "PartialEvaluation":
        return PartialEvaluation(self)


class PartialEvaluation(TargetedComparison):
    """Behind which of several contexts one continuation is likeliest."""

    title = "Partial evaluation"
    has_fixed_choices = False

    def fill_in(self, number: int, row: Row) -> Item:
        contexts = texts_in("task.contexts", self.templates["contexts"](row))
        texts = texts_in("task.continuation", [self.templates["continuation"](row)], least=1)
        answer = self.recipe.delimiter + texts[0]
        target = place_of(self.target(row), contexts, (), are_fixed=False)
        prompts = tuple(Prompt(context, (answer,)) for context in contexts)
        return Item(number, prompts, target, demonstration=contexts[target] + answer)


@dataclass(frozen=True, kw_only=True)
class MinimalPairRecipe(Common):
    """Is the grammatical sentence of a minimal pair likelier (Warstadt et al., 2020)?"""

    TEMPLATES = TemplateFields(("good", "bad"))

    kind: Literal["minimal_pair"]
    good: str
    """Template of the grammatical sentence."""
    bad: str
    """Template of the ungrammatical sentence."""

    def build(self) -> "MinimalPair":
        return MinimalPair(self)


class MinimalPair(Comparison):
    """Whether the good one of two sentences is strictly likelier, as BLiMP requires."""

    title = "Minimal pairs"
    takes_demonstrations = False
    normalization = "none"

    def fill_in(self, number: int, row: Row) -> Item:
        sentences = texts_in(
            "task.good and task.bad", [self.templates[each](row) for each in ("good", "bad")]
        )
        return Item(number, (Prompt("", tuple(sentences)),))

    def is_correct(self, item: Item, choice: int) -> bool:
        # a bad sentence that reads like the good one is not
        return choice == item.target


def texts_in(name: str, values: Any, least: int = 2) -> list[str]:
    """Return a list of texts that all say something."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) < least:
        raise ValueError(f"{name} gives {values!r:.60}, not a list of {least} or more: correct the row")
    texts = [value if isinstance(value, str) else str(value) for value in values]
    for number, text in enumerate(texts):
        if is_missing(values[number]) or not text.strip():
            raise ValueError(
                f"{name} gives the empty answer {values[number]!r} (number {number}): fill it in, or "
                f"exclude the row with data.where"
            )
    return texts


def place_of(
    target: Any, choices: Sequence[str], labels: Sequence[str | int], *, are_fixed: bool = True
) -> int:
    """Find the number of the correct choice: by its label, its text, or its number.

    A whole number counts the choices of a row. Fixed choices may be called by it, if that is not in doubt.
    White space around a label is no part of it.

    >>> place_of("Negative ", ["bad", "good"], ["Negative", "Positive"]), place_of(1, ["a", "b"], [])
    (0, 1)
    """
    if labels and len(labels) != len(choices):
        raise ValueError(
            f"task.labels names {len(labels)} labels for {len(choices)} choices: give one label for each "
            f"choice"
        )
    if is_missing(target):
        raise ValueError(
            f"task.target gives {target}: give the correct answer, or exclude the row with data.where"
        )
    names, name = [str(label) for label in labels] or list(choices), str(target)
    if name not in names:
        names, name = list(map(plain, names)), plain(name)
    by_name = names.index(name) if name in names else None
    by_number = int(target) if not labels and name.isdecimal() and int(target) < len(choices) else None
    if isinstance(target, int) and not labels:
        if len({by_name, by_number} - {None}) > 1:
            remedy = (
                "set task.labels to the names of the choices in task.target, in the same order"
                if are_fixed
                else "for the text, write task.target: (TARGET) | string, for the index (CHOICES[TARGET]) "
                "| string"
            )
            raise ValueError(
                f"task.target gives {target}, which is the index of one choice and the text of another: "
                f"{remedy}"
            )
        if not are_fixed and by_number is None and by_name is not None:
            raise ValueError(
                f"task.target gives {target}, but an integer is the index of one of the {len(choices)} "
                f"choices, from 0: for the text of a choice, write task.target: (...) | string"
            )
        by_name = by_name if are_fixed else None
    for place in (by_name, by_number):
        if place is not None:
            return place
    counts_from_1 = "; if it counts from 1, write task.target: (TARGET) - 1" if target == len(choices) else ""
    raise ValueError(
        f"task.target gives {target!r}, which is none of {', '.join(names)[:200]}: correct it{counts_from_1}"
    )
