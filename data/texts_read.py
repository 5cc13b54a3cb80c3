"""Which texts a run has read, and whether it is measured on text that it learns from.

Names, sizes and hashes are kept beside a run from its first step to its last.

A file of the same name and size may hold another text when a run is resumed. The place in the data stays, and
means other examples: a warning says so, and the record keeps both.

Scores on text that is also learned from do not say how well a model generalizes. It may be meant: a model
that cannot learn a text by heart has a fault. So a run warns, and goes on. Files are compared by where they
lie and, where two are equally long, by the hashes of their contents as they lie there: the same text in
another compression, or a part of a larger file, is not noticed. A prepared corpus has the hashes of the files
that it was made of.
"""

import json
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .digests import identify_file
from .documents import Documents, FileDocuments
from .files.atomic_writes import replace_text
from .prepared import PreparedDocuments

Texts = dict[str, list[dict[str, Any]]]
"""Split -> what `Documents.identify` says of its texts."""


def keep_texts(file: Path, texts: Texts, *, goes_on: bool, may_change: bool = True) -> None:
    """Write which texts a run reads, behind those that it has read before.

    Args:
        file: Where.
        texts: That are read now.
        goes_on: Whether the run has begun already; otherwise what is on record was never learned from.
        may_change: Whether a run may go on with another text, or else with no other file.

    Raises:
        ValueError: A file is not the one that the run began with, and may not change.

    Warns:
        UserWarning: A text is not the one that the run began with.
    """
    earlier = read_texts(file) if goes_on else {}
    record: Texts = {}
    for split, entries in texts.items():
        before = earlier.get(split, [])
        known = [contents_of(entry) for entry in before]
        record[split] = [*before, *(entry for entry in entries if contents_of(entry) not in known)]
        others = [entry for entry in record[split][len(before) :] if before]
        for entry in others:
            shown = ", ".join(str(contents)[:12] for contents in known)
            change = (
                f"{split}: {entry['name']} ({str(contents_of(entry))[:12]}) is not what the run began with "
                f"({shown})"
            )
            if "sha256" in entry and not may_change:
                raise ValueError(
                    f"{change}, and what is finished was measured on that: bring it back, start over with "
                    "--overwrite, or choose another folder with output=..."
                )
            warnings.warn(
                f"{change}: the position in the data stays the same, but refers to other examples; "
                f"{file.name} lists both",
                stacklevel=2,
            )
    replace_text(file, json.dumps(record, indent=2) + "\n")


def read_texts(file: Path) -> Texts:
    """Read the record of a run, if there is one.

    Raises:
        ValueError: It is damaged.
    """
    if not file.exists():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{file}, which lists the texts of the run, is damaged ({error}): delete it, and the run "
            f"continues without it"
        ) from None


def contents_of(entry: dict[str, Any]) -> Any:
    """Return what tells one text from another: a file's hash, or a data set's fingerprint."""
    return entry.get("sha256") or entry.get("fingerprint") or entry["name"]


def warn_of_copies(key: str, entries: Iterable[dict[str, Any]]) -> None:
    """Warn if files of a text, which `key` of a recipe names, have the same contents by `identify`."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        if entry.get("sha256") and entry["bytes"]:
            names.setdefault(entry["sha256"], []).append(entry["name"])
    copies = [same for same in names.values() if len(same) > 1]
    if copies:
        more = f", and {len(copies) - 1} more have copies" if len(copies) > 1 else ""
        warnings.warn(
            f"{key}: {' and '.join(copies[0][:2])} have the same contents{more}, so that their text counts "
            f"{len(copies[0])} times: leave copies out if that is not meant",
            stacklevel=2,
        )


def warn_of_overlap(learned: Documents, measured: Documents, cache: Path) -> None:
    """Warn if files of the validation text are files of the training text, too, by place or by contents.

    Args:
        learned: The training text.
        measured: The validation text.
        cache: Keeps the hashes of files that are equally long.
    """
    files = files_of(measured)
    shared = shared_files(files_of(learned), files, cache)
    if shared:
        first = shared[0] if isinstance(shared[0], Path) else shared[0]["name"]
        more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
        warnings.warn(
            f"{len(shared)} of {len(files)} files of corpus.validation are also in corpus.train "
            f"({first}{more}), so that scores are not on held-out text: choose other files",
            stacklevel=2,
        )


File = Path | dict[str, Any]
"""A file, or the name, size and hash of one that a corpus was prepared from."""


def files_of(documents: Documents) -> Sequence[File]:
    """List the files of a text, or those with a hash that a prepared corpus was made of.

    A prepared corpus that knows none counts as one file, its manifest.
    """
    if isinstance(documents, PreparedDocuments):
        hashed: list[File] = [source for source in documents.manifest.sources if "sha256" in source]
        return hashed or documents.identify()
    return documents.files if isinstance(documents, FileDocuments) else ()


def shared_files(learned: Sequence[File], measured: Sequence[File], cache: Path) -> list[File]:
    """Find the measured files that are learned from; `cache` keeps the hashes of those equally long."""
    places = {file.resolve() for file in learned if isinstance(file, Path)}
    by_size: dict[int, list[File]] = {}
    for file in learned:
        by_size.setdefault(size_of(file), []).append(file)

    def digest_of(file: File) -> str:
        return (identify_file(file, cache) if isinstance(file, Path) else file)["sha256"]

    @lru_cache
    def contents(size: int) -> set[str]:
        return {digest_of(file) for file in by_size[size]}

    def is_shared(file: File) -> bool:
        size = size_of(file)
        return (isinstance(file, Path) and file.resolve() in places) or (
            size in by_size and digest_of(file) in contents(size)
        )

    return [file for file in measured if is_shared(file)]


def size_of(file: File) -> int:
    """Return the bytes of a file."""
    return file.stat().st_size if isinstance(file, Path) else file["bytes"]
