"""The weights of a saved model, looked at without reading them: is every file whole, and what is in it?

A safetensors file begins with the size of its header and the header, which says where each tensor lies; both
must agree with the file's size. Of a model in several files, an index says which tensor lies where.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from .messages import shortened

PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
"""Names of files that run foreign code when they are read."""

MOST_LAYERS = 1000
"""Layers that a configuration may have more than the files have tensors: some architectures share them."""


@dataclass(frozen=True)
class StoredWeights:
    """What the files of a model hold."""

    files: list[Path]
    """One, or the index and its shards."""
    parameters: dict[str, int]
    """How many numbers of which format; shared ones once."""
    num_tensors: int


def inspect_weights(folder: Path) -> StoredWeights:
    """Make sure that all weights of a model are there and whole, and none pickled.

    Raises:
        ValueError: There are none but pickled ones, or a file is damaged or missing.
    """
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    single = folder / SAFE_WEIGHTS_NAME
    if single.exists():
        shapes = read_header(single)
        return StoredWeights([single], count_parameters(shapes), len(shapes))
    if not index.exists():
        raise no_weights(folder)
    places = read_index(index)
    shards = [folder / name for name in sorted(set(places.values()))]
    shapes = {}
    for shard in shards:
        if not shard.exists():
            raise ValueError(
                f"{index} names {shard.name}, which is not there: copy it there, or save the model again"
            )
        found = read_header(shard)
        if absent := {tensor for tensor, name in places.items() if name == shard.name} - set(found):
            raise ValueError(
                f"{shard} lacks {min(absent)}, which {index.name} lists there: copy both again, or save "
                "the model again"
            )
        shapes |= found
    return StoredWeights([index, *shards], count_parameters(shapes), len(shapes))


def has_weights(folder: Path) -> bool:
    """Return whether there are weights as safetensors, be they whole or not."""
    return any((folder / name).exists() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))


def require_counts(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse counts in a configuration that take memory or time before it meets the weights.

    transformers names every label, and a model without storage still has an object for each layer. All other
    sizes are compared by such a model (`whole_weights.py`).

    Args:
        folder: With weights, or there is nothing to compare.
        config: What `config.json` says.

    Raises:
        ValueError: There are more labels than numbers in the files, or more layers than tensors; or as in
            `inspect_weights`.
    """
    if not has_weights(folder):
        return
    stored = inspect_weights(folder)
    counts = {name: value for name, value in config.items() if isinstance(value, int)}
    numbers, layers = sum(stored.parameters.values()), max(stored.num_tensors, MOST_LAYERS)
    limits = {name: layers for name in counts if "layer" in name} | {"num_labels": numbers}
    for name in sorted(limits.keys() & counts.keys()):
        if counts[name] > limits[name]:
            raise ValueError(
                f"{folder / 'config.json'} says {name} = {counts[name]:,}, but {stored.files[0].name} has "
                f"{stored.num_tensors:,} tensors with {numbers:,} numbers: use the config.json that was "
                "saved with these weights"
            )


def no_weights(folder: Path) -> ValueError:
    """Say that a folder has no weights, and what to do if there are pickled ones."""
    pickled = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not pickled:
        return ValueError(
            f"{folder} holds no weights (neither {SAFE_WEIGHTS_NAME} nor {SAFE_WEIGHTS_INDEX_NAME}; pickled "
            "ones are not fetched from the Hub): save model and tokenizer in one folder with save_pretrained"
        )
    return ValueError(
        f"{folder} has its weights as a pickle ({shortened(pickled, 3)}), which may run arbitrary code when "
        f"it is loaded: convert them with `{loader_of(folder)}.from_pretrained({str(folder)!r}, "
        f"use_safetensors=False, weights_only=True).save_pretrained({str(folder)!r})`, which loads tensors "
        "only"
    )


def loader_of(folder: Path) -> str:
    """Name the class that saved a model."""
    architectures = json.loads((folder / "config.json").read_bytes()).get("architectures")
    return (architectures or ["AutoModel"])[0]


def read_index(index: Path) -> dict[str, str]:
    """Read in which file each tensor lies.

    Raises:
        ValueError: The index is damaged.
    """
    require_plain(index)
    try:
        return json.loads(index.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{index} is damaged ({error}): copy it again, or save the model again") from error


def read_header(file: Path) -> dict[str, tuple[str, list[int]]]:
    """Read the format and shape of every tensor in a file, and compare the file's size with them.

    Raises:
        ValueError: The file is damaged.
    """
    require_plain(file)
    try:
        with safe_open(file, framework="numpy") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            return {name: (part.get_dtype(), part.get_shape()) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged ({error}): copy it again, or save the model again") from error


def require_plain(*files: Path) -> None:
    """Refuse pipes, sockets and devices, which a reader may wait for without end.

    Raises:
        ValueError: Naming the first.
    """
    for file in files:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ValueError(
                f"{file} is no file but a pipe, a socket or a device: put a copy of the file there"
            )


def count_parameters(tensors: dict[str, tuple[str, list[int]]]) -> dict[str, int]:
    """Count the numbers of each format."""
    counts: Counter[str] = Counter()
    for form, shape in tensors.values():
        counts[form] += prod(shape)
    return dict(counts)
