"""Tagging: a label for every word (named entities, parts of speech).

A word is labelled at its first token; its other tokens, and special ones, are no targets (Devlin et al.,
2019, section 5.3). A word of which the tokenizer leaves nothing, or that lies beyond the end of what the
model reads, has no token: it gets the most frequent label of the training rows, and counts in every score.

Shapes: W words of a row, T its tokens.
"""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Literal, TypeVar

import numpy as np
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from torch import Tensor, nn
from torch.nn import functional as F

from ...data.files.bad_rows import RowError
from ...data.files.columns import lists_of
from ...data.files.problems import Row
from ...data.steps.examples import gather
from ...data.steps.objective import IGNORE, INDEX, Batch, Example
from ...data.steps.packing import Ragged
from ...data.steps.streams import fields_of, one_stream
from ...modeling import TercetTaggerForTokenClassification
from ...modeling.recurrent.configurations import with_insides
from ...modeling.recurrent.tagger import TercetTaggerOutput
from ...training.metrics.labels import LabelRow, label_table
from ...training.metrics.spans import OUTSIDE, as_iob2, check_iob2, ratio, row_counts, span_scores, span_table
from ..encoding import NO_WORD, LabelledExamples, TextEncoder
from .labels import (
    Labels,
    by_name,
    class_names,
    find_labels,
    label_lists,
    labels_known,
    name_of,
    require_labels_from_zero,
)
from .objectives import TaskObjective, inputs_of
from .recipes import ColumnFields, RowsRecipe
from .task import Facts, Prediction, Predictions, RowScore, Shown, Task

WORD = re.compile(r"\w+(?:[-'\u2019]\w+)*|[^\w\s]")
"""A word, whose parts a hyphen or an apostrophe joins, or a mark."""

Outputs = TypeVar("Outputs")
"""What a model returns of a batch."""


class WordObjective(TaskObjective[Outputs]):
    """Labels of words, at the first token of each. Abstract: what the loss is, and which labels are best."""

    def __init__(self):
        super().__init__("tag")

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # `labels` and `words` are streams like the ids
        batch = one_stream(gather(examples, "input_ids"))
        return batch | fields_of(examples, along=["token_type_ids", "words", "labels"], single=[INDEX])

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: (batch["labels"] != IGNORE).sum()}

    @abstractmethod
    def best(self, outputs: Outputs) -> Tensor:
        """Return the best label of every token, (N,)."""

    def answers(self, outputs: Outputs, batch: Batch) -> list[np.ndarray]:
        # for each text the number of each word that has a token, and its best label, (W, 2)
        words, found = batch["words"][0].cpu().numpy(), self.best(outputs).cpu().numpy()
        edges = batch["cu_seq_lens_q"].tolist()
        return [
            np.stack((words[first:last], found[first:last]), axis=1)[words[first:last] != NO_WORD]
            for first, last in pairwise(edges)
        ]


class TaggingObjective(WordObjective[Tensor]):
    """Cross-entropy of the labels of words, at the first token of each."""

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        # (N, L)
        return model(**{name: value for name, value in inputs_of(batch).items() if name != "words"}).logits[0]

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(outputs.float(), batch["labels"][0], ignore_index=IGNORE, reduction="sum")

    def best(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)


class SentenceTaggingObjective(WordObjective[TercetTaggerOutput]):
    """Likelihood of all labels of a sentence, as the tagger itself computes it."""

    def predicted(self, batch: Batch) -> None:
        # a tagger is recurrent, and has no layers to be compiled
        return None

    def outputs(self, model: nn.Module, batch: Batch) -> TercetTaggerOutput:
        inputs = {name: value for name, value in inputs_of(batch).items() if name != "words"}
        return model(**inputs, labels=batch.get("labels"), reduction="sum")

    def loss(self, outputs: TercetTaggerOutput, batch: Batch) -> Tensor:
        # over the sentences; the engine divides it by the words
        assert outputs.loss is not None
        return outputs.loss

    def best(self, outputs: TercetTaggerOutput) -> Tensor:
        assert outputs.tags is not None
        return outputs.tags[0]


@dataclass(frozen=True)
class TaggingRecipe(RowsRecipe):
    """A label for every word of a text."""

    COLUMNS = ColumnFields(("words",), ("tags",))
    TERMS = {"tagging": ("labels of words", "token-classification")}
    METRICS = {
        "span_f1": "F1 of spans",
        "span_precision": "precision of spans",
        "span_recall": "recall of spans",
    }

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
                "metric_for_best_model is span_f1, but scheme is none, which has no spans: remove "
                "metric_for_best_model, or set scheme=iob2"
            )

    def as_value(self, column: str, text: str) -> list[str]:
        return WORD.findall(text)

    def build(self, facts: Facts | None = None) -> "Tagging":
        return Tagging(self, facts)


class Tagging(Task):
    """A label for every word of a text."""

    title = "Tagging"
    head = "ForTokenClassification"
    recipe: TaggingRecipe
    metrics = {"span_f1": True, "span_precision": True, "span_recall": True, "accuracy": True, "loss": False}

    @cached_property
    def labels(self) -> Labels:
        return Labels.of(self.facts)

    def require_inputs(self, rows: Dataset) -> None:
        words_in(rows, self.recipe.words)

    def require_labels(self, rows: Dataset) -> None:
        self.tags_in(rows, self.labels_known(rows))

    def require_consistent(self, rows: Dataset) -> None:
        require_labels_from_zero(rows, self.recipe.tags, self.recipe.label_names)

    def labels_known(self, rows: Dataset) -> Labels | None:
        return labels_known(rows, self.recipe.tags, self.recipe.label_names)

    def repair(self, rows: Dataset, row: int) -> dict[str, Any] | None:
        # B-X for an I-X that continues no span, as such tags are scored (`as_iob2`)
        labels, column = self.labels_known(rows), self.recipe.tags
        tags, classes = rows[row][column], class_names(rows, column)
        try:
            names = [name_of(tag, labels, row, column) for tag in by_name(tags, classes)]
            own = [name_of(name, labels, row, column) for name in classes]
        except (TypeError, RowError):
            return None
        repaired = as_iob2(names)
        number_of = {name: number for number, name in enumerate(own or (labels.names if labels else []))}
        is_expressible = not number_of or number_of.keys() >= {*repaired}
        if self.recipe.scheme != "iob2" or repaired == names or not is_expressible:
            return None
        return {
            column: [
                tag if new == name else new if tag == name else number_of[new]
                for tag, name, new in zip(tags, names, repaired, strict=True)
            ]
        }

    def labels_in(self, rows: Dataset) -> Iterator[tuple[int, str]]:
        # what B- and I- begin with is the same label
        is_span = self.recipe.scheme == "iob2"
        for row, tags in enumerate(self.references(rows)):
            yield from ((row, tag[2:] or tag if is_span else tag) for tag in tags)

    def find(self, train: Dataset) -> Facts:
        labels = find_labels(train, self.recipe.tags, self.recipe.label_names, are_lists=True)
        tags = self.tags_in(train, labels)
        names = with_insides(labels.names)  # as a tagger's configuration has them
        labels = Labels(names, labels.are_numbered, labels.renamed, labels.kind)
        return labels.facts | {"most_frequent": Counter(chain.from_iterable(tags)).most_common(1)[0][0]}

    @property
    def metric_for_best_model(self) -> str:
        return self.recipe.metric_for_best_model or (
            "span_f1" if self.recipe.scheme == "iob2" else "accuracy"
        )

    @property
    def config_fields(self) -> dict[str, Any]:
        return self.labels.config_fields

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        fields = encoder.encode_words(words_in(rows, self.recipe.words))
        if labelled:
            numbers = [np.array([self.labels.numbers[tag] for tag in tags]) for tags in self.references(rows)]
            fields["labels"] = labels_at_first_tokens(fields["words"], numbers)
        return LabelledExamples(fields)

    def references(self, rows: Dataset) -> Sequence[list[str]]:
        return self.tags_in(rows, self.labels)

    def objective(self) -> TaggingObjective:
        return TaggingObjective()

    def objective_for(self, model: nn.Module) -> TaskObjective[Any]:
        labels_sentences = isinstance(extract_model_from_parallel(model), TercetTaggerForTokenClassification)
        return SentenceTaggingObjective() if labels_sentences else self.objective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        found = []
        for answer, words in zip(answers, words_in(rows, self.recipe.words), strict=True):
            numbers = [self.labels.numbers[self.facts["most_frequent"]]] * len(words)
            for word, number in answer.tolist():
                numbers[word] = number
            found.append(self.prediction(words, numbers))
        return found

    def prediction(self, words: Sequence[str], numbers: Sequence[int]) -> Prediction:
        return {self.recipe.words: words, self.recipe.tags: [*map(self.labels.value, numbers)]}

    def score(self, predictions: Predictions, references: Sequence[Any]) -> dict[str, float]:
        found = self.found(predictions)
        if self.recipe.scheme == "iob2":
            return span_scores(found, references)
        pairs = zip(chain.from_iterable(found), chain.from_iterable(references), strict=True)
        return {"accuracy": float(np.mean([tag == reference for tag, reference in pairs]))}

    def error(self, predictions: Predictions, references: Sequence[Any]) -> np.ndarray:
        pairs = zip(self.found(predictions), references, strict=True)
        return np.array([sum(tag != right for tag, right in zip(*pair, strict=True)) for pair in pairs])

    def format_prediction(self, prediction: Prediction) -> str:
        return " ".join(map(str, prediction[self.recipe.tags]))

    def format_reference(self, reference: Any) -> str:
        return " ".join(reference)

    def show(self, row: Row, prediction: Prediction, reference: Any, *, is_right: bool = False) -> Shown:
        # the words, those with a label marked, twice: as they are, and as the model has them
        words = row[self.recipe.words]
        sides = {"right": reference, "model": self.found([prediction])[0]}
        return [(name, [*self.marked(words, tags, reference)]) for name, tags in sides.items()]

    def marked(
        self, words: Sequence[str], tags: Sequence[str], right_tags: Sequence[str]
    ) -> Iterator[tuple[str, str]]:
        """Mark the words that are in a span, and those with a wrong label."""
        for word, tag, right in zip(words, tags, right_tags, strict=True):
            if tag == right and (tag == OUTSIDE or self.recipe.scheme == "none"):
                yield f"{word} ", "plain"
            else:
                yield f"{word}/{tag} ", "right" if tag == right else "wrong"

    def breakdown(self, predictions: Predictions, references: Sequence[Any]) -> list[LabelRow]:
        found = self.found(predictions)
        if self.recipe.scheme == "iob2":
            return span_table(found, references)
        number_of = self.labels.numbers.__getitem__
        found, right = (
            np.array([*map(number_of, chain.from_iterable(side))]) for side in (found, references)
        )
        return label_table(found, right, self.labels.names)

    def score_of_rows(self, predictions: Predictions, references: Sequence[Any]) -> RowScore:
        # from the counts of each row, which add up
        counts = np.array([*map(row_counts, self.found(predictions), references)])
        part, whole = (0, 1) if self.metric_for_best_model == "span_f1" else (2, 3)
        return lambda rows: ratio(counts[rows, part].sum(), counts[rows, whole].sum())

    def found(self, predictions: Predictions) -> list[list[str]]:
        return [[*map(str, each[self.recipe.tags])] for each in predictions]

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        usual = self.labels.numbers[self.facts["most_frequent"]]
        return [self.prediction(words, [usual] * len(words)) for words in words_in(rows, self.recipe.words)]

    def tags_in(self, rows: Dataset, labels: Labels | None) -> list[list[str]]:
        """Return the labels of each row's words, by name; without `labels`, values are names."""
        tagged, column = [], self.recipe.tags
        words_and_tags = zip(words_in(rows, self.recipe.words), label_lists(rows, column), strict=True)
        for row, (words, tags) in enumerate(words_and_tags):
            if len(words) != len(tags):
                raise RowError(
                    row,
                    f"has {len(words)} words, but {len(tags)} labels: correct it",
                    "has another number of labels than of words",
                )
            names = [name_of(tag, labels, row, column) for tag in tags]
            if self.recipe.scheme == "iob2":
                try:
                    check_iob2(names)
                except ValueError as error:
                    raise RowError(row, str(error), "has tags that are not valid IOB2") from None
            tagged.append(names)
        return tagged


def words_in(rows: Dataset, column: str) -> Sequence[list[str]]:
    """Return the words of each row."""
    for row, words in enumerate(texts := lists_of(rows, column, "words")):
        if not words or not all(isinstance(word, str) for word in words):
            raise RowError(
                row,
                f"has no list of words in column {column!r} ({str(words)[:40]}): correct it, or leave it out",
            )
    return texts


def labels_at_first_tokens(words: Ragged, numbers: Sequence[np.ndarray]) -> Ragged:
    """Put the labels of words (W,) of each text where the words begin, and -100 elsewhere, (T,)."""
    labels = [np.where(own == NO_WORD, IGNORE, tags[own]) for own, tags in zip(words, numbers, strict=True)]
    return Ragged(np.concatenate(labels), words.lengths)
