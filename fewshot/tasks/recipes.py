r"""All kinds of tasks that a few-shot recipe may name by `kind`, and what their recipes have in common.

kind                    asks
multiple_choice         which of several answers follows a context
cloze                   which of several words fills a blank
partial_evaluation      after which of several contexts a continuation is likeliest
minimal_pair            whether the good one of two sentences is likelier
completion              whether the answer is the greedy continuation
generation              what the model writes after a context
perplexity              how probable texts are

Their fields are Jinja templates over the columns of a row. A field called `context`, `answer`, `good`, ...
is a template: `"{{ question }}\\nAnswer:"`. A field that gives a list or a number is an expression without
braces: `choices: choices`, `target: gold`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from ...configs.by_kind import ByKind

if TYPE_CHECKING:
    from .task import Task

Normalization = Literal["none", "token", "char", "pmi", "calibrated"]
"""Normalization of the log-likelihoods of answers; see `comparison.py`."""

HOLE = "___"
"""The blank of a cloze."""

OF_ALL = ("group", "match")
"""Expressions of all kinds of tasks."""

OF_CHOICES = (*OF_ALL, "target", "choices", "contexts")
"""Expressions of the kinds that compare answers, each of which has some of them."""


@dataclass(frozen=True)
class TemplateFields:
    """Which fields of a recipe are templates."""

    texts: Sequence[str]
    """Templates of texts."""
    expressions: Sequence[str] = OF_ALL
    """Expressions."""
    lists: Mapping[str, str] = field(default_factory=dict)
    """A template of a text -> the field with which it is an expression of a list instead."""
    hole: str = ""
    """What a text has where the answer belongs."""


@dataclass(frozen=True, kw_only=True)
class Common(ABC):
    """Fields of all kinds of tasks. Abstract: each kind adds its own, and builds itself."""

    TEMPLATES: ClassVar[TemplateFields]
    """The fields that are templates."""

    kind: str
    """Which kind of task this is."""
    description: str = ""
    """Text before the demonstrations."""
    separator: str = "\n\n"
    """Text between description, demonstrations and query."""
    group: str | None = None
    """Expression whose value groups rows; results are also reported per group, such as BLiMP's paradigms."""
    match: str | None = None
    """Expression: demonstrations of a row are rows for which it has the same value."""

    @abstractmethod
    def build(self) -> "Task":
        """Build the task."""

    @classmethod
    def in_schema(cls) -> dict[str, Any]:
        """Return what the schema of recipes says beside the fields: which are templates."""
        return {"templates": asdict(cls.TEMPLATES)}


@dataclass(frozen=True, kw_only=True)
class Choosing(Common):
    """Fields of tasks that compare answers."""

    target: str
    """Expression: the index of the correct answer from 0, its name in `labels`, or its text."""
    normalization: Normalization = "none"
    """Normalization of the main accuracy; accuracies with all normalizations are reported."""
    unconditional: str = "Answer:"
    """Context of the log-likelihoods that `pmi` subtracts (Brown et al., 2020, section 2.4)."""
    content_free: tuple[str, ...] = ("N/A", "[MASK]", "")
    """Texts that replace all columns of the context in contextual calibration (Zhao et al., 2021, section
    5)."""


TASKS = ByKind(
    __name__,
    {
        "multiple_choice": "choices.MultipleChoiceRecipe",
        "cloze": "choices.ClozeRecipe",
        "partial_evaluation": "choices.PartialEvaluationRecipe",
        "minimal_pair": "choices.MinimalPairRecipe",
        "completion": "texts.CompletionRecipe",
        "generation": "texts.GenerationRecipe",
        "perplexity": "texts.PerplexityRecipe",
    },
)
"""The `kind` of a recipe -> its dataclass, which builds the task."""

TaskRecipe = Annotated[Common, TASKS]
"""Any of them; `kind` says which."""
