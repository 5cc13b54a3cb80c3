"""A teacher's outputs, computed once for text that is the same whenever it is read.

    values           log-probabilities at each target (P, k), of the k likeliest tokens or of all
    tokens           which tokens these are (P, k), unless they are all
    states           last hidden states of each token (N, C)
    target_offsets   where the targets of each example begin, and where the last one's end (E + 1,)
    token_offsets    the same of its tokens (E + 1,)
    about.json       what all this is of, and how much is missing

A cache belongs to one teacher and to one way of reading one text, which it names by their hashes. In it a
`CachedTeacher` looks up what the teacher made of each example. Masked text is fixed in some copies, each
masked otherwise, and epochs take turns with them:

    epoch      0       1       2       3                   of two copies
    copy       0       1       0       1
    numbers    0..E-1  E..2E-1 0..E-1  E..2E-1             by which examples are told apart, and masked

Shapes: P targets and N tokens of all copies, k tokens kept, C width, E examples (of all copies in a cache, of
one in a copy), S picked examples.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..configs.named_files import named_path
from ..configs.recipe import recipe_data
from ..data.cache import cache_folder, key_of, made_once
from ..data.corpus import offsets, token_kind
from ..data.files.atomic_writes import explaining_a_full_disk
from ..data.steps.examples import (
    Examples,
    ExampleSource,
    PackableExamples,
    PackedExamples,
    gather,
    has_field,
    left_out_of,
    pick,
)
from ..data.steps.objective import IGNORE, INDEX, Batch, Example, on_device
from ..data.steps.packing import Ragged, stretches
from ..data.steps.static_shapes import POSITIONS
from ..data.steps.step_planning import cut_evenly
from ..modeling import TercetPreTrainedModel
from ..modeling.heads.losses import at_least_float32
from ..modeling.saved.checkpoint import Checkpoint
from ..training.devices.precision import choose_precision
from ..training.token_objective import TokenObjective
from .general_recipe import GeneralRecipe
from .losses import DistillationLoss, SoftTargetLoss
from .model_outputs import ModelOutputs, RequiredOutputs
from .teacher import LiveTeacher, moved

ABOUT = "about.json"
TOKENS_AT_ONCE = 4096
"""Tokens that the teacher reads together."""

KINDS = {"fp16": np.float16, "fp32": np.float32}

Binding = dict[str, Any]
"""What a cache is of: names and hashes."""


class FixedCopies:
    """An `ExampleSource` of numbered copies of another one's first epoch."""

    def __init__(self, source: ExampleSource, number: int):
        self.examples = source.epoch(0)
        self.number = number

    def epoch(self, number: int) -> Examples:
        return self.copy(number % self.number)

    def copy(self, number: int) -> "NumberedCopy":
        return NumberedCopy(self.examples, number * len(self.examples))


class NumberedCopy(PackableExamples):
    """The same examples under other numbers."""

    def __init__(self, examples: Examples, offset: int):
        self.examples = examples
        self.offset = offset
        self.left_out = left_out_of(examples)

    @property
    def lengths(self) -> np.ndarray:
        return self.examples.lengths

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index] | {"index": index + self.offset}

    def pack(self, indices: np.ndarray) -> Any:
        chosen: Sequence[Example] = pick(self.examples, indices)
        if not isinstance(chosen, PackedExamples):
            return [self[int(index)] for index in indices]
        packed = PackedExamples(self, indices, chosen.makers)
        numbered = indices + self.offset
        packed.makers["index"] = lambda: Ragged(numbered, np.ones_like(numbered))
        return packed


def require_fixed(base: TokenObjective, copies: int) -> None:
    """Raise a `ValueError` if an objective corrupts text anew whenever it is read, or all copies alike."""
    if base.noise == "dynamic":
        raise ValueError(
            f"cache needs a fixed input, but {base.term} corrupts the text differently each time: "
            f"set objective.masking=static (masked_language_modeling; "
            "cache.copies sets the number of different masks), or leave cache out"
        )
    if copies > 1 and base.noise == "none":
        raise ValueError(
            f"cache.copies is {copies}, but {base.term} corrupts nothing, so all copies would be "
            f"equal: leave it out"
        )


def binding_of(teacher: Checkpoint, source: FixedCopies, general: GeneralRecipe, products: str) -> Binding:
    """Name all that a recipe's cache depends on; `products` are what the teacher computes in."""
    assert general.cache is not None
    return {
        "teacher": teacher.hash,
        "data": hash_of_examples(source),
        "objective": recipe_data(general.objective),
        "seed": general.training.seed,
        "copies": general.cache.copies,
        "top_k": general.cache.top_k,
        "precision": general.cache.precision,
        "products": products,
    }


def hash_of_examples(source: FixedCopies) -> str:
    """Hash texts: their ids and lengths."""
    digest = hashlib.sha256()
    for indices in parts_of(source.examples.lengths):
        chosen = pick(source.examples, indices)
        for name in ("input_ids", "labels"):
            if has_field(chosen, name):
                field = gather(chosen, name)
                digest.update(np.ascontiguousarray(field.values, dtype=np.int64).data)
                digest.update(np.ascontiguousarray(field.lengths, dtype=np.int64).data)
    return digest.hexdigest()


def parts_of(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Number examples in parts of nearly as many tokens."""
    number = min(len(lengths), -(-int(np.sum(lengths)) // TOKENS_AT_ONCE))
    edges = cut_evenly(np.asarray(lengths), number)
    return (np.arange(first, last) for first, last in pairwise(edges))


def place_of(
    general: GeneralRecipe, teacher: Checkpoint, source: FixedCopies, device: torch.device
) -> tuple[Path, Binding]:
    """Return where a recipe's cache lies, if not beside the tokenized corpora, and what it is of."""
    assert general.cache is not None
    binding = binding_of(teacher, source, general, choose_precision(general.training.precision, device))
    if general.cache.folder is not None:
        return named_path(general.cache.folder, "general.cache.folder"), binding
    return cache_folder(general.corpus.cache) / "teachers" / key_of(binding), binding


def require_same_cache(
    general: GeneralRecipe, teacher: Checkpoint, source: ExampleSource, device: torch.device
) -> None:
    """Make sure that a recipe's cache, if it is there already, is of this teacher and text."""
    assert general.cache is not None
    place, binding = place_of(general, teacher, FixedCopies(source, general.cache.copies), device)
    if place.exists():
        CachedTeacher(place, binding, device)


def cached_teacher(
    general: GeneralRecipe,
    teacher: Checkpoint,
    model: TercetPreTrainedModel,
    base: TokenObjective,
    losses: Sequence[DistillationLoss],
    source: FixedCopies,
    device: torch.device,
) -> "CachedTeacher":
    """Let a teacher read a text, unless it has, and remember what it made of it."""
    folder, binding = place_of(general, teacher, source, device)

    def write(target: Path) -> None:
        temperatures = [loss.temperature for loss in losses if isinstance(loss, SoftTargetLoss)]
        live = LiveTeacher(model, RequiredOutputs(logits=True), device, binding["products"])
        write_cache(target, live, base, source, binding, temperatures)

    made_once(folder, write, "another folder in general.cache.folder")
    moved(model, torch.device("cpu"))  # which leaves its place to the student
    return CachedTeacher(folder, binding, device)


def write_cache(
    folder: Path,
    teacher: LiveTeacher,
    base: TokenObjective,
    source: FixedCopies,
    binding: Binding,
    temperatures: Sequence[float],
) -> None:
    """Let a teacher read all copies, and write what it makes of them into an empty folder."""
    kind, config, top_k = KINDS[binding["precision"]], teacher.model.config, binding["top_k"]
    kept = min(top_k or config.vocab_size, config.vocab_size)
    missing = dict.fromkeys(map(float, temperatures), 0.0)
    num_targets: list[np.ndarray] = []
    num_tokens: list[np.ndarray] = []
    remedy = "lower general.cache.top_k or copies, make room, or name another folder in general.cache.folder"
    with explaining_a_full_disk(folder, size_of(source, kept, config.hidden_size, kind), remedy):
        files = {name: (folder / name).open("wb") for name in ("values", "tokens", "states")}
        for batch in batches_of(base, source, teacher.device):
            places = base.output_positions(batch)
            outputs = teacher.compute_outputs(batch, places.positions)
            assert outputs.logits is not None
            logits = at_least_float32(outputs.logits)
            values, tokens = chosen(logits, top_k)
            for temperature in missing:
                missing[temperature] += missing_at(logits, tokens, temperature)
            write_array(files["values"], values, kind)
            write_array(files["states"], outputs.states, kind)
            if tokens is not None:
                write_array(files["tokens"], tokens, token_kind(config.vocab_size))
            bounds = batch["cu_seq_lens_q"].cpu().numpy()
            num_targets.append(np.diff(np.searchsorted(places.positions.cpu().numpy(), bounds)))
            num_tokens.append(np.diff(bounds))
        for file in files.values():
            file.close()
        of_targets, of_tokens = (offsets(np.concatenate(parts)) for parts in (num_targets, num_tokens))
        of_targets.tofile(folder / "target_offsets")
        of_tokens.tofile(folder / "token_offsets")
    about = {
        "binding": binding,
        "kept": kept,
        "width": config.hidden_size,
        "vocabulary": config.vocab_size,
        "missing": {str(at): total / max(int(of_targets[-1]), 1) for at, total in missing.items()},
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def size_of(source: FixedCopies, kept: int, width: int, kind: type[np.floating[Any]]) -> int:
    """Estimate the bytes of a cache, as if every token were a target."""
    tokens = int(np.sum(source.examples.lengths)) * source.number
    return tokens * (kept * (np.dtype(kind).itemsize + 4) + width * np.dtype(kind).itemsize)


def batches_of(base: TokenObjective, source: FixedCopies, device: torch.device) -> Iterator[Batch]:
    """Collate all copies in their order; nothing in it is random."""
    for number in range(source.number):
        copy = source.copy(number)
        for indices in parts_of(copy.lengths):
            yield on_device(base.collate(pick(copy, indices), 0), device)


def chosen(logits: Tensor, top_k: int | None) -> tuple[Tensor, Tensor | None]:
    """Return the log-probabilities of the likeliest tokens and which these are, or those of all, in order."""
    logs = logits.log_softmax(-1)
    if top_k is None:
        return logs, None
    values, tokens = logs.topk(min(top_k, logs.shape[-1]), dim=-1)
    return values, tokens


def missing_at(logits: Tensor, tokens: Tensor | None, temperature: float) -> float:
    """Sum over targets the probability, at a temperature, of the tokens that are not kept."""
    if tokens is None:
        return 0.0
    kept = (logits / temperature).softmax(-1).gather(1, tokens).sum(-1)
    return float((1 - kept).clamp(min=0).sum())


def write_array(file: Any, values: Tensor, kind: Any) -> None:
    numbers = values.float() if values.is_floating_point() else values
    file.write(numbers.cpu().numpy().astype(kind).tobytes())


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
    """A teacher that is not there: what it made of each example is looked up."""

    def __init__(self, folder: Path, binding: Binding, device: torch.device):
        about = read_about(folder)
        require_binding(folder, about["binding"], binding)
        self.missing: Mapping[str, float] | None = about["missing"]
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
    if not file.exists() or not file.stat().st_size:
        raise ValueError(f"{file} is damaged: delete its folder")
    return np.fromfile(file, dtype=np.int64)


def mapped(file: Path, kind: Any, width: int, length: int) -> np.ndarray:
    """Map a table into memory."""
    expected = length * width * np.dtype(kind).itemsize
    if not file.exists() or file.stat().st_size != expected:
        raise ValueError(f"{file} is damaged (it should have {expected:,} bytes): delete its folder")
    if not expected:
        return np.empty((length, width), dtype=kind)
    return np.asarray(np.memmap(file, dtype=kind, mode="r")).reshape(length, width)


def read_about(folder: Path) -> dict[str, Any]:
    """Read what a cache is of."""
    try:
        return json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder} is not a teacher's cache ({ABOUT} cannot be read): set another cache.folder, "
            f"or delete it"
        ) from error


def require_binding(folder: Path, found: Mapping[str, Any], wanted: Binding) -> None:
    """Raise a `ValueError` if a cache was written for something else, and say for what."""
    for key, value in wanted.items():
        if found.get(key) != value:
            shown = "" if key in ("teacher", "data") else f" ({found.get(key)} instead of {value})"
            raise ValueError(
                f"cache: {folder} was written for {MEANINGS[key]}{shown}: set another "
                f"cache.folder, or delete it"
            )
