"""Which file a text is: its name, size and SHA-256, kept in the cache for the next time.

A kept digest is a small file that vouches for itself: what is not 64 hexadecimal digits and a line's end was
cut short, by a kill or a loss of power, and is computed anew, as one that was lost. So it is written in
place, without waiting for the disk: a folder of many small files is read as fast as it can be opened, where
`cache.made_once`, whose work cannot be told from half of it, waits three times for each. A changed file has
another name in the cache, so that no digest is ever of other contents.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from .cache import ANOTHER_CACHE, name_of

DIGEST = re.compile(r"([0-9a-f]{64})\n")


def identify_file(file: Path, cache: Path) -> dict[str, Any]:
    """Return a file's name, size and SHA-256; it is read only if it has changed since the last time."""
    state = state_of(file)
    kept = cache / "digests" / f"{name_of(str(file.resolve()), *state)}.sha256"
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
