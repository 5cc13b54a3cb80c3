"""The `task` part of a recipe: the columns of the rows, and the metric that selects the best checkpoint.

kind: classification        one label for a text, or for a pair of texts
      multi_label           any number of labels
      regression            a number
      tagging               a label for every word (token classification)
      question_answering    a span of a text
      multiple_choice       one of several texts
      ranking               texts that answer a query (sentence embeddings, semantic search)
      generation            a target text (translation, summarization, ...)
      chat                  the assistant's turns of a dialogue (supervised fine-tuning of decoders)
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field


def as_columns(value: Any) -> Any:
    """Put a single name into a tuple, and names of a list; leave all else to the check that follows."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Several = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]

Columns = Annotated[Several, BeforeValidator(as_columns, json_schema_input_type=str | Several)]
"""One column of texts, whose name may stand alone, or two, which are read as a pair."""

Modules = tuple[Annotated[str, Field(min_length=1)], ...]
"""Modules of the `evaluate` library: names on the Hub, or local folders or scripts."""


@dataclass(frozen=True)
class RowsRecipe:
    """What the recipes of all kinds have in common: they name columns of rows. Abstract."""

    INPUTS: ClassVar[tuple[str, ...]]
    """The fields that name the columns which a model reads."""
    LABELS: ClassVar[tuple[str, ...]]
    """The fields that name the columns which it learns from, besides."""

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that a model reads."""
        return self.columns_in(self.INPUTS)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that a model learns from, besides those that it reads."""
        return self.columns_in(self.LABELS)

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them, those that are read first."""
        return *self.input_columns, *self.label_columns

    def columns_in(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns that fields name: one, two of a pair, or none."""
        values = (getattr(self, name) for name in names)
        return tuple(column for value in values if value is not None for column in as_columns(value))

    @property
    def keys(self) -> dict[str, str]:
        """The keys of a recipe that name the columns."""
        return {
            column: f"task.{name}"
            for name in (*self.INPUTS, *self.LABELS)
            for column in self.columns_in((name,))
        }


@dataclass(frozen=True)
class ClassificationRecipe(RowsRecipe):
    """One label for a text, or for a pair of texts."""

    INPUTS: ClassVar[tuple[str, ...]] = ("texts",)
    LABELS: ClassVar[tuple[str, ...]] = ("label",)

    kind: Literal["classification"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    label: str = "label"
    """Column of the label, a name or a number."""
    label_names: tuple[str, ...] = ()
    """Names of the labels 0, 1, ... in that column, or of a nameless head; by default, its values."""
    class_weights: Literal["balanced"] | None = None
    """`balanced`: labels are weighted by their inverse frequency, so that all classes have the same
    weight."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that is distributed over all labels (Szegedy et al., 2016, section 7)."""
    metric_for_best_model: Literal["accuracy", "f1", "f1_macro", "matthews_correlation"] = "accuracy"
    """Metric that selects the best checkpoint; `f1` is that of the second of two labels."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


@dataclass(frozen=True)
class MultiLabelRecipe(RowsRecipe):
    """Any number of labels for a text, or for a pair of texts."""

    INPUTS: ClassVar[tuple[str, ...]] = ("texts",)
    LABELS: ClassVar[tuple[str, ...]] = ("labels",)

    kind: Literal["multi_label"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    labels: str = "labels"
    """Column of the lists of labels, names or numbers, or of a 0 or 1 for each label (multi-hot)."""
    label_names: tuple[str, ...] = ()
    """Names of the labels 0, 1, ... in that column, or of the places of its zeros and ones."""
    metric_for_best_model: Literal["f1_micro", "f1_macro", "accuracy"] = "f1_micro"
    """Metric that selects the best checkpoint; `accuracy` is subset accuracy (the exact set of labels)."""


@dataclass(frozen=True)
class RegressionRecipe(RowsRecipe):
    """A number for a text, or for a pair of texts."""

    INPUTS: ClassVar[tuple[str, ...]] = ("texts",)
    LABELS: ClassVar[tuple[str, ...]] = ("label",)

    kind: Literal["regression"]
    texts: Columns = ("text",)
    """Columns of the text, or of the pair."""
    label: str = "score"
    """Column of the number."""
    metric_for_best_model: Literal["pearson", "spearman", "mean_squared_error"] = "pearson"
    """Metric that selects the best checkpoint."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


@dataclass(frozen=True)
class TaggingRecipe(RowsRecipe):
    """A label for every word of a text."""

    INPUTS: ClassVar[tuple[str, ...]] = ("words",)
    LABELS: ClassVar[tuple[str, ...]] = ("tags",)

    kind: Literal["tagging"]
    words: str = "tokens"
    """Column of the lists of words."""
    tags: str = "tags"
    """Column of the lists of labels, one for each word."""
    scheme: Literal["iob2", "none"] = "iob2"
    """`iob2`: labels are O, B-X and I-X and mark spans, which are scored; `none`: words are scored."""
    label_names: tuple[str, ...] = ()
    """Names of the labels 0, 1, ... in that column."""
    metric_for_best_model: Literal["span_f1", "accuracy"] | None = None
    """Metric that selects the best checkpoint; by default, `span_f1` with `iob2`, and else `accuracy`."""

    def __post_init__(self):
        if self.metric_for_best_model == "span_f1" and self.scheme == "none":
            raise ValueError(
                "task.metric_for_best_model is span_f1, but task.scheme is none, which has no spans: remove "
                "task.metric_for_best_model, or set task.scheme=iob2"
            )


@dataclass(frozen=True)
class QuestionAnsweringRecipe(RowsRecipe):
    """The span of a text that answers a question."""

    INPUTS: ClassVar[tuple[str, ...]] = ("question", "context")
    LABELS: ClassVar[tuple[str, ...]] = ("answers",)

    kind: Literal["question_answering"]
    question: str = "question"
    """Column of the question."""
    context: str = "context"
    """Column of the text that holds the answer."""
    answers: str = "answers"
    """Column of the answers: `{text: [...], answer_start: [...]}`, both empty if there is no answer."""
    stride: Annotated[int, Field(ge=0)] = 64
    """Overlap in tokens of the windows of a context that is too long; at most half of a window."""
    longest_answer: Annotated[int, Field(gt=0)] = 30
    """Maximum number of tokens in a predicted answer."""
    metric_for_best_model: Literal["f1", "exact_match"] = "f1"
    """Metric that selects the best checkpoint."""


@dataclass(frozen=True)
class MultipleChoiceRecipe(RowsRecipe):
    """The correct one of several texts, given a text."""

    INPUTS: ClassVar[tuple[str, ...]] = ("text", "choices")
    LABELS: ClassVar[tuple[str, ...]] = ("target",)

    kind: Literal["multiple_choice"]
    text: str = "query"
    """Column of the text, a question or a beginning."""
    choices: str = "choices"
    """Column of the lists of choices, at least two in each row."""
    target: str = "gold"
    """Column of the index of the correct choice, from 0."""
    metric_for_best_model: Literal["accuracy"] = "accuracy"
    """Metric that selects the best checkpoint."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


@dataclass(frozen=True)
class RankingRecipe(RowsRecipe):
    """Texts that answer a query: sentence embeddings that are close to each other (semantic search)."""

    INPUTS: ClassVar[tuple[str, ...]] = ("query",)
    LABELS: ClassVar[tuple[str, ...]] = ("positive", "negative")

    kind: Literal["ranking"]
    query: str = "query"
    """Column of the query."""
    positive: str = "positive"
    """Column of a text that answers it."""
    negative: str | None = None
    """Column of a hard negative, in addition to the in-batch negatives."""
    group_size: Annotated[int, Field(gt=1)] = 32
    """Approximate number of rows that share in-batch negatives: the texts of the other rows of the group are
    negatives. Larger groups give a better training signal, but a group is always one forward pass, whatever
    `training.tokens_per_micro_batch` is. A step of fewer rows (`training.batch_size`) is one group."""
    temperature: Annotated[float, Field(gt=0)] = 0.05
    """Divisor of the cosine similarities."""
    pooling: Literal["mean", "first", "last"] | None = None
    """Embedding of a text: the mean of its tokens (Reimers and Gurevych, 2019, section 3), or one of them. By
    default, what the model's folder says (sentence-transformers' `modules.json`), else the mean."""
    query_prompt: str | None = None
    """What is put before each query; by default, the prompt that the model's folder has for queries."""
    document_prompt: str | None = None
    """What is put before each other text; by default, the prompt that the model's folder has for these."""
    metric_for_best_model: Literal["mrr", "ndcg@10", "recall@1", "recall@10"] = "mrr"
    """Metric that selects the best checkpoint."""


@dataclass(frozen=True)
class GenerationRecipe(RowsRecipe):
    """A target text for a source text: translation, summarization, ..."""

    INPUTS: ClassVar[tuple[str, ...]] = ("source",)
    LABELS: ClassVar[tuple[str, ...]] = ("target",)

    kind: Literal["generation"]
    source: str = "source"
    """Column of the source text."""
    target: str = "target"
    """Column of the target text."""
    prefix: str = ""
    """Prefix of every source, such as `summarize: `."""
    longest_target: Annotated[int, Field(gt=0)] = 64
    """Maximum number of tokens in a generated text."""
    num_beams: Annotated[int, Field(gt=0)] | None = None
    """Number of beams in beam search; by default, what the model's `generation_config.json` says, or 1."""
    metric_for_best_model: Literal["bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"] = "rougeL"
    """Metric that selects the best checkpoint."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""


@dataclass(frozen=True)
class ChatRecipe(RowsRecipe):
    """The assistant's turns of a dialogue, learned by a decoder (supervised fine-tuning)."""

    INPUTS: ClassVar[tuple[str, ...]] = ("messages", "prompt")
    LABELS: ClassVar[tuple[str, ...]] = ("completion",)

    kind: Literal["chat"]
    messages: str = "messages"
    """Column of the dialogues: lists of `{role: ..., content: ...}`, with answers of the role `assistant`."""
    prompt: str | None = None
    """Column of prompts, where rows have a prompt and a completion instead of a dialogue."""
    completion: str = "completion"
    """Column of the completions, if there are prompts."""
    generate: bool = False
    """Whether the last answer of each held-out row is generated and compared with the row's, at every
    evaluation."""
    longest_answer: Annotated[int, Field(gt=0)] = 128
    """Maximum number of tokens in a generated answer."""
    metric_for_best_model: Literal["loss", "rougeL", "exact_match", "bleu", "chrf"] = "loss"
    """Metric that selects the best checkpoint: the loss of the answers, or another one with `generate`."""

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The dialogue, or the prompt."""
        return (self.messages if self.prompt is None else self.prompt,)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The completion, if it stands in a column of its own."""
        return () if self.prompt is None else (self.completion,)

    def __post_init__(self):
        if self.metric_for_best_model != "loss" and not self.generate:
            raise ValueError(
                f"task.metric_for_best_model is {self.metric_for_best_model}, which needs generated answers: "
                "set task.generate=true"
            )


TaskRecipe = Annotated[
    ClassificationRecipe
    | MultiLabelRecipe
    | RegressionRecipe
    | TaggingRecipe
    | QuestionAnsweringRecipe
    | MultipleChoiceRecipe
    | RankingRecipe
    | GenerationRecipe
    | ChatRecipe,
    Field(discriminator="kind"),
]
"""Any of them; `kind` says which."""
