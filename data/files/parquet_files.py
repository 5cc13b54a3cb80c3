"""The records of a parquet file, one row after another, as long as a file of its size may hold so much.

A column is stored as its different values, the dictionary, and for each row the number of one: a file of a
kilobyte may name one text of a megabyte five thousand times. The file says how much its pages hold; how much
the values of some rows are together is counted before any of them is made. More than `most_bytes` is refused.

Dictionaries of small groups of rows are read as such, once. Their reader keeps what it has met up to the end
of a group, so that a large group is read plainly, as many rows at once as have room if each names the longest
entry of a dictionary; columns of lists and objects are always read by dictionaries. A page of the file is
decompressed as a whole: memory is bounded by the largest record and the file's largest page and dictionary,
whatever the number of rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow.compute import call_function
from pyarrow.parquet import FileMetaData, ParquetFile

from .compressed_files import damage_at, most_bytes, seekable
from .problems import Limit, Row
from .reading import Numbered, require_columns

BYTES_AT_ONCE = 2**24
"""Bytes of some rows that are read together, about; but for a single one that has more."""

ROWS_AT_ONCE = 1000

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 4}
"""Kind of a value in a file -> bytes that it takes; of a text, those that say where it begins."""


def rows_of_parquet(file: Path, columns: Sequence[str], limit: Limit) -> Iterator[Numbered]:
    """Read some columns of a parquet file, with the numbers of the rows, from 1; a bad row is a sentence.

    Raises:
        DamageError: The file is none of its kind from some row on.
    """
    number = 0
    with seekable(file) as source, damage_at(lambda: number + 1):
        plain = ParquetFile(source, page_checksum_verification=True)
        require_columns(file, plain.schema_arrow.names, columns)
        names = list(columns) or plain.schema_arrow.names
        about, most = plain.metadata, most_bytes(file)
        require_room(file, most, told_bytes(about, names))
        kinds = [about.schema.column(leaf).physical_type for leaf in range(about.num_columns)]
        leaves = [leaf for leaf, kind in enumerate(kinds) if kind == "BYTE_ARRAY"]
        entries = ParquetFile(source, page_checksum_verification=True, read_dictionary=leaves)
        is_nested = any(pyarrow.types.is_nested(plain.schema_arrow.field(name).type) for name in names)
        total = 0
        for group in range(about.num_row_groups):
            by_entries = is_nested or about.row_group(group).total_byte_size <= BYTES_AT_ONCE
            rows = ROWS_AT_ONCE if by_entries else rows_at_once(entries, group, names)
            reader = entries if by_entries else plain
            for batch in reader.iter_batches(rows, [group], columns=names, use_threads=False):
                size = value_bytes(batch.to_struct_array())
                total += size
                require_room(file, most, total)
                for row in rows_of_batch(batch, names, size, limit):
                    number += 1
                    yield number, row


def rows_at_once(entries: ParquetFile, group: int, names: Sequence[str]) -> int:
    """Compute how many rows of a large group have room: usual ones, and such with the longest entries."""
    about, longest = entries.metadata.row_group(group), 1
    for batch in islice(entries.iter_batches(1, [group], columns=list(names), use_threads=False), 1):
        for column in batch.columns:
            if pyarrow.types.is_dictionary(column.type):
                lengths = call_function("binary_length", [column.dictionary])
                longest += call_function("max", [lengths]).as_py() or 0
    usual = BYTES_AT_ONCE * about.num_rows // about.total_byte_size
    return max(1, min(ROWS_AT_ONCE, usual, BYTES_AT_ONCE // longest))


def rows_of_batch(
    batch: pyarrow.RecordBatch, names: Sequence[str], size: int, limit: Limit
) -> Iterator[Row | str]:
    """Make the rows of a batch: together where all are small, or else one by one."""
    columns = [batch.column(name) for name in names]
    if size <= min(BYTES_AT_ONCE, limit.characters):
        with suppress(UnicodeDecodeError):  # which row it is in, is found below
            rows = [dict(zip(names, row, strict=True)) for row in zip(*map(values_in, columns), strict=True)]
            yield from rows
            return
    for scalars in zip(*columns, strict=True):
        yield _row(names, scalars, limit)


def values_in(array: pyarrow.Array) -> list[Any]:
    is_dictionary = pyarrow.types.is_dictionary(array.type)
    return (array.dictionary_decode() if is_dictionary else array).to_pylist()


def _row(columns: Sequence[str], scalars: Sequence[pyarrow.Scalar], limit: Limit) -> Row | str:
    values = [each.value if isinstance(each, pyarrow.DictionaryScalar) else each for each in scalars]
    size = sum(len(each.as_buffer()) for each in values if each.is_valid and is_text(each.type))
    if size > 4 * limit.characters:  # UTF-8 has four bytes a character at most
        return limit.problem()
    try:
        row = {name: each.as_py() for name, each in zip(columns, values, strict=True)}
    except UnicodeDecodeError as error:
        return f"byte 0x{error.object[error.start]:02x} is not UTF-8: write the texts of the column as UTF-8"
    size = sum(len(value) for value in row.values() if isinstance(value, str))
    return limit.problem() if size > limit.characters else row


def is_text(kind: pyarrow.DataType) -> bool:
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def told_bytes(about: FileMetaData, columns: Sequence[str]) -> int:
    """Return how many bytes the columns have at least, by what the file says of its pages and values."""
    paths = [about.schema.column(leaf).path for leaf in range(about.num_columns)]
    chosen = [
        leaf for leaf, path in enumerate(paths) if any(f"{path}.".startswith(f"{own}.") for own in columns)
    ]
    total = 0
    for group in range(about.num_row_groups):
        for leaf in chosen:
            chunk, kind = about.row_group(group).column(leaf), about.schema.column(leaf)
            width = WIDTHS.get(kind.physical_type, kind.length)
            total += max(chunk.total_uncompressed_size, chunk.num_values * width)
    return total


def require_room(file: Path, most: int, needed: int) -> None:
    """Raise a `ValueError` if the values of a file have too many bytes."""
    if needed > most:
        raise ValueError(
            f"{file} holds more than {most:,} bytes in its columns, far more than a file of its size "
            "should: convert it to .jsonl"
        )


def value_bytes(array: pyarrow.Array) -> int:
    """Return how many bytes an array has once each row has its own values."""
    kind = array.type
    if pyarrow.types.is_dictionary(kind):
        lengths = call_function("binary_length", [array.dictionary]).cast(pyarrow.int64())
        total = call_function("sum", [lengths.take(array.indices)]).as_py() or 0
        return total + WIDTHS["BYTE_ARRAY"] * len(array)
    if pyarrow.types.is_map(kind):
        first, end = (array.offsets[place].as_py() for place in (0, -1))
        parts = [array.keys[first:end], array.items[first:end]]
        return sum(map(value_bytes, parts)) + WIDTHS["BYTE_ARRAY"] * len(array)
    if pyarrow.types.is_nested(kind):
        parts = array.flatten()
        return sum(map(value_bytes, parts if isinstance(parts, list) else [parts])) + len(array)
    return array.nbytes


def schema_of(file: Path, columns: Sequence[str]) -> pyarrow.Schema:
    """Read what some columns hold, with the names of labels."""
    with seekable(file) as source:
        schema = ParquetFile(source).schema_arrow
    return pyarrow.schema([schema.field(name) for name in columns], schema.metadata)
