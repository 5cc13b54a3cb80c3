"""Which texts a run has read: names, sizes and hashes, kept beside it from its first step to its last.

A file of the same name and size may hold another text when a run is resumed. The place in the data stays, and
means other examples: that is told, and the record keeps both.
"""

import json
import warnings
from pathlib import Path
from typing import Any

from ..training.disk import replace_text

Texts = dict[str, list[dict[str, Any]]]
"""Split -> what `Documents.identify` says of its texts."""


def keep_texts(file: Path, texts: Texts, *, goes_on: bool) -> None:
    """Write which texts a run reads, behind those that it has read before.

    Args:
        file: Where.
        texts: That are read now.
        goes_on: Whether the run has begun already; otherwise what is on record was never learned from.

    Warns:
        UserWarning: A text is not the one that the run began with.
    """
    earlier = read_texts(file) if goes_on else {}
    told: Texts = {}
    for split, entries in texts.items():
        before = earlier.get(split, [])
        known = [contents_of(entry) for entry in before]
        told[split] = [*before, *(entry for entry in entries if contents_of(entry) not in known)]
        others = [entry for entry in told[split][len(before) :] if before]
        for entry in others:
            warnings.warn(
                f"{split}: {entry['name']} ({str(contents_of(entry))[:12]}) is not what the run began with "
                f"({', '.join(str(each)[:12] for each in known)}): the position in the data stays the same, "
                f"but refers to other examples; {file.name} lists both",
                stacklevel=2,
            )
    replace_text(file, json.dumps(told, indent=2) + "\n")


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
    """Give what tells one text from another: a file's hash, or a data set's fingerprint."""
    return entry.get("sha256") or entry.get("fingerprint") or entry["name"]
