"""Predicting the rows of a file, however many: they are read, predicted and written a thousand at a time.

    FILE (.jsonl, .csv, ..., or - for lines of JSON on standard input)
      -> rows -> examples -> answers -> predictions -> one line of JSON for each row, in their order

A run that was stopped goes on behind what it has written. The file of predictions is whole or not there, and
continued only with what it was begun with.

What is unfinished is called `.NAME.partial`, and gets its name when the last row is predicted. Beside it,
`.NAME.origin` says of which model and which rows it is made, by their contents, and how far it is.
`.NAME.lock` keeps other processes away.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO, cast

import torch
from datasets import Dataset, IterableDataset
from torch import nn

from ..modeling import TercetPreTrainedModel
from ..storage.model_folder import find_folder, load_tokenizer
from ..storage.own_model import load_ours
from ..text.bad_records import RowError
from ..text.record_files import require_columns
from ..text.row_files import as_rows
from ..text.rows import STANDARD, stream_rows
from ..training.disk import explaining_a_full_disk, flush, partial_path, replace_text
from ..training.inputs import require_apart
from ..training.lock import locked
from ..training.manifest import hash_of
from ..training.precision import products_in
from .encoding import TextEncoder
from .evaluation import predict
from .splits import encoder_of
from .task import MAX_LENGTH, Prediction, Task
from .tasks import load_task

READ = (".safetensors", ".json", ".txt", ".model", ".jinja")
"""Endings of the files of a model by which it is told from others."""


@dataclass
class Origin:
    """What predictions are made of."""

    model: str
    """Hash of the model."""
    precision: str
    """Number format of products."""
    num_rows: int = 0
    """Rows that are predicted."""
    rows: str = ""
    """Hash of their contents."""

    def add(self, row: dict[str, Any]) -> None:
        """Take up one row more."""
        contents = self.rows + json.dumps(row, sort_keys=True, default=repr)
        self.rows = hashlib.sha256(contents.encode()).hexdigest()
        self.num_rows += 1


@dataclass(frozen=True)
class PredictionFile:
    """A file that predictions are written to."""

    path: Path
    """What it is called when it is complete."""
    model: Path
    """Folder of the model."""
    source: str
    """Where the rows are from."""
    precision: str
    """Number format of products."""

    @property
    def partial(self) -> Path:
        """What it is called before."""
        return partial_path(self.path)

    @property
    def origin(self) -> Path:
        """The file that says what it is made of."""
        return self.path.with_name(f".{self.path.name}.origin")

    @contextmanager
    def alone(self, *, resume: bool, overwrite: bool) -> Iterator[Origin]:
        """Hold the file for as long as it is written, and find what it has come to so far.

        Raises:
            ValueError: It is what is read, or in use, or there and not to be replaced, or was begun with
                something else.
        """
        self.require_apart()
        lock = self.path.with_name(f".{self.path.name}.lock")
        with locked(lock, f"--output {self.path}", "another --output"):
            self.require_replaceable(resume=resume, overwrite=overwrite)
            present = Origin(fingerprint(self.model), self.precision)
            is_continued = resume and not overwrite and self.partial.exists()
            yield self.continued(present) if is_continued else present

    @contextmanager
    def unfinished(self, earlier: Origin) -> Iterator[TextIO]:
        """Open the file behind what it has come to; it gets its name in the end.

        Raises:
            WriteError: The system does not write it; what was predicted is kept.
        """
        remedy = "continue with --resume; the rows that were predicted are kept"
        with explaining_a_full_disk(self.path, None, remedy):
            if not earlier.num_rows:
                self.note(earlier)
            with open(self.partial, "a" if earlier.num_rows else "w", encoding="utf-8") as file:
                yield file
            flush(self.partial)
            self.partial.replace(self.path)
            self.origin.unlink()

    def note(self, present: Origin) -> None:
        """Note what the file has come to, all of which is written."""
        if self.partial.exists():
            flush(self.partial)
        replace_text(self.origin, json.dumps(asdict(present)) + "\n")

    def require_apart(self) -> None:
        """Raise a `ValueError` if the file is what is read, or lies in no folder, or in that of the model."""
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise ValueError(f"--output {self.path} is in a folder that does not exist: create it first")
        if folder.resolve() == self.model.resolve():
            raise ValueError(f"--output {self.path} lies in the model {self.model}: choose another --output")
        texts = {} if self.source == STANDARD else {"FILE": self.source}
        require_apart(folder, [self.path.name], {"MODEL": str(self.model)}, texts)

    def require_replaceable(self, *, resume: bool, overwrite: bool) -> None:
        """Raise a `ValueError` if there is something that is not to be replaced or continued."""
        path = self.path
        if path.exists() and not overwrite:
            nothing = ", so there is nothing to resume" if resume else ""
            raise ValueError(f"{path} exists{nothing}: choose another --output, or add --overwrite")
        if path.exists() and not holds_predictions(path):
            raise ValueError(f"{path} is no file of predictions: choose another --output")
        if self.partial.exists() and not (resume or overwrite):
            raise ValueError(f"{path} is unfinished: add --resume or --overwrite")

    def continued(self, present: Origin) -> Origin:
        """Find what the file has come to, and cut off what is behind that.

        Raises:
            ValueError: It was begun with another model, or is damaged.
        """
        try:
            earlier = Origin(**json.loads(self.origin.read_text(encoding="utf-8")))
            with self.partial.open("rb+") as file:
                lines = sum(1 for _ in zip(range(earlier.num_rows), file, strict=False))
                file.truncate(file.tell())
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(
                f"the record of {self.path} cannot be read ({error}): add --overwrite to start again"
            ) from error
        if (earlier.model, earlier.precision) != (present.model, present.precision):
            raise ValueError(f"{self.path} was started with another model or precision: add --overwrite")
        if lines != earlier.num_rows:
            raise ValueError(
                f"{self.partial} has {lines:,} of {earlier.num_rows:,} lines: add --overwrite to start again"
            )
        return earlier


def require_same_rows(present: Origin, earlier: Origin, source: str) -> None:
    """Raise a `ValueError` unless the rows are those that an earlier run has predicted."""
    if (present.num_rows, present.rows) != (earlier.num_rows, earlier.rows):
        raise ValueError(
            f"the first {earlier.num_rows:,} rows of {source} are not those that were predicted before: add "
            f"--overwrite to start again"
        )


def holds_predictions(path: Path) -> bool:
    """Return whether a file is empty, or its first line is a JSON object."""
    if not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8") as file:
            line = file.readline()
        return not line or isinstance(json.loads(line), dict)
    except ValueError:
        return False


def fingerprint(folder: Path) -> str:
    """Hash a model: its weights, its configuration and its tokenizer."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.suffix in READ):
        if not file.name.startswith("."):
            digest.update(hash_of(file).encode())
    return digest.hexdigest()


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
        tokenizer = load_tokenizer(folder)
        if tokenizer is None:
            raise ValueError(f"{folder} has no tokenizer: name a fine-tuned model")
        model = load_ours(str(folder))
        self.model = cast(TercetPreTrainedModel, nn.Module.to(model, device))
        self.encoder: TextEncoder = encoder_of(self.model, tokenizer, self.task.facts[MAX_LENGTH])
        self.device = device
        self.precision = precision

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        return self.task.recipe.input_columns

    def predict(self, rows: Dataset) -> list[Prediction]:
        """Predict rows."""
        with products_in(self.precision, self.device):
            return predict(self.model, self.task, rows, self.encoder)


def load_predictor(model: str, precision: str = "fp32") -> Predictor:
    """Load a fine-tuned model by its folder or Hub id, onto the GPU if there is one.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: As in `Predictor`.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Predictor(find_folder(model, None), device, precision)


def predict_rows(predictor: Predictor, rows: Dataset, source: str) -> list[Prediction]:
    """Predict rows that are in memory.

    Args:
        predictor: The model.
        rows: With the columns that it reads, and perhaps others.
        source: What they are called, for messages.

    Raises:
        ValueError: They lack a column, or a row cannot be read.
    """
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
            predictor, rows = prepare(model, source, precision)
            made = Origin("", precision), Origin("", precision)
            return sum(write(lines, sys.stdout) for lines in predicted(predictor, source, rows, *made))
    file = PredictionFile(Path(output).expanduser(), folder, source, precision)
    with file.alone(resume=resume, overwrite=overwrite) as earlier, naming_rows(source):
        predictor, rows = prepare(model, source, precision)
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


def prepare(model: str, source: str, precision: str) -> tuple[Predictor, IterableDataset]:
    """Load a model, and find the rows that it is to read."""
    predictor = load_predictor(model, precision)
    return predictor, stream_rows(source, predictor.columns)


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
