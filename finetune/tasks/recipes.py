"""All tasks that a recipe of fine-tuning may name by `kind`, and what their recipes have in common.

kind                    learns
classification          one label for a text, or for a pair of texts
multi_label             any number of labels
regression              a number
tagging                 a label for every word (token classification)
question_answering      a span of a text
multiple_choice         one of several texts
ranking                 texts that answer a query (sentence embeddings, semantic search)
generation              a target text (translation, summarization, ...)
chat                    the assistant's turns of a dialogue (supervised fine-tuning of decoders)

They name columns of rows. The schema of recipes says which fields do, so that this is known without torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from ...configs.by_kind import ByKind
from ...training.recipe import as_tuple

if TYPE_CHECKING:
    from .task import Facts, Task


KIND = "kind"
"""Among the facts of a task of labels: what values they have in the training rows."""


Several = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]

Columns = Annotated[Several, BeforeValidator(as_tuple, json_schema_input_type=str | Several)]
"""One column of texts, whose name may stand alone, or two, which are read as a pair."""

Modules = tuple[Annotated[str, Field(min_length=1)], ...]
"""Modules of the `evaluate` library: names on the Hub, or local folders or scripts."""


@dataclass(frozen=True)
class ColumnFields:
    """Which fields of a task's recipe name columns."""

    inputs: Sequence[str]
    """Fields that name what a model reads."""
    labels: Sequence[str]
    """Fields that name what it learns from, besides."""
    only_with: Mapping[str, str] = field(default_factory=dict)
    """A field -> another one, without which it names no column."""
    replaced_by: Mapping[str, str] = field(default_factory=dict)
    """A field -> another one, with which it names no column."""


class ColumnNames(ABC):
    """The columns of rows that a task reads and learns from. Abstract: a recipe, or its plain data."""

    @abstractmethod
    def named(self, name: str) -> Any:
        """Return what a field says: one column, two of a pair, or `None`."""

    @property
    @abstractmethod
    def fields(self) -> ColumnFields:
        """The fields that name columns."""

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that a model reads."""
        return self.columns_in(self.fields.inputs)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that a model learns from, besides those that it reads."""
        return self.columns_in(self.fields.labels)

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them, those that are read first."""
        return *self.input_columns, *self.label_columns

    @property
    def keys(self) -> dict[str, str]:
        """The keys of a recipe that name the columns."""
        return {
            column: f"task.{name}"
            for name in (*self.fields.inputs, *self.fields.labels)
            for column in self.columns_in([name])
        }

    def columns_in(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that fields name."""
        values = [self.named(name) for name in names if self.counts(name)]
        return tuple(column for value in values if value is not None for column in as_tuple(value))

    def counts(self, name: str) -> bool:
        """Return whether other fields let this one name a column."""
        needed, instead = self.fields.only_with.get(name), self.fields.replaced_by.get(name)
        is_complete = needed is None or self.named(needed) is not None
        return is_complete and (instead is None or self.named(instead) is None)


@dataclass(frozen=True)
class RowsRecipe(ColumnNames):
    """What a recipe says of a task. Abstract: each task adds its fields, and builds itself."""

    COLUMNS: ClassVar[ColumnFields]
    """The fields that name columns."""
    TERMS: ClassVar[Mapping[str, tuple[str, str]]]
    """The kind -> what is scored, and the Hub's name of the task."""
    METRICS: ClassVar[Mapping[str, str]] = {}
    """Scores that few tasks have -> how reports write them; `reports/scores.py` knows the others."""

    kind: str
    """Which task this is."""

    @abstractmethod
    def build(self, facts: "Facts | None" = None) -> "Task":
        """Build the task, which knows no more of its training rows than the facts."""

    def named(self, name: str) -> Any:
        return getattr(self, name)

    @property
    def fields(self) -> ColumnFields:
        return self.COLUMNS

    @classmethod
    def in_schema(cls) -> dict[str, Any]:
        """Return what the schema of recipes says beside the fields: which of them name columns."""
        return {"columns": asdict(cls.COLUMNS)}

    def as_value(self, column: str, text: str) -> Any:
        """Return what a column that is read holds where a person has typed a text."""
        return text

    def example(self, column: str) -> str:
        """Return what stands for a person's text of such a column in an example."""
        return "a text" if len(self.input_columns) == 1 else f"the {column}"


TASKS = ByKind(
    __name__,
    {
        "classification": "texts.ClassificationRecipe",
        "multi_label": "texts.MultiLabelRecipe",
        "regression": "regression.RegressionRecipe",
        "tagging": "tagging.TaggingRecipe",
        "question_answering": "question_answering.QuestionAnsweringRecipe",
        "multiple_choice": "multiple_choice.MultipleChoiceRecipe",
        "ranking": "ranking.RankingRecipe",
        "generation": "generation.GenerationRecipe",
        "chat": "chat.ChatRecipe",
    },
)
"""The `kind` of a recipe -> its dataclass, which builds the task."""

TaskRecipe = Annotated[RowsRecipe, TASKS]
"""Any of them; `kind` says which."""
