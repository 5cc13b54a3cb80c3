"""Predicting the rows of a file, however many: they are read, asked about and written a thousand at a time.

    FILE (.jsonl, .csv, ..., or - for lines of JSON on standard input)
      -> rows -> examples -> answers -> predictions -> one line of JSON for each row, in their order

A run that was stopped goes on behind the last whole line that it wrote.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

import torch
from datasets import Dataset, IterableDataset

from .. import modeling
from ..interop.messages import quietly
from ..interop.model_folder import find_folder, load_config, load_tokenizer
from ..modeling import TercetPreTrainedModel
from ..training.disk import explaining_a_full_disk, replace_text
from ..training.precision import products_in
from .answers import predict
from .encoding import TextEncoder
from .row_error import RowError
from .row_stream import STANDARD, stream_rows
from .splits import encoder_of
from .task import Prediction, Task
from .tasks import load_task

ROWS_AT_ONCE = 1024
"""Rows that are read, predicted and written together: enough to sort by length."""

ORIGIN = ".origin"
"""Ending of the file that says what an unfinished file of predictions is made of."""


class Predictor:
    """A fine-tuned model and everything it takes to ask it.

    Args:
        folder: Where `tercet finetune` left it.
        device: Where it runs.
        precision: `fp32`, or `bf16` for the products.

    Raises:
        ValueError: The folder does not say what the model can do.
    """

    def __init__(self, folder: Path, device: torch.device, precision: str = "fp32"):
        self.task: Task = load_task(folder)
        config = load_config(folder)
        model_class = getattr(modeling, (config.architectures or [""])[0], None)
        tokenizer = load_tokenizer(folder)
        if model_class is None or tokenizer is None:
            raise ValueError(f"{folder} has no model of Tercet's with a tokenizer: name a fine-tuned one")
        with quietly():
            self.model: TercetPreTrainedModel = model_class.from_pretrained(folder).to(device).eval()
        self.encoder: TextEncoder = encoder_of(self.model, tokenizer, None)
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
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    predictor = Predictor(folder, device, precision)
    rows = stream_rows(source, predictor.task.inputs_in(predictor.task.recipe))
    if output == STANDARD:
        return sum(write(lines, sys.stdout) for lines in predicted(predictor, rows, 0))
    path = Path(output).expanduser()
    origin = {"model": fingerprint(folder), "source": source, "precision": precision}
    done = begin(path, origin, resume=resume, overwrite=overwrite)
    with open(path, "a", encoding="utf-8") as file, explaining_a_full_disk(path, 0, "continue with --resume"):
        new = sum(write(lines, file) for lines in predicted(predictor, rows, done))
    origin_of(path).unlink()
    return done + new


def predicted(predictor: Predictor, rows: IterableDataset, done: int) -> Iterator[list[Prediction]]:
    """Predict rows a thousand at a time, all but the first `done`.

    Raises:
        ValueError: A row cannot be read.
    """
    for number, chunk in enumerate(rows.skip(done).iter(ROWS_AT_ONCE)):
        try:
            yield predictor.predict(Dataset.from_dict(cast(dict, chunk)))
        except RowError as error:
            raise error.moved(done + number * ROWS_AT_ONCE) from None


def write(predictions: list[Prediction], file: TextIO) -> int:
    """Write predictions, a line each, so that they are there whatever happens next; count them."""
    file.writelines(f"{json.dumps(prediction, ensure_ascii=False)}\n" for prediction in predictions)
    file.flush()
    return len(predictions)


def begin(path: Path, origin: dict[str, Any], *, resume: bool, overwrite: bool) -> int:
    """Prepare the file that predictions go to; count the rows that are in it.

    Raises:
        ValueError: It exists and is not to be continued, or is made of something else.
    """
    if path.exists() and not overwrite:
        if not resume:
            raise ValueError(f"{path} exists: choose another --output, or add --resume or --overwrite")
        if not origin_of(path).exists():
            raise ValueError(f"{path} is complete, or no file of predictions: add --overwrite to replace it")
        if json.loads(origin_of(path).read_text(encoding="utf-8")) != origin:
            raise ValueError(f"{path} was begun with another model, file or precision: add --overwrite")
        return keep_whole_lines(path)
    replace_text(origin_of(path), json.dumps(origin) + "\n")
    path.write_bytes(b"")
    return 0


def keep_whole_lines(path: Path) -> int:
    """Cut off a line that was not finished; count the others."""
    size, lines = 0, 0
    with path.open("rb+") as file:
        for line in file:
            if line.endswith(b"\n"):
                size, lines = size + len(line), lines + 1
        file.truncate(size)
    return lines


def origin_of(path: Path) -> Path:
    """Name the file beside predictions that says what they are made of."""
    return path.with_name(path.name + ORIGIN)


def fingerprint(folder: Path) -> str:
    """Tell a model from others by its weights and configuration."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), folder / "config.json", folder / "task.json"]):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
