"""The `task` part of a recipe: which columns hold what, and how predictions are scored.

kind: classification        one label for a text, or for a pair of texts
      multi_label           any number of labels
      regression            a number
      tagging               a label for every word
      question_answering    a span of a text
      multiple_choice       one of several texts
      ranking               texts that belong to a query, for semantic search
      generation            a text (translation, summarization, ...)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

Columns = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]
"""One column of texts, or two, which are read as a pair."""

Modules = tuple[Annotated[str, Field(min_length=1)], ...]
"""Modules of the `evaluate` library: names on the Hub, or local folders or scripts."""

RENAMED = {"criterion": "metric_for_best_model"}
"""Keys of all kinds that have new names."""


@dataclass(frozen=True)
class ClassificationRecipe:
    """One label for a text, or for a pair of texts."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED

    kind: Literal["classification"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    label: str = "label"
    """Column of the label, a name or a number."""
    label_names: tuple[str, ...] = ()
    """What the numbers 0, 1, ... in that column are called; labels are called what they are if left out."""
    class_weights: Literal["balanced"] | None = None
    """`balanced`: rare labels count more, each class as much as the others."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that is spread over all labels instead of resting on the correct one."""
    metric_for_best_model: Literal["accuracy", "f1", "f1_macro", "matthews_correlation"] = "accuracy"
    """Metric by which the best checkpoint is chosen; `f1` is of the second of two labels."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


@dataclass(frozen=True)
class MultiLabelRecipe:
    """Any number of labels for a text, or for a pair of texts."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED

    kind: Literal["multi_label"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    labels: str = "labels"
    """Column of the lists of labels, names or numbers."""
    label_names: tuple[str, ...] = ()
    """What the numbers 0, 1, ... in that column are called."""
    metric_for_best_model: Literal["f1_micro", "f1_macro", "accuracy"] = "f1_micro"
    """Metric by which the best checkpoint is chosen; `accuracy` asks for the exact set."""


@dataclass(frozen=True)
class RegressionRecipe:
    """A number for a text, or for a pair of texts."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED

    kind: Literal["regression"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    label: str = "score"
    """Column of the number."""
    metric_for_best_model: Literal["pearson", "spearman", "mean_squared_error"] = "pearson"
    """Metric by which the best checkpoint is chosen."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


@dataclass(frozen=True)
class TaggingRecipe:
    """A label for every word of a text."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED

    kind: Literal["tagging"]
    words: str = "tokens"
    """Column of the lists of words."""
    tags: str = "tags"
    """Column of the lists of labels, one for each word."""
    scheme: Literal["iob2", "none"] = "iob2"
    """`iob2`: labels are O, B-X and I-X and mark spans, which are scored; `none`: words are scored."""
    label_names: tuple[str, ...] = ()
    """What the numbers 0, 1, ... in that column are called."""
    metric_for_best_model: Literal["span_f1", "accuracy"] | None = None
    """Metric by which the best checkpoint is chosen; if left out, `span_f1` with `iob2`, else `accuracy`."""

    def __post_init__(self):
        if self.metric_for_best_model == "span_f1" and self.scheme == "none":
            raise ValueError(
                "task.metric_for_best_model is span_f1, but task.scheme is none, which marks no spans: leave "
                "out task.metric_for_best_model, or set task.scheme=iob2"
            )


@dataclass(frozen=True)
class QuestionAnsweringRecipe:
    """The span of a text that answers a question."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED

    kind: Literal["question_answering"]
    question: str = "question"
    """Column of the question."""
    context: str = "context"
    """Column of the text that holds the answer."""
    answers: str = "answers"
    """Column of the answers: `{text: [...], answer_start: [...]}`, both empty where there is no answer."""
    stride: Annotated[int, Field(ge=0)] = 64
    """Tokens that windows of a context overlap by, where it does not fit into one; at most half of each."""
    longest_answer: Annotated[int, Field(gt=0)] = 30
    """Tokens of a predicted answer at most."""
    metric_for_best_model: Literal["f1", "exact_match"] = "f1"
    """Metric by which the best checkpoint is chosen."""


@dataclass(frozen=True)
class MultipleChoiceRecipe:
    """Which of several texts goes with a text."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED | {"label": "target"}

    kind: Literal["multiple_choice"]
    text: str = "query"
    """Column of the text, a question or a beginning."""
    choices: str = "choices"
    """Column of the lists of texts to choose from; all lists are as long."""
    target: str = "gold"
    """Column of the number of the correct one, counted from 0."""
    metric_for_best_model: Literal["accuracy"] = "accuracy"
    """Metric by which the best checkpoint is chosen."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


@dataclass(frozen=True)
class RankingRecipe:
    """Which texts belong to a query: vectors that are near each other (semantic search)."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED

    kind: Literal["ranking"]
    query: str = "query"
    """Column of the query."""
    positive: str = "positive"
    """Column of a text that belongs to it."""
    negative: str | None = None
    """Column of a text that does not, beside those of the other queries of a group."""
    group_size: Annotated[int, Field(gt=1)] = 32
    """Rows of a group, about: to each query, the texts of the other rows are the ones not to be found. Larger
    groups teach more and pass through the model at once, whatever `training.tokens_per_micro_batch` says; a
    step of fewer rows (`training.batch_size`) is one group."""
    temperature: Annotated[float, Field(gt=0)] = 0.05
    """What cosines are divided by."""
    pooling: Literal["mean", "first", "last"] = "mean"
    """What stands for a text: the mean of its tokens (Reimers and Gurevych, 2019, section 3), or one."""
    metric_for_best_model: Literal["mrr", "ndcg@10", "recall@1", "recall@10"] = "mrr"
    """Metric by which the best checkpoint is chosen."""


@dataclass(frozen=True)
class GenerationRecipe:
    """A text for a text: translation, summarization, ..."""

    RENAMED: ClassVar[Mapping[str, str]] = RENAMED

    kind: Literal["generation"]
    source: str = "source"
    """Column of the text to be read."""
    target: str = "target"
    """Column of the text to be written."""
    prefix: str = ""
    """What stands before every source, such as `summarize: `."""
    longest_target: Annotated[int, Field(gt=0)] = 64
    """Tokens of a written text at most."""
    num_beams: Annotated[int, Field(gt=0)] = 1
    """Beams of the search for it."""
    metric_for_best_model: Literal["bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"] = "rougeL"
    """Metric by which the best checkpoint is chosen."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


TaskRecipe = Annotated[
    ClassificationRecipe
    | MultiLabelRecipe
    | RegressionRecipe
    | TaggingRecipe
    | QuestionAnsweringRecipe
    | MultipleChoiceRecipe
    | RankingRecipe
    | GenerationRecipe,
    Field(discriminator="kind"),
]
"""Any of them; `kind` says which."""
