"""Which texts a run has read: names, sizes and hashes, kept beside it from its first step to its last.

A file of the same name and size may hold another text when a run is resumed. The place in the data stays, and
means other examples: a warning says so, and the record keeps both.
"""

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .files.atomic_writes import replace_text

Texts = dict[str, list[dict[str, Any]]]
"""Split -> what `Documents.identify` says of its texts."""


def keep_texts(file: Path, texts: Texts, *, goes_on: bool, may_change: bool = True) -> None:
    """Write which texts a run reads, behind those that it has read before.

    Args:
        goes_on: Whether the run has begun already; otherwise what is on record was never learned from.
        may_change: Whether a run may go on with another text, or else with no other file.
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
    """Read the record of a run, if there is one."""
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
