r"""The kinds of tasks, as a recipe describes them: templates in Jinja over the columns of a row.

A field called `context`, `answer`, `good`, ... is a template: `"{{ question }}\\nAnswer:"`. A field that
gives a list or a number is an expression without braces: `choices: choices`, `target: gold`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..training.recipe import Positive

Normalization = Literal["none", "token", "char", "pmi", "calibrated"]
"""How log-likelihoods of answers are made comparable; see `normalization.py`."""

HOLE = "___"
"""Where the answer of a cloze goes."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every task may say."""

    description: str = ""
    """What stands before the demonstrations."""
    separator: str = "\n\n"
    """What stands between description, demonstrations and the query."""
    group: str | None = None
    """Expression by which results are also told apart, such as the paradigm of a minimal pair."""
    match: str | None = None
    """Expression: a row is demonstrated only by rows of which it has the same value."""


@dataclass(frozen=True, kw_only=True)
class Choosing(Common):
    """What tasks say whose answers are compared."""

    RENAMED: ClassVar[Mapping[str, str]] = {"right": "target", "way": "normalization"}

    target: str
    """Expression: the number of the correct answer from 0, or what `labels` or the answers call it."""
    normalization: Normalization = "none"
    """Which normalization decides the accuracy; all are reported."""
    unconditional: str = "Answer:"
    """Context of the log-likelihoods that `pmi` subtracts (Brown et al., 2020, section 2.4)."""
    content_free: tuple[str, ...] = ("N/A", "[MASK]", "")
    """What stands in all columns of the context for contextual calibration (Zhao et al., 2021, section 5)."""


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceRecipe(Choosing):
    """Which of several answers follows a context; with fixed choices, classification."""

    kind: Literal["multiple_choice"]
    context: str
    """Template of the context."""
    choices: str | tuple[str, ...]
    """Expression of a list; or the list itself, the same for all rows."""
    labels: tuple[str | int, ...] = ()
    """What `target` calls the choices, in their order."""
    delimiter: str = " "
    """What stands between context and answer."""
    suffix: str = ""
    """What follows every choice: encoders read it, and demonstrations show it."""


@dataclass(frozen=True, kw_only=True)
class ClozeRecipe(Choosing):
    """Which of several verbalizers fills a hole in a text (Schick and Schuetze, 2021)."""

    kind: Literal["cloze"]
    text: str
    """Template with one `___`, and before it the space that the answer begins with, if any; what follows it,
    only encoders read."""
    choices: str | tuple[str, ...]
    """Expression of a list; or the list itself, the same for all rows."""
    labels: tuple[str | int, ...] = ()
    """What `target` calls the choices, in their order."""


@dataclass(frozen=True, kw_only=True)
class PartialEvaluationRecipe(Choosing):
    """Behind which of several contexts one continuation is likeliest (Trinh and Le, 2018)."""

    kind: Literal["partial_evaluation"]
    contexts: str
    """Expression of a list."""
    continuation: str
    """Template of what follows all of them."""
    delimiter: str = " "
    """What stands between."""


@dataclass(frozen=True, kw_only=True)
class MinimalPairRecipe(Common):
    """Is a good sentence likelier than one that is nearly the same and bad (Warstadt et al., 2020)?"""

    kind: Literal["minimal_pair"]
    good: str
    """Template of the good sentence."""
    bad: str
    """Template of the other."""


@dataclass(frozen=True, kw_only=True)
class CompletionRecipe(Common):
    """Is the answer the greedy continuation? By log-likelihood, without generation, as for LAMBADA."""

    kind: Literal["completion"]
    context: str
    """Template of the context."""
    answer: str
    """Template of the answer."""
    delimiter: str = " "
    """What stands between."""


@dataclass(frozen=True, kw_only=True)
class GenerationRecipe(Common):
    """What does the model generate after a context?"""

    RENAMED: ClassVar[Mapping[str, str]] = {"score": "metric"}

    kind: Literal["generation"]
    context: str
    """Template of the context."""
    answers: str
    """Template of the correct answer, or expression of a list of them if `several`."""
    several: bool = False
    """Whether any of several answers is correct."""
    delimiter: str = " "
    """What stands between."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ("\n",)
    """What ends an answer, beside the end-of-sequence token."""
    max_new_tokens: Positive = 32
    """Tokens of an answer, at most."""
    metric: Literal["exact_match", "squad_exact_match", "f1", "bleu"] = "exact_match"
    """The metric that counts; all are reported. `exact_match` compares texts as they are, spaces at both ends
    aside. `squad_exact_match` and `f1` leave case, punctuation and articles out, as SQuAD does (Rajpurkar et
    al., 2016, section 6.1): for answers in words, not for numbers, letters and signs."""


@dataclass(frozen=True, kw_only=True)
class PerplexityRecipe(Common):
    """How probable are texts?"""

    kind: Literal["perplexity"]
    text: str = "{{ text }}"
    """Template of a text."""


TaskRecipe = Annotated[
    MultipleChoiceRecipe
    | ClozeRecipe
    | PartialEvaluationRecipe
    | MinimalPairRecipe
    | CompletionRecipe
    | GenerationRecipe
    | PerplexityRecipe,
    Field(discriminator="kind"),
]
