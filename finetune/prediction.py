"""Predicting the rows of a file, however many: they are read, predicted and written a thousand at a time.

    FILE (.jsonl, .csv, ..., or - for lines of JSON on standard input)
      -> rows -> examples -> answers -> predictions -> the same rows, each with its prediction behind it

A file of predictions is whole, or not there: it is written beside, and gets its name when the last row is
predicted. `.NAME.lock` keeps other processes away.
"""

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import cast

import torch
from datasets import Dataset
from torch import nn

from ..data.files.bad_rows import RowError
from ..data.files.columns import as_rows
from ..data.files.locks import locked
from ..data.files.problems import Row
from ..data.files.reading import require_columns
from ..data.files.row_writers import LineWriter, RowWriter, require_ending, require_writable, writing_rows
from ..data.files.rows import STANDARD, stream_rows
from ..modeling import TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint
from ..training.devices.precision import products_in
from ..training.finite_numbers import finite_outputs
from ..training.ownership import require_replaceable
from .encoding import TextEncoder
from .evaluation import TOKENS_AT_ONCE, prediction_loop
from .splits import encoder_of
from .tasks.tagging import Tagging
from .tasks.task import MAX_LENGTH, Prediction, Task, load_task

ROWS_AT_ONCE = 1024
"""Rows that are read, predicted and written together: enough to sort by length."""


class Predictor:
    """A fine-tuned model and everything it takes to ask it, on the GPU if there is one."""

    def __init__(self, checkpoint: Checkpoint, precision: str = "fp32"):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.task: Task = load_task(checkpoint.folder)
        tokenizer = checkpoint.required_tokenizer()
        self.model = cast(TercetPreTrainedModel, nn.Module.to(checkpoint.ours(), self.device))
        self.encoder: TextEncoder = encoder_of(self.model, tokenizer, self.task.facts[MAX_LENGTH])
        self.precision = precision

    @property
    def columns(self) -> tuple[str, ...]:
        return self.task.recipe.input_columns

    def predict(self, rows: Dataset) -> list[Prediction]:
        with products_in(self.precision, self.device):
            return predict(self.model, self.task, rows, self.encoder)


def predict(
    model: nn.Module, task: Task, rows: Dataset, encoder: TextEncoder, tokens_at_once: int = TOKENS_AT_ONCE
) -> list[Prediction]:
    """Predict rows that need no labels."""
    examples = task.examples(rows, encoder, labelled=False)
    with finite_outputs(model):
        answers, _ = prediction_loop(model, task.objective_for(model), examples, tokens_at_once)
    return task.predictions(answers, rows)


def predict_rows(predictor: Predictor, rows: Dataset, source: str) -> list[Prediction]:
    """Predict rows that are in memory."""
    require_columns(source, rows.column_names, predictor.columns)
    read = rows.select_columns(list(predictor.columns))
    found: list[Prediction] = []
    with naming_rows(source):
        for first in range(0, len(read), ROWS_AT_ONCE):
            try:
                found += predictor.predict(read.select(range(first, min(first + ROWS_AT_ONCE, len(read)))))
            except RowError as error:
                raise error.moved(first) from None
    return found


def predict_file(
    model: str, source: str, output: str, *, overwrite: bool = False, precision: str = "fp32"
) -> int:
    """Predict every row of a file, write the rows with their predictions, and tell so; count the rows.

    Args:
        model: Folder or Hub id of a model that `tercet finetune` made.
        source: The rows, with the columns that the model reads, and others; `-` is standard input.
        output: Receives the rows, in the format that its ending names; `-` is standard output.
        overwrite: Replace an earlier file.
        precision: `fp32` or `bf16`.
    """
    if output == STANDARD:
        return answer(Checkpoint.open(model), source, precision, LineWriter(sys.stdout))
    path = Path(output).expanduser()
    require_ending(output)
    checkpoint = Checkpoint.open(model)
    require_replaceable([path], checkpoint.folder, source, overwrite=overwrite)
    if source != STANDARD:
        require_writable(stream_rows(source, (), with_others=True), output)
    lock = path.with_name(f".{path.name}.lock")
    with locked(lock, f"--output {path}", "another --output"), writing_rows(path) as writer:
        return answer(checkpoint, source, precision, writer, output)


def answer(
    checkpoint: Checkpoint, source: str, precision: str, writer: RowWriter, output: str = "each line"
) -> int:
    """Write the rows of a file with their predictions, and tell what the output has; count the rows."""
    name, num_rows, told = "standard input" if source == STANDARD else source, 0, ""
    with naming_rows(name):
        predictor = Predictor(checkpoint, precision)
        echoed = predictor.columns if isinstance(predictor.task, Tagging) else ()
        stream = stream_rows(source, predictor.columns, with_others=True)
        for rows, predictions in predicted(predictor, stream):
            writer.write([answered(*each, echoed) for each in zip(rows, predictions, strict=True)])
            if not num_rows:
                told = columns_told(rows[0], predictions[0], echoed)
            num_rows += len(rows)
    told = f": {output} has the columns of {name}, then {told}" if told else ""
    print(f"{num_rows:,} {'row' if num_rows == 1 else 'rows'} answered{told}", file=sys.stderr)
    return num_rows


def answered(row: Row, prediction: Prediction, echoed: Collection[str] = ()) -> Row:
    """Put a prediction behind its row, whose own columns of the same names become `given_...`, unless echoed.

    >>> answered({"text": "a", "label": "x"}, {"label": "y", "score": 0.9})
    {'text': 'a', 'given_label': 'x', 'label': 'y', 'score': 0.9}
    """
    taken, own = prediction.keys() - {*echoed}, {}
    for name, value in row.items():
        called = name
        while called in taken or (called != name and called in row):
            called = f"given_{called}"
        own[called] = value
    return own | prediction


def columns_told(row: Row, prediction: Prediction, echoed: Collection[str]) -> str:
    """Name the columns that a prediction adds, and those of its row that it renames."""
    added = [name for name in prediction if name not in echoed]
    renamed = [name for name in added if name in row]
    own = f" (its own {', '.join(renamed)} with given_ before the name)" if renamed else ""
    return f"{', '.join(added)}{own}"


@contextmanager
def naming_rows(source: str) -> Iterator[None]:
    """Let errors about a row say where it is from."""
    try:
        yield
    except RowError as error:
        raise ValueError(f"{source}: {error}") from None


def predicted(predictor: Predictor, rows: Iterable[Row]) -> Iterator[tuple[list[Row], list[Prediction]]]:
    """Predict rows a thousand at a time."""
    rows, begins = iter(rows), 0
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        read = {column: [row.get(column) for row in chunk] for column in predictor.columns}
        try:
            predictions = predictor.predict(as_rows(read))
        except RowError as error:
            raise error.moved(begins) from None
        yield chunk, predictions
        begins += len(chunk)
