"""A teacher that has read the corpus before: what it made of each example is looked up in its cache.

Shapes: P targets and N tokens of all copies, E examples of all copies.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..text.corpus import token_kind
from ..training.objective import IGNORE, INDEX, Batch
from ..training.packing import stretches
from ..training.static_shapes import POSITIONS
from .cache import ABOUT, KINDS, Binding
from .model_outputs import ModelOutputs

MEANINGS = {
    "teacher": "another teacher",
    "data": "other data",
    "objective": "another objective",
    "seed": "another training.seed, which decides what is masked",
    "copies": "another number of copies",
    "top_k": "another top_k",
    "precision": "another precision",
    "products": "a teacher that computed in another training.precision",
}
"""What it means where two bindings differ."""


class CachedTeacher:
    """A teacher that is not there: what it made of each example is looked up.

    Args:
        folder: That of the cache.
        binding: What it has to be of.
        device: Where its numbers are needed.

    Raises:
        ValueError: The cache is of something else, or damaged.
    """

    def __init__(self, folder: Path, binding: Binding, device: torch.device):
        about = read_about(folder)
        require_binding(folder, about["binding"], binding)
        self.missing: Mapping[str, float] = about["missing"]
        self.device = device
        kind = KINDS[binding["precision"]]
        kept, width = about["kept"], about["width"]
        self.target_offsets, self.token_offsets = (
            read_offsets(folder / name) for name in ("target_offsets", "token_offsets")
        )
        self.values = mapped(folder / "values", kind, kept, int(self.target_offsets[-1]))
        self.states = mapped(folder / "states", kind, width, int(self.token_offsets[-1]))
        self.tokens = None
        if binding["top_k"] is not None:
            ids = token_kind(about["vocabulary"])
            self.tokens = mapped(folder / "tokens", ids, kept, int(self.target_offsets[-1]))

    def compute_outputs(self, batch: Batch, positions: Tensor) -> ModelOutputs:
        """Look up what the teacher made of a batch's examples."""
        index = batch[INDEX].numpy()
        index, is_whole = index[index != IGNORE], POSITIONS not in batch
        targets = rows_of(self.target_offsets, index)
        assert len(targets) == len(positions) or not is_whole
        stream = batch.get("decoder_input_ids", batch["input_ids"])
        return ModelOutputs(
            self._rows(self.values, targets, len(positions), np.float32),
            None if self.tokens is None else self._rows(self.tokens, targets, len(positions), np.int64),
            self._rows(self.states, rows_of(self.token_offsets, index), stream.shape[1], np.float32),
            {},
            {},
        )

    def _rows(self, values: np.ndarray, rows: np.ndarray, count: int, kind: type) -> Tensor:
        """Bring rows to the device, and zeros behind them for what is filling."""
        found = np.zeros((count, values.shape[1]), dtype=kind)
        found[: len(rows)] = values[rows]
        return torch.from_numpy(found).to(self.device, non_blocking=True)


def rows_of(edges: np.ndarray, index: np.ndarray) -> np.ndarray:
    """List the rows of some examples, one after another."""
    return stretches(edges[index], edges[index + 1] - edges[index])


def read_offsets(file: Path) -> np.ndarray:
    """Read where the rows of each example begin.

    Raises:
        ValueError: They are not there.
    """
    if not file.exists() or not file.stat().st_size:
        raise ValueError(f"{file} is damaged: delete its folder")
    return np.fromfile(file, dtype=np.int64)


def mapped(file: Path, kind: Any, width: int, length: int) -> np.ndarray:
    """Map a table into memory.

    Raises:
        ValueError: It has another size than was written.
    """
    expected = length * width * np.dtype(kind).itemsize
    if not file.exists() or file.stat().st_size != expected:
        raise ValueError(f"{file} is damaged (it should have {expected:,} bytes): delete its folder")
    if not expected:
        return np.empty((length, width), dtype=kind)
    return np.asarray(np.memmap(file, dtype=kind, mode="r")).reshape(length, width)


def read_about(folder: Path) -> dict[str, Any]:
    """Read what a cache is of.

    Raises:
        ValueError: The folder is none, or damaged.
    """
    try:
        return json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder} is not a teacher's cache ({ABOUT} cannot be read): set another general.cache.folder, "
            f"or delete it"
        ) from error


def require_binding(folder: Path, found: Mapping[str, Any], wanted: Binding) -> None:
    """Raise a `ValueError` if a cache was written for something else, and say for what."""
    for key, value in wanted.items():
        if found.get(key) != value:
            shown = "" if key in ("teacher", "data") else f" ({found.get(key)} instead of {value})"
            raise ValueError(
                f"general.cache: {folder} was written for {MEANINGS[key]}{shown}: set another "
                f"general.cache.folder, or delete it"
            )
