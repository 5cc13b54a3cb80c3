r"""The kinds of tasks in recipes: Jinja templates over the columns of a row.

A field called `context`, `answer`, `good`, ... is a template: `"{{ question }}\\nAnswer:"`. A field that
gives a list or a number is an expression without braces: `choices: choices`, `target: gold`.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ...configs.numbers import Positive

Normalization = Literal["none", "token", "char", "pmi", "calibrated"]
"""Normalization of the log-likelihoods of answers; see `comparison.py`."""

HOLE = "___"
"""The blank of a cloze."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """Fields of all kinds of tasks."""

    texts: ClassVar[tuple[str, ...]] = ()
    """Fields that are templates of texts."""
    expressions: ClassVar[tuple[str, ...]] = ("group", "match")
    """Fields that are expressions, of those that a kind of task has."""

    description: str = ""
    """Text before the demonstrations."""
    separator: str = "\n\n"
    """Text between description, demonstrations and query."""
    group: str | None = None
    """Expression whose value groups rows; results are also reported per group, such as BLiMP's paradigms."""
    match: str | None = None
    """Expression: demonstrations of a row are rows for which it has the same value."""


@dataclass(frozen=True, kw_only=True)
class Choosing(Common):
    """Fields of tasks that compare answers."""

    expressions = (*Common.expressions, "target", "choices", "contexts")

    target: str
    """Expression: the index of the correct answer from 0, its name in `labels`, or its text."""
    normalization: Normalization = "none"
    """Normalization of the main accuracy; accuracies with all normalizations are reported."""
    unconditional: str = "Answer:"
    """Context of the log-likelihoods that `pmi` subtracts (Brown et al., 2020, section 2.4)."""
    content_free: tuple[str, ...] = ("N/A", "[MASK]", "")
    """Texts that replace all columns of the context in contextual calibration (Zhao et al., 2021, section
    5)."""


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceRecipe(Choosing):
    """Which of several answers follows a context; with fixed choices, classification."""

    texts = ("context",)
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


@dataclass(frozen=True, kw_only=True)
class ClozeRecipe(Choosing):
    """Which of several verbalizers fills the blank of a cloze (Schick and Schuetze, 2021)."""

    texts = ("text",)
    kind: Literal["cloze"]
    text: str
    """Template with one `___`. A space before it belongs to the answer. Only encoders read the text after
    it."""
    choices: str | tuple[str, ...]
    """Expression of a list; or the list itself, the same for all rows."""
    labels: tuple[str | int, ...] = ()
    """Names of the choices in `target`, in the same order."""


@dataclass(frozen=True, kw_only=True)
class PartialEvaluationRecipe(Choosing):
    """After which of several contexts a continuation is likeliest (Trinh and Le, 2018)."""

    texts = ("continuation",)
    kind: Literal["partial_evaluation"]
    contexts: str
    """Expression of a list."""
    continuation: str
    """Template of the common continuation."""
    delimiter: str = " "
    """Text between context and continuation."""


@dataclass(frozen=True, kw_only=True)
class MinimalPairRecipe(Common):
    """Is the grammatical sentence of a minimal pair likelier (Warstadt et al., 2020)?"""

    texts = ("good", "bad")
    kind: Literal["minimal_pair"]
    good: str
    """Template of the grammatical sentence."""
    bad: str
    """Template of the ungrammatical sentence."""


@dataclass(frozen=True, kw_only=True)
class CompletionRecipe(Common):
    """Is the answer the greedy continuation? Computed from logits, without generation, as for LAMBADA."""

    texts = ("context", "answer")
    kind: Literal["completion"]
    context: str
    """Template of the context."""
    answer: str
    """Template of the answer."""
    delimiter: str = " "
    """Text between context and answer."""


@dataclass(frozen=True, kw_only=True)
class GenerationRecipe(Common):
    """What does the model generate after a context?"""

    texts = ("context", "answers")
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
    max_new_tokens: Positive = 32
    """Maximum number of tokens in an answer."""
    metric: Literal["exact_match", "squad_exact_match", "f1", "bleu"] = "exact_match"
    """The main metric; all are reported. `exact_match` compares the texts without spaces at both ends.
    `squad_exact_match` and `f1` also ignore case, punctuation and articles, as SQuAD does (Rajpurkar et al.,
    2016, section 6.1): use them for answers in words, not for numbers, letters and signs."""


@dataclass(frozen=True, kw_only=True)
class PerplexityRecipe(Common):
    """How probable are texts?"""

    texts = ("text",)
    kind: Literal["perplexity"]
    text: str = "{{ text }}"
    """Template of a text."""
    metric: Literal["bits_per_byte", "perplexity_per_word", "perplexity_per_token"] = "bits_per_byte"
    """The main metric; all are reported. Those per byte and per word compare models with different
    tokenizers."""


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
