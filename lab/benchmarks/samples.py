"""Parts of texts and tables that a benchmark reads instead of all."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tercet.data.documents import find_files, open_documents
from tercet.data.files.rows import read_file


def text_sample(source: Path, folder: Path, characters: int) -> Path:
    """Write the first documents of each text file of a folder into another one, unless that is there.

    Args:
        source: The folder; its files may be compressed.
        folder: Where the samples go.
        characters: Of each file, at most, unless its first document alone has more.

    Raises:
        FileNotFoundError: The source does not exist.
        ValueError: It has no text.
    """
    files = find_files(source)
    if not folder.exists():
        partial = folder.with_name(f".{folder.name}.partial")
        partial.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(files):
            documents, length = list[str](), 0
            for document in open_documents(str(file)):
                length += len(document) + 2
                if documents and length > characters:
                    break
                documents.append(document)
            name = f"{number:02d}-{file.name.partition('.')[0]}.txt"
            (partial / name).write_text("\n\n".join(documents) + "\n", encoding="utf-8")
        partial.rename(folder)
    return folder


def row_sample(source: str, columns: Sequence[str], num_rows: int, file: Path) -> Path:
    """Write rows of a table, drawn at random and always the same, into a file, unless that is there.

    Args:
        source: The table's file.
        columns: That every row needs.
        num_rows: How many; all if there are fewer.
        file: Where they go, one JSON object a line.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = read_file(source, columns)
        chosen = np.random.default_rng(0).permutation(len(rows))[:num_rows]
        partial = file.with_name(f".{file.name}")
        rows.select(np.sort(chosen)).to_json(partial)
        partial.replace(file)
    return file
