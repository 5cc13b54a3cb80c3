"""Rows of a parquet file, a few at a time, and never more of their texts than a record may have.

A file of some kilobytes may name one text of megabytes a million times, as an entry of a dictionary. Entries
of small groups of rows are read as such, once; of a large group with dictionaries, one row is read at a time.
A page of the file is unpacked as a whole, so that memory is bounded by the largest record and the file's
largest page and dictionary, whatever the number of rows.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow.parquet import ParquetFile, RowGroupMetaData

from .bad_records import Limit
from .packed_files import damage_at, seekable

Row = dict[str, Any]

BYTES_AT_ONCE = 2**24
"""Bytes of some rows that are read together, about; but for a single one that has more."""

ROWS_AT_ONCE = 1000


def is_text(kind: pyarrow.DataType) -> bool:
    """Tell whether a column holds texts."""
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def rows_of_parquet(
    file: Path,
    columns: Sequence[str],
    limit: Limit,
    require: Callable[[Path, Sequence[str], Sequence[str]], None],
) -> Iterator[tuple[int, Row | str]]:
    """Read some columns of a parquet file, with the numbers of the rows, from 1; a bad row is a sentence.

    Args:
        file: Perhaps compressed once more.
        columns: To be read.
        limit: Of a row's texts.
        require: Told the file, the names of its columns and those to be read; raises if they will not do.

    Raises:
        DamageError: The file is none of its kind from some row on.
    """
    number = 0
    with seekable(file) as source, damage_at(lambda: number + 1):
        plain = ParquetFile(source, page_checksum_verification=True)
        require(file, plain.schema_arrow.names, columns)
        texts = [name for name in columns if is_text(plain.schema_arrow.field(name).type)]
        entries = ParquetFile(source, page_checksum_verification=True, read_dictionary=texts)
        for group in range(plain.num_row_groups):
            about = plain.metadata.row_group(group)
            is_small = about.total_byte_size <= BYTES_AT_ONCE
            rows = ROWS_AT_ONCE if is_small else rows_at_once(about)
            reader = entries if is_small else plain
            for batch in reader.iter_batches(rows, [group], columns=list(columns), use_threads=False):
                for scalars in zip(*(batch.column(name) for name in columns), strict=True):
                    number += 1
                    yield number, _row(columns, scalars, limit)


def rows_at_once(about: RowGroupMetaData) -> int:
    """Say how many rows of a large group may be read together; one where each may be an entry of any length.

    The entries that a reader of dictionaries has met are kept up to the end of a group, so that it serves
    small ones alone.
    """
    if any(about.column(number).has_dictionary_page for number in range(about.num_columns)):
        return 1
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE * about.num_rows // about.total_byte_size))


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
