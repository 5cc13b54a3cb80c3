"""`tercet embed`: the texts of a file become vectors in a file, a row for a row, in their order.

    FILE     .txt: a line is a text; .csv .tsv .jsonl .json .parquet: a column; -: lines of JSON
    OUTPUT   .npy: an array (E, C) of float32, which numpy maps into memory
             .parquet: the texts, and a column `embedding` of lists of C numbers, as datasets reads them
    index    OUTPUT with the ending .faiss: nearest neighbours by cosine, numbered as the rows are

Texts are read and written some thousand at a time, so that a file may have any size. A file gets its name
when it is whole; until then, what was there stays.

The index is faiss's, a hierarchy of graphs (Malkov and Yashunin, 2016), of vectors of length 1, whose inner
products are cosines. `datasets.Dataset.load_faiss_index` puts it beside the table.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow
from pyarrow.parquet import ParquetWriter

from ...data.files.atomic_writes import written_beside
from ...data.files.bad_rows import RowError
from ...data.files.columns import text_of
from ...data.files.compressed_files import ending, lines_of, problem_of_bytes
from ...data.files.problems import Limit, Tally, foreign_character, usable
from ...data.files.reading import TEXT_LINES, Numbered, find_file, naming_keys, read
from ...data.files.rows import STANDARD, stream_rows
from ...training.ownership import require_replaceable
from .embedding import load_embedder

TEXTS_AT_ONCE = 2**13
"""Texts that are read, sorted by length, embedded and written together."""

TEXT, EMBEDDING = "text", "embedding"
"""The column of texts unless another is named, and that of vectors."""

INDEX = ".faiss"
"""Ending of the file of an index."""

LINKS = 32
"""Neighbours of a vector in the graphs of an index."""


class Embedded(NamedTuple):
    """What was written."""

    files: list[Path]
    """The vectors, and an index if there is one."""
    num_texts: int
    """How many vectors there are."""
    width: int
    """Numbers of a vector."""
    seconds: float
    """From the first text to the last vector, without loading the model."""


class VectorWriter(Protocol):
    """Writes vectors into a file, some at a time."""

    def write(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Append vectors (E, C), and the texts that they are of."""
        ...

    def close(self) -> None: ...


class ArrayWriter:
    """An array of numpy, whose number of rows is filled in at the end."""

    def __init__(self, path: Path, width: int, column: str):
        self.file: BinaryIO = path.open("wb")
        self.rows, self.width = 0, width
        self.write_header()

    def write_header(self) -> None:
        """Write the shape; numpy leaves room for a number of rows that grows."""
        facts: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.width)}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, facts)

    def write(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        self.rows += len(vectors)

    def close(self) -> None:
        self.write_header()
        self.file.close()


class TableWriter:
    """A table of parquet, with the texts beside their vectors."""

    def __init__(self, path: Path, width: int, column: str):
        self.width = width
        kinds = {column: pyarrow.string(), EMBEDDING: pyarrow.list_(pyarrow.float32(), width)}
        self.schema = pyarrow.schema(list(kinds.items()))
        self.writer = ParquetWriter(path, self.schema)

    def write(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), self.width)
        self.writer.write_table(pyarrow.table([pyarrow.array(texts, pyarrow.string()), values], self.schema))

    def close(self) -> None:
        self.writer.close()


class IndexWriter:
    """An index of faiss."""

    def __init__(self, path: Path, width: int, column: str):
        import faiss

        self.path = path
        self.index = faiss.IndexHNSWFlat(width, LINKS, faiss.METRIC_INNER_PRODUCT)

    def write(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.index.add(np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32))

    def close(self) -> None:
        import faiss

        faiss.write_index(self.index, str(self.path))


WRITERS: dict[str, type[ArrayWriter | TableWriter | IndexWriter]] = {
    ".npy": ArrayWriter,
    ".parquet": TableWriter,
    INDEX: IndexWriter,
}
"""By the ending of a file."""

OUTPUTS = (".npy", ".parquet")


def embed_file(
    model: str,
    source: str,
    output: str,
    *,
    column: str = TEXT,
    prompt: str | None = None,
    precision: str = "fp32",
    index: bool = False,
    overwrite: bool = False,
) -> Embedded:
    """Write a vector for each text of a file.

    Args:
        model: As in `load_embedder`.
        source: The file; `-` is lines of JSON on standard input.
        output: A file that ends in `.npy` or `.parquet`.
        column: The texts' name in `source`.
        prompt: Name of the prompt of the model's folder that is put before each text.
        precision: `fp32` or `bf16`.
        index: Write an index of faiss beside the output, too.
        overwrite: Replace earlier files.
    """
    path = Path(output).expanduser()
    files = [path, *([path.with_suffix(INDEX)] if index else [])]
    require_writable(files, output, source, model, column, overwrite=overwrite)
    texts = texts_of_file(source, column)
    first = list(islice(texts, 1))  # what is wrong with the file is said before a model is loaded
    if not first:
        raise named("there is no text: give at least one", source)
    embedder = load_embedder(model, prompt=prompt, precision=precision)
    print(f"each vector: {embedder.describe()}", file=sys.stderr)
    begin, rows = perf_counter(), 0
    with ExitStack() as stack:
        writers = [stack.enter_context(written(file, embedder.width, column)) for file in files]
        for own in chain(first, texts):
            try:
                vectors = embedder.embed(own)
            except RowError as error:
                raise named(error.moved(rows), source) from None
            for writer in writers:
                writer.write(own, vectors)
            rows += len(own)
    return Embedded(files, rows, embedder.width, perf_counter() - begin)


def require_writable(
    files: Sequence[Path], output: str, source: str, model: str, column: str, *, overwrite: bool
) -> None:
    """Raise a `ValueError` if files cannot be written, or are read."""
    if files[0].suffix not in OUTPUTS:
        raise ValueError(f"--output is {output!r}: end its name in {' or '.join(OUTPUTS)}")
    if column == EMBEDDING and files[0].suffix == ".parquet":
        raise ValueError(
            f"--column is {column!r}, as the column of the vectors is called: rename it, or write .npy"
        )
    if len(files) > 1 and find_spec("faiss") is None:
        raise ValueError("--index needs faiss, not installed here: pip install 'tercet[index]'")
    require_replaceable(files, model, source, overwrite=overwrite)


@contextmanager
def written(path: Path, width: int, column: str) -> Iterator[VectorWriter]:
    """Open a writer for a file, which gets its name in the end, or stays as it was."""
    with written_beside(path) as partial:
        writer: VectorWriter = WRITERS[path.suffix](partial, width, column)
        yield writer
        writer.close()


def texts_of_file(source: str, column: str) -> Iterator[list[str]]:
    """Read the texts of a file, some at a time; empty ones are texts, and so are numbers."""
    path = Path(source) if source == STANDARD else find_file(source, others=TEXT_LINES)
    values = lines_of_texts(path, column) if ending(path) in TEXT_LINES else values_of_rows(source, column)
    return in_batches(values, source, column)


def in_batches(values: Iterable[Any], source: str, column: str) -> Iterator[list[str]]:
    """Divide texts, some together; empty ones are texts, and so are numbers."""
    values, row = iter(values), 0
    while batch := list(islice(values, TEXTS_AT_ONCE)):
        texts = [*map(text_of, batch)]
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                complaint = f"has no text in column {column!r} ({text!r:.60}): take it out, or fill it in"
                raise named(RowError(row + place, complaint), source)
            if character := foreign_character(text):
                complaint = f"holds U+{ord(character):04X}, which is no character of a text: take it out"
                raise named(RowError(row + place, complaint), source)
        yield texts
        row += len(texts)


def lines_of_texts(path: Path, column: str) -> Iterator[str]:
    """Read the lines of a file."""
    if column != TEXT:
        raise ValueError(f"--column is {column!r}, but {path} has lines and no columns: leave it out")
    records = read(path, (), reader=rows_of_lines)
    for _, row in usable(records, Tally(), lambda row: "", "correct it", skip=False):
        yield row[TEXT]


def rows_of_lines(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    """Read the lines of a text, each of which is a record, blank ones too."""
    for number, line in lines_of(file, limit):
        too_long = limit.problem() if len(line) > limit.characters else ""
        yield number, too_long or problem_of_bytes(line, file) or {TEXT: line.removesuffix("\n")}


def values_of_rows(source: str, column: str) -> Iterator[Any]:
    """Read a column of a file of rows, or of lines of JSON on standard input."""
    with naming_keys({column: "--column"}):
        for row in stream_rows(source, [column]):
            yield row[column]


def named(problem: object, source: str) -> ValueError:
    return ValueError(f"{'standard input' if source == STANDARD else source}: {problem}")
