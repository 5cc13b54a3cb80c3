"""Multiple choice: which of several texts goes with a text, a question or a beginning.

Each choice is read with the text, by itself, and gets a score; the right one is to have the highest of its
row (Radford et al., 2018, section 3.3; Devlin et al., 2019, section 4.4). To the engine a row is a sequence,
so that it is never cut; to the model every choice is one, since positions begin anew with each.

Shapes: S rows of a batch, C choices of all of them, K choices of one.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from ...data.files.bad_rows import RowError
from ...data.files.columns import number_of, require_from_zero, tell_of_no_first, texts_of, values_of
from ...data.steps.examples import gather
from ...data.steps.objective import INDEX, Batch, Example
from ...data.steps.packing import Ragged, boundaries, restarting_positions
from ...data.steps.static_shapes import POSITIONS
from ...data.steps.streams import fields_of, in_rows, one_stream
from ...modeling.attention.packing import longest
from ..encoding import LabelledExamples, TextEncoder, numbers
from ..frames import separate_pairs
from .objectives import TaskObjective, first_tokens, inputs_of, texts_within
from .recipes import ColumnFields, Modules, RowsRecipe
from .task import Facts, Prediction, Predictions, Task
from .texts import DIGITS


class MultipleChoiceObjective(TaskObjective[Tensor]):
    """Cross-entropy of the right choice among those of its row."""

    def __init__(self):
        super().__init__("choice")

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # positions begin anew with every choice
        batch = one_stream(gather(examples, "input_ids"))
        lengths = gather(examples, "choice_lengths").values
        batch["position_ids"] = torch.from_numpy(restarting_positions(lengths))[None]
        return batch | fields_of(examples, along=["token_type_ids"], single=[INDEX, "labels"])

    def predicted(self, batch: Batch) -> Tensor:
        return first_tokens(batch)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        # (S, K), -inf where a row has fewer choices than others
        texts = texts_within(batch)
        of_choices = {f"cu_seq_lens_{side}": texts.bounds for side in "qk"}
        if is_ragged := POSITIONS not in batch:
            of_choices |= {f"max_length_{side}": longest(texts.bounds) for side in "qk"}
        scores = model(**inputs_of(batch) | of_choices).logits[0, texts.numbers]  # (C,)
        edges = torch.searchsorted(texts.begins, batch["cu_seq_lens_q"].long())
        return in_rows(scores, edges, longest(edges) if is_ragged else len(scores), -torch.inf)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(outputs.float(), batch["labels"], reduction="sum")

    def answers(self, outputs: Tensor, batch: Batch) -> list[np.ndarray]:
        return [scores[scores > -np.inf] for scores in outputs.float().cpu().numpy()]


@dataclass(frozen=True)
class MultipleChoiceRecipe(RowsRecipe):
    """The correct one of several texts, given a text."""

    COLUMNS = ColumnFields(("text", "choices"), ("target",))
    TERMS = {"multiple_choice": ("choices", "multiple-choice")}

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

    def as_value(self, column: str, text: str) -> Any:
        return choices_in(text, column) if column == self.choices else text

    def example(self, column: str) -> str:
        return '["one", "another"]' if column == self.choices else super().example(column)

    def build(self, facts: Facts | None = None) -> "MultipleChoice":
        return MultipleChoice(self, facts)


class MultipleChoice(Task):
    """Which of several texts goes with a text."""

    title = "Multiple choice"
    head = "ForMultipleChoice"
    metrics = {"accuracy": True, "loss": False}
    recipe: MultipleChoiceRecipe

    def require_inputs(self, rows: Dataset) -> None:
        texts_of(rows, self.recipe.text)
        self.choices_of(rows)

    def require_labels(self, rows: Dataset) -> None:
        self.references(rows)

    def require_consistent(self, rows: Dataset) -> None:
        choices = rows[self.recipe.choices]
        sizes = [len(own) if isinstance(own, list) else 0 for own in choices]
        column = self.recipe.target
        require_from_zero(values := rows[column][:], sizes, column)
        remedy = "subtract 1 from each of its numbers"
        tell_of_no_first([number_of(value) for value in values], sizes, f"column {column!r}", remedy)

    def find(self, train: Dataset) -> Facts:
        return {"most_frequent": Counter(self.references(train)).most_common(1)[0][0]}

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        separate_pairs(tokenizer)

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        choices = self.choices_of(rows)
        counts = np.array([len(own) for own in choices])
        texts = zip(texts_of(rows, self.recipe.text), choices, strict=True)
        each_text = [text for text, own in texts for _ in own]
        pairs = encoder.encode(each_text, list(chain.from_iterable(choices)))
        fields = {name: joined(field, counts) for name, field in pairs.items()}
        fields["choice_lengths"] = Ragged(pairs["input_ids"].lengths, counts)
        if labelled:
            fields["labels"] = numbers(np.array(self.references(rows)))
        return LabelledExamples(fields)

    def choices_of(self, rows: Dataset) -> Sequence[list[str]]:
        """Return the choices of each row."""
        column = self.recipe.choices
        for row, own in enumerate(choices := values_of(rows, column)):
            if not isinstance(own, list) or len(own) < 2:
                raise RowError(
                    row, f"has no list of two or more in column {column!r} ({own!r:.60}): correct it"
                )
            for choice in own:
                if not isinstance(choice, str) or not choice.strip():
                    raise RowError(
                        row,
                        f"has {choice!r} in column {column!r}, which is no text: correct it",
                        f"has a choice in column {column!r} that is no text",
                    )
        return choices

    def references(self, rows: Dataset) -> list[int]:
        column = self.recipe.target
        values, right = values_of(rows, column), []
        for row, (value, own) in enumerate(zip(values, self.choices_of(rows), strict=True)):
            number = number_of(value)
            if number is None or number != int(number) or not 0 <= number < len(own):
                raise RowError(
                    row,
                    f"has {value!r} in column {column!r}, but choices 0 to {len(own) - 1}: correct it",
                    f"has no number of a choice in column {column!r}",
                )
            right.append(int(number))
        return right

    def objective(self) -> MultipleChoiceObjective:
        return MultipleChoiceObjective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        return [prediction(softmax(scores.astype(np.float64))) for scores in answers]

    def score(self, predictions: Predictions, references: Sequence[int]) -> dict[str, float]:
        found = np.array([each["choice"] for each in predictions])
        return {"accuracy": float(np.mean(found == np.asarray(references)))}

    def plain(self, predictions: Predictions, references: Sequence[int]) -> tuple[list[Any], list[Any]]:
        return [each["choice"] for each in predictions], [int(each) for each in references]

    def error(self, predictions: Predictions, references: Sequence[int]) -> np.ndarray:
        # how much surer the model was of its choice than of the right one
        pairs = zip(predictions, references, strict=True)
        return np.array([each["scores"][each["choice"]] - each["scores"][right] for each, right in pairs])

    def sureness(self, predictions: Predictions) -> np.ndarray:
        return np.array([each["scores"][each["choice"]] for each in predictions])

    def format_prediction(self, prediction: Prediction) -> str:
        return f"{prediction['choice']} ({prediction['scores'][prediction['choice']]:.0%})"

    def format_reference(self, reference: int) -> str:
        return str(reference)

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        usual = self.facts["most_frequent"]
        return [prediction(np.eye(len(own))[min(usual, len(own) - 1)]) for own in self.choices_of(rows)]


def joined(field: Ragged, counts: np.ndarray) -> Ragged:
    """Make one array of as many as `counts` (S,) says, which lie end to end already."""
    return Ragged(field.values, np.add.reduceat(field.lengths, boundaries(counts)[:-1]))


def prediction(probabilities: np.ndarray) -> Prediction:
    return {"choice": int(probabilities.argmax()), "scores": np.round(probabilities, DIGITS).tolist()}


def choices_in(text: str, column: str) -> list[Any]:
    """Read a list of choices that is written as JSON.

    >>> choices_in('["yes", "no"]', "choices")
    ['yes', 'no']
    """
    try:
        choices = json.loads(text)
    except ValueError:
        choices = None
    if not isinstance(choices, list):
        raise ValueError(f'{column} is {text!r:.60}: write a list of texts as JSON, such as ["yes", "no"]')
    return choices
