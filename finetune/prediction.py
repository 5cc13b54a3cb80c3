"""Predicting the rows of a file, however many: they are read, predicted and written a thousand at a time.

    FILE (.jsonl, .csv, ..., or - for lines of JSON on standard input)
      -> rows -> examples -> answers -> predictions -> one line of JSON for each row, in their order

A run that was stopped goes on behind what it has written (`prediction_file.py`).
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, cast

import torch
from datasets import Dataset, IterableDataset
from torch import nn

from ..interop.model_folder import find_folder, load_tokenizer
from ..interop.own_model import load_ours
from ..modeling import TercetPreTrainedModel
from ..text.bad_records import RowError
from ..text.columns import as_rows
from ..text.row_stream import STANDARD, stream_rows
from ..training.precision import products_in
from .encoding import TextEncoder
from .evaluation import predict
from .prediction_file import Origin, PredictionFile, require_same_rows
from .splits import encoder_of
from .task import MAX_LENGTH, Prediction, Task
from .tasks import load_task

ROWS_AT_ONCE = 1024
"""Rows that are read, predicted and written together: enough to sort by length."""


class Predictor:
    """A fine-tuned model and everything it takes to ask it.

    Args:
        folder: Where `tercet finetune` left it.
        device: Where it runs.
        precision: `fp32`, or `bf16` for the products.

    Raises:
        ValueError: The folder does not say what the model can do, has no tokenizer, or as in `load_ours`.
    """

    def __init__(self, folder: Path, device: torch.device, precision: str = "fp32"):
        self.task: Task = load_task(folder)
        if MAX_LENGTH not in self.task.facts:
            raise ValueError(
                f"{folder} was made by an earlier version, which did not keep how many tokens of a row the "
                "model reads: fine-tune it again"
            )
        tokenizer = load_tokenizer(folder)
        if tokenizer is None:
            raise ValueError(f"{folder} has no tokenizer: name a fine-tuned model")
        model = load_ours(str(folder))
        self.model = cast(TercetPreTrainedModel, nn.Module.to(model, device))
        self.encoder: TextEncoder = encoder_of(self.model, tokenizer, self.task.facts[MAX_LENGTH])
        self.device = device
        self.precision = precision

    def predict(self, rows: Dataset) -> list[Prediction]:
        """Predict rows."""
        with products_in(self.precision, self.device):
            return predict(self.model, self.task, rows, self.encoder)


def predict_file(
    model: str,
    source: str,
    output: str,
    *,
    resume: bool = False,
    overwrite: bool = False,
    precision: str = "fp32",
) -> int:
    """Predict every row of a file and write the predictions; return how many rows there were.

    Args:
        model: Folder or Hub id of a model that `tercet finetune` made.
        source: The rows, with the columns that the model reads; `-` is standard input.
        output: Receives a line of JSON for each row; `-` is standard output.
        resume: Continue an unfinished file.
        overwrite: Replace one.
        precision: `fp32` or `bf16`.

    Raises:
        FileNotFoundError: There is no such file or model.
        ValueError: The model is none that was fine-tuned, the file lacks a column, a row cannot be read, or
            the output exists.
        DiskFullError: There is no room; what was written is intact.
    """
    folder = find_folder(model, None)
    if output == STANDARD:
        with naming_rows(source):
            predictor, rows = prepare(folder, source, precision)
            made = Origin("", precision), Origin("", precision)
            return sum(write(lines, sys.stdout) for lines in predicted(predictor, source, rows, *made))
    file = PredictionFile(Path(output).expanduser(), folder, source, precision)
    with file.alone(resume=resume, overwrite=overwrite) as earlier, naming_rows(source):
        predictor, rows = prepare(folder, source, precision)
        present = replace(earlier, num_rows=0, rows="")
        with file.unfinished(earlier) as lines:
            for predictions in predicted(predictor, source, rows, present, earlier):
                write(predictions, lines)
                file.note(present)
        return present.num_rows


@contextmanager
def naming_rows(source: str) -> Iterator[None]:
    """Let errors about a row say where it is from."""
    try:
        yield
    except RowError as error:
        name = "standard input" if source == STANDARD else source
        raise ValueError(f"{name}: {error}") from None


def prepare(folder: Path, source: str, precision: str) -> tuple[Predictor, IterableDataset]:
    """Load a model, and find the rows that it is to read."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    predictor = Predictor(folder, device, precision)
    return predictor, stream_rows(source, predictor.task.recipe.input_columns)


def predicted(
    predictor: Predictor, source: str, rows: IterableDataset, present: Origin, earlier: Origin
) -> Iterator[list[Prediction]]:
    """Predict rows a thousand at a time, all but those that an earlier run has predicted.

    Args:
        predictor: The model.
        source: Where the rows are from.
        rows: All of them.
        present: Takes up the rows; it begins with none.
        earlier: What the earlier run has come to.

    Raises:
        ValueError: A row cannot be read, or the earlier run has predicted others.
    """
    for chunk in rows.iter(ROWS_AT_ONCE):
        columns = cast(dict[str, list[Any]], chunk)
        begins = present.num_rows
        for values in zip(*columns.values(), strict=True):
            present.add(dict(zip(columns, values, strict=True)))
            if present.num_rows == earlier.num_rows:
                require_same_rows(present, earlier, source)
        skipped = max(earlier.num_rows - begins, 0)
        if present.num_rows <= earlier.num_rows:
            continue
        try:
            rest = {name: values[skipped:] for name, values in columns.items()}
            yield predictor.predict(as_rows(rest))
        except RowError as error:
            raise error.moved(begins + skipped) from None
    if present.num_rows < earlier.num_rows:
        require_same_rows(present, earlier, source)


def write(predictions: list[Prediction], file: TextIO) -> int:
    """Write predictions, a line each, so that they are there whatever happens next; count them."""
    file.writelines(f"{json.dumps(prediction, ensure_ascii=False)}\n" for prediction in predictions)
    file.flush()
    return len(predictions)
