"""Which texts a run reads: the name, size and SHA-256 of each file, and the record of them beside a run.

A hash is kept in the cache for the next time, as a small file that vouches for itself: what is not 64
hexadecimal digits and a line's end was cut short, by a kill or a loss of power, and is computed anew, as one
that was lost. So it is written in place, without waiting for the disk: a folder of many small files is read
as fast as it can be opened, where `cache.made_once`, whose work cannot be told from half of it, waits three
times for each. A changed file has another name in the cache, so that no hash is ever of other contents.

A run keeps the record from its first step to its last. A file of the same name and size may hold another
text when a run is resumed. The place in the data stays, and means other examples: a warning says so, and the
record keeps both.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cache import ANOTHER_CACHE, key_of
from .files.atomic_writes import replace_text

DIGEST = re.compile(r"([0-9a-f]{64})\n")

Texts = dict[str, list[dict[str, Any]]]
"""Split -> what `Documents.identify` says of its texts."""


def identify_file(file: Path, cache: Path) -> dict[str, Any]:
    """Return a file's name, size and SHA-256; it is read only if it has changed since the last time."""
    state = state_of(file)
    kept = cache / "digests" / f"{key_of(str(file.resolve()), *state)}.sha256"
    digest = _kept_digest(kept)
    if digest is None:
        with file.open("rb") as contents:
            digest = hashlib.file_digest(contents, "sha256").hexdigest()
        if state_of(file) == state:  # nobody wrote meanwhile
            _keep(kept, digest)
    return {"name": file.name, "bytes": state[0], "sha256": digest}


def state_of(file: Path) -> tuple[int, ...]:
    """Return what changes with a file's contents: its size, when it was written, and which file it is.

    Whoever copies files with their times, as `rsync -t` and archives do, sets the time of their contents. The
    time at which the file itself changed cannot be set, and a file in place of another has another number.
    """
    state = file.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def _kept_digest(kept: Path) -> str | None:
    try:
        whole = DIGEST.fullmatch(kept.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    return whole and whole[1]


def _keep(kept: Path, digest: str) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{digest}\n", encoding="ascii")
    except OSError as error:
        raise ValueError(
            f"{kept.parent} cannot be written ({error.strerror}): name {ANOTHER_CACHE}"
        ) from error


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
