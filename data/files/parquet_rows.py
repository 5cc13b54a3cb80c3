"""The rows of a parquet file as a table, as long as a file of its size may hold so much.

A column is stored as its different values and, for each row, the number of one. A file of a kilobyte may name
one text of a megabyte five thousand times. The file says how much its pages hold; how much the values of all
rows are together is counted before any of them is made.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow
from pyarrow.compute import call_function
from pyarrow.parquet import FileMetaData, ParquetFile

from .record_files import require_columns

ROWS_AT_ONCE = 2**20
"""Rows that are read together, as numbers of their values."""

BYTES_AT_ONCE = 2**28
"""Bytes of values that are made together; a column of texts cannot have more than 2**31."""

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 4}
"""Kind of a value in a file -> bytes that it takes; of a text, those that say where it begins."""


def parquet_rows(file: BinaryIO, columns: Sequence[str], source: str, most: int) -> pyarrow.Table:
    """Read some columns of a parquet file.

    Args:
        file: The file.
        columns: Their names.
        source: The file's name, for messages.
        most: Bytes that the columns may have.

    Raises:
        ValueError: It lacks a column, or the columns have more bytes.
    """
    plain = ParquetFile(file, page_checksum_verification=True)
    require_columns(source, plain.schema_arrow.names, columns)
    about = plain.metadata
    require_room(source, most, told_bytes(about, columns))
    texts = [
        leaf for leaf in range(about.num_columns) if about.schema.column(leaf).physical_type == "BYTE_ARRAY"
    ]
    reader = ParquetFile(file, page_checksum_verification=True, read_dictionary=texts)
    none = plain.read_row_groups([], list(columns))
    tables, total = list[pyarrow.Table](), 0
    for group in range(about.num_row_groups):  # each has values of its own, which lists cannot mix
        for batch in reader.iter_batches(ROWS_AT_ONCE, [group], columns=list(columns), use_threads=False):
            total += value_bytes(batch.to_struct_array())
            require_room(source, most, total)
            tables += [part.cast(none.schema) for part in parts_of(pyarrow.Table.from_batches([batch]))]
    return pyarrow.concat_tables(tables or [none]).select(list(columns))


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


def require_room(source: str, most: int, needed: int) -> None:
    """Raise a `ValueError` if the values of a file have too many bytes."""
    if needed > most:
        raise ValueError(
            f"{source} holds more than {most:,} bytes in its columns, far more than a file of its size "
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


def parts_of(table: pyarrow.Table) -> Iterator[pyarrow.Table]:
    """Cut a table into parts with values of not too many bytes."""
    size = sum(value_bytes(chunk) for column in table.columns for chunk in column.chunks)
    if size <= BYTES_AT_ONCE or len(table) == 1:
        yield table
    else:
        yield from parts_of(table[: len(table) // 2])
        yield from parts_of(table[len(table) // 2 :])
