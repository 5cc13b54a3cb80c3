"""One file of a corpus: its rows, whatever its format and compression, or one line that says what is wrong.

The readers are those of `datasets`, in streaming mode: nothing is copied, nothing must fit into memory.
"""

import logging
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import fsspec
import zstandard
from datasets import Dataset, IterableDataset, load_dataset

Row = Mapping[str, Any]
"""Contents of a row by the names of the columns."""

READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".txt": ("text", {"encoding": "utf-8-sig"}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t"}),
    ".parquet": ("parquet", {}),
}
"""Ending of a file -> the builder of `datasets` that reads it, and that builder's options."""

COMPRESSIONS = (".gz", ".zst")
KNOWN_ENDINGS = f"{', '.join(READERS)} (each also with {' or '.join(COMPRESSIONS)})"
ROWS_AT_ONCE = 1000

# Its readers log a broken file before they raise: the user would be told twice.
logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)


def rows_of_file(file: Path) -> Iterator[Row]:
    """Read the rows of a file. In a `.txt` file, the lines between two blank ones are the `text` of a row.

    Raises:
        ValueError: The file is broken; the message names it.
    """
    try:
        yield from _rows_of_text(file) if ending(file) == ".txt" else _rows_of_table(file)
    except UnicodeDecodeError as error:
        byte = f"0x{error.object[error.start]:02x}"
        raise ValueError(
            f"{file} is not UTF-8 (byte {byte}): convert it, e.g. with iconv -t utf-8"
        ) from error
    except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
        raise ValueError(f"{file} cannot be read ({first_line(error)}): copy or pack it again") from error
    except _ReadingError as error:
        reason = first_line(error.__cause__)
        raise ValueError(f"{file} is not valid {ending(file)} ({reason}): correct the file") from error


def rows_of_dataset(dataset: Dataset | IterableDataset) -> Iterator[Row]:
    """Read the rows of a data set in the order of its files."""
    for columns in cast(Iterator[dict[str, list[Any]]], dataset.iter(batch_size=ROWS_AT_ONCE)):
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))


def ending(path: Path) -> str:
    """Give the ending of a file's name without its compression, in lower case."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix in COMPRESSIONS else name.suffix


def first_line(error: BaseException | None) -> str:
    """Shorten what an error says to its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class _ReadingError(Exception):
    """A reader of `datasets` refused a file; its cause says why."""


def _rows_of_text(file: Path) -> Iterator[Row]:
    lines = (row["text"] for row in _rows_of_table(file))
    return ({"text": "\n".join(group)} for has_text, group in groupby(lines, _has_text) if has_text)


def _has_text(line: str) -> bool:
    return bool(line.strip())


def _rows_of_table(file: Path) -> Iterator[Row]:
    builder, options = READERS[ending(file)]
    if file.suffix.lower() == ".zst":
        _raise_if_cut_off(file)
    with tempfile.TemporaryDirectory() as folder:
        readable = _unpacked(file, Path(folder)) if builder == "parquet" else file
        try:
            yield from rows_of_dataset(
                load_dataset(builder, data_files=str(readable), split="train", streaming=True, **options)
            )
        except (UnicodeDecodeError, OSError, EOFError, zlib.error, zstandard.ZstdError):
            raise
        except Exception as error:  # each reader has exceptions of its own (pyarrow, pandas, json)
            raise _ReadingError from error


def _unpacked(file: Path, folder: Path) -> Path:
    """Unpack a Parquet file: its reader begins at the end, and compressed files are read forwards."""
    if file.suffix.lower() not in COMPRESSIONS:
        return file
    unpacked = folder / "unpacked.parquet"
    with fsspec.open(str(file), "rb", compression="infer") as packed, unpacked.open("wb") as target:
        shutil.copyfileobj(packed, target)  # pyright: ignore[reportArgumentType]
    return unpacked


def _raise_if_cut_off(file: Path) -> None:
    """Raise an error if a Zstandard file is incomplete: its readers take that for the end of the text."""
    frame = None
    with file.open("rb") as packed:
        while chunk := packed.read(2**20):
            while chunk:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                frame.decompress(chunk)
                chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("it breaks off")
