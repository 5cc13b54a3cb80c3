"""Cells of a benchmark: each is computed once and kept, so that a killed program goes on with the others."""

import json
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tercet.data.files.atomic_writes import replace_text

RESULT = "result.json"
"""What a cell has come to; a folder without it is not finished."""


def cell_folder(folder: Path, name: str, depends_on: object) -> Path:
    """Return the folder of a cell.

    Args:
        folder: Of all cells.
        name: For readers.
        depends_on: Everything that decides the result; its `repr` is hashed.
    """
    return folder / f"{name}-{sha256(repr(depends_on).encode()).hexdigest()[:12]}"


def once(cell: Path, compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Compute a cell, unless that was finished before; return its result.

    Args:
        cell: Its folder, which `cell_folder` has named.
        compute: Gets the folder, in which an interrupted call may have left something, and gives the result.
    """
    kept = cell / RESULT
    if not kept.exists():
        cell.mkdir(parents=True, exist_ok=True)
        replace_text(kept, json.dumps(compute(cell)) + "\n")
    return json.loads(kept.read_text(encoding="utf-8"))


def afresh(run: Callable[[Path], dict[str, Any]], cell: Path) -> dict[str, Any]:
    """Call a run in the folder of its cell, without what an interrupted one has left."""
    print(f"{cell} ...", file=sys.stderr, flush=True)
    shutil.rmtree(cell)
    cell.mkdir()
    return run(cell)
