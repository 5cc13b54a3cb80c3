"""Cells of a benchmark: each is computed once and kept, so that a killed program goes on with the others."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tercet.training.disk import replace_text

RESULT = "result.json"
"""What a cell has come to; a folder without it is not finished."""


def cell_folder(folder: Path, name: str, depends_on: object) -> Path:
    """Name the folder of a cell.

    Args:
        folder: Of all cells.
        name: For readers.
        depends_on: Everything that decides the result; its `repr` is hashed.
    """
    return folder / f"{name}-{sha256(repr(depends_on).encode()).hexdigest()[:12]}"


def once(cell: Path, compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Compute a cell, unless that was finished before; give its result.

    Args:
        cell: Its folder, which `cell_folder` has named.
        compute: Gets the folder, in which an interrupted call may have left something, and gives the result.
    """
    kept = cell / RESULT
    if not kept.exists():
        cell.mkdir(parents=True, exist_ok=True)
        replace_text(kept, json.dumps(compute(cell)) + "\n")
    return json.loads(kept.read_text(encoding="utf-8"))
