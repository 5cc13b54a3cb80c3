"""The weights of a saved model: looked at without reading them, compared with the model, and loaded whole.

A safetensors file begins with the size of its header and the header, which says where each tensor lies; both
must agree with the file's size. Of a model in several files, an index says which tensor lies where.

transformers draws at random what files lack, and leaves unread what has no place in the model. Both are found
here before anything is allocated: files and configuration are compared by a model without storage (on torch's
device `meta`). The sizes in a configuration therefore cost nothing that the files do not hold. A model loaded
whole has every tensor that it needs, in its shape, and only finite numbers.
"""

import inspect
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import CONFIG_MAPPING, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ...configs.messages import first_line, quietly, shortened
from ...configs.named_files import named_file, require_plain

PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
"""Names of files that run foreign code when they are read."""

ADAPTER = "adapter_config.json"
"""File by which PEFT finds an adapter."""

MOST_LAYERS = 1000
"""Layers that a configuration may have more than the files have tensors: some architectures share them."""

MOST_ANYWHERE = 2**24
"""The largest size that costs nothing, however small the files: positions without weights go on that far."""

MOST_LABELS = 2**20
"""Labels of a configuration without weights, each of which gets a name."""

COUNTS_PARTS = re.compile(r".*layer.*|(n|num)_.*(expert|block|stage).*")
"""Fields of a configuration that count parts of a model, each of which is an object."""

IS_SIZE = re.compile(
    r"(.*_)?(n|d|num|max|size|dim|width|length|len|heads?|embd|embed|ctx|positions?|embeddings?|inner|hidden|vocab"
    r"|labels|window|kernel|channels|rank|groups?|range|buckets|distance)(_.*)?"
)
"""Fields of a configuration that are sizes, which a tensor may have, also one that is in no file."""


@dataclass(frozen=True)
class StoredWeights:
    """What the files of a model hold."""

    files: list[Path]
    """One, or the index and its shards."""
    parameters: dict[str, int]
    """How many numbers of which format; shared ones once."""
    num_tensors: int
    """How many tensors they are."""


def inspect_weights(folder: Path) -> StoredWeights:
    """Make sure that all weights of a model are there and whole, and none pickled."""
    require_no_adapter(folder)
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


def require_no_adapter(folder: Path) -> None:
    """Refuse a model with an adapter in its folder, which PEFT would add to the weights.

    Its configuration can name other models, and modules that are imported.
    """
    if (folder / ADAPTER).exists():
        raise ValueError(
            f"{folder} has an adapter beside the model ({ADAPTER}), which transformers would add to it: "
            "merge the two with PEFT's merge_and_unload and save the model again, or take the adapter out"
        )


def require_counts(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse sizes in a configuration that take memory or time before it meets the weights.

    transformers names every label, a model without storage still has an object for each layer, and what is
    computed from positions is in no file. Other sizes are compared by such a model (`compare_weights`).
    Without weights, sizes are small where they cost nothing.
    """
    has_weights = any((folder / name).exists() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))
    stored = inspect_weights(folder) if has_weights else StoredWeights([], {}, 0)
    numbers, parts = sum(stored.parameters.values()), max(stored.num_tensors, MOST_LAYERS)
    for name, value in sizes_in(config):
        most = (numbers or MOST_LABELS) if name == "num_labels" else max(numbers, MOST_ANYWHERE)
        if value > (parts if COUNTS_PARTS.fullmatch(name) else most):
            file = stored.files[0].name if stored.files else folder
            raise ValueError(
                f"{folder / 'config.json'} says {name} = {value:,}, but {file} has {stored.num_tensors:,} "
                f"tensors with {numbers:,} numbers: use the config.json that was saved with these weights"
            )


def sizes_in(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the sizes in a configuration, its own and those of the configurations in it, by their names.

    What its class does not have makes nothing: somebody may have noted the number of parameters.
    """
    name, own = str(config.get("model_type")), list(config.items())
    if name in CONFIG_MAPPING:
        kind = CONFIG_MAPPING[name]
        fields = {*inspect.signature(kind).parameters, *kind.attribute_map, "num_labels"}
        own = [(field, value) for field, value in own if field in fields]
    while own:
        name, value = own.pop()
        if isinstance(value, list):
            own += ((name, each) for each in value)
        elif isinstance(value, dict):
            own += value.items()
        elif isinstance(value, int | float) and (IS_SIZE.fullmatch(name) or COUNTS_PARTS.fullmatch(name)):
            yield name, value


def no_weights(folder: Path) -> ValueError:
    """Return the error of a folder without weights, with what to do if there are pickled ones."""
    pickled = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not pickled:
        return ValueError(
            f"{folder} holds no weights (neither {SAFE_WEIGHTS_NAME} nor {SAFE_WEIGHTS_INDEX_NAME}; pickled "
            "ones are not fetched from the Hub): save model and tokenizer in one folder with save_pretrained"
        )
    architectures = json.loads((folder / "config.json").read_bytes()).get("architectures") or ["AutoModel"]
    return ValueError(
        f"{folder} has its weights as a pickle ({shortened(pickled, 3)}), which may run arbitrary code when "
        f"it is loaded: convert them with `{architectures[0]}.from_pretrained({str(folder)!r}, "
        f"use_safetensors=False, weights_only=True).save_pretrained({str(folder)!r})`, which loads tensors "
        "only"
    )


def read_index(index: Path) -> dict[str, str]:
    """Read in which file each tensor lies."""
    require_plain(index)
    try:
        places = dict(json.loads(index.read_bytes())["weight_map"])
        names = {*places.values()}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{index} is damaged ({error}): copy it again, or save the model again") from error
    for name in names:
        named_file(index.parent, name, index)
    return places


def read_header(file: Path) -> dict[str, tuple[str, list[int]]]:
    """Read the format and shape of every tensor in a file, and compare the file's size with them."""
    require_plain(file)
    try:
        with safe_open(file, framework="numpy") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            return {name: (part.get_dtype(), part.get_shape()) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged ({error}): copy it again, or save the model again") from error


def count_parameters(tensors: dict[str, tuple[str, list[int]]]) -> dict[str, int]:
    """Count the numbers of each format."""
    counts: Counter[str] = Counter()
    for form, shape in tensors.values():
        counts[form] += prod(shape)
    return dict(counts)


Condition = Callable[[str], bool]
"""Chooses tensors by their names."""

NO_KERNELS = {"attn_implementation": None}
"""Argument of `from_pretrained` that chooses attention as ever: a configuration could name a kernel on the
Hub, which is code that transformers would download and run."""

MOST_NAMED = 4
"""Tensors that a message names."""


class Fit(NamedTuple):
    """How the tensors of files fit a model."""

    model: PreTrainedModel
    """Without storage."""
    missing: list[str]
    """Names of tensors that it needs and the files do not have."""
    misshapen: dict[str, str]
    """Names of tensors that they have in another shape -> both shapes, in words."""
    surplus: list[str]
    """Names of tensors that it has no place for."""


def compare_weights(loader: Any, folder: Path, **arguments: Any) -> Fit:
    """Compare a model with the safetensors in a folder; nothing is allocated.

    `arguments` are those of `from_pretrained`, as in the functions below.
    """
    try:
        with quietly():
            model, found = loader.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True,
                device_map="meta", **NO_KERNELS, **arguments,
            )  # fmt: skip
    except RuntimeError as error:
        raise ValueError(
            f"{folder / 'config.json'} describes no possible model ({first_line(error)}): use the "
            "config.json that was saved with these weights"
        ) from error
    misshapen = {
        name: f"{name} is {tuple(stored)} in the file and {tuple(told)} by config.json"
        for name, stored, told in sorted(found["mismatched_keys"])
    }
    return Fit(model, sorted(found["missing_keys"]), misshapen, sorted(found["unexpected_keys"]))


def load_whole(
    loader: Any,
    folder: Path,
    *,
    may_lack: Condition = lambda name: False,
    may_leave: Condition = lambda name: False,
    **arguments: Any,
) -> tuple[PreTrainedModel, Fit]:
    """Load a model none of whose weights are made up, unless by permission, and say how the files fitted it.

    It is in evaluation mode. `may_lack` tells of a tensor's name whether it may be drawn, `may_leave` whether
    it may stay unread.
    """
    stored = inspect_weights(folder)
    fit = compare_weights(loader, folder, **arguments)
    require_fit(fit, stored, may_lack, may_leave)
    return load_finite(loader, folder, stored, **arguments), fit


def load_finite(loader: Any, folder: Path, stored: StoredWeights, **arguments: Any) -> PreTrainedModel:
    """Load a model whose files are known to fit it."""
    with quietly():
        model = loader.from_pretrained(
            folder, use_safetensors=True, ignore_mismatched_sizes=True, **NO_KERNELS, **arguments
        )
    require_finite(model.state_dict(), stored.files[0])
    return model.eval()


def require_fit(
    fit: Fit,
    stored: StoredWeights,
    may_lack: Condition = lambda name: False,
    may_leave: Condition = lambda name: False,
) -> None:
    """Raise a `ValueError` unless files have what a model needs, and nothing that it has no place for."""
    file, kind = stored.files[0], type(fit.model).__name__
    if missing := [name for name in fit.missing if not may_lack(name)]:
        raise ValueError(
            f"{file} lacks {counted(missing)} of {kind}, which would be drawn at random: copy the file again "
            "or save the model again, or use the config.json that was saved with it"
        )
    if misshapen := [words for name, words in fit.misshapen.items() if not may_lack(name)]:
        raise ValueError(
            f"{file} and config.json do not belong together ({shortened(misshapen, MOST_NAMED)}): use the "
            "config.json that was saved with these weights"
        )
    if surplus := [name for name in fit.surplus if not may_leave(name)]:
        raise ValueError(
            f"{file} has {counted(surplus)} for which {kind} has no place: use the config.json that was "
            "saved with these weights; its `architectures` names the class that was saved"
        )


def tell_of_unread(fit: Fit, folder: Path) -> None:
    """Warn of tensors below the head that nothing reads; of those of other heads, nothing is said."""
    base = f"{fit.model.base_model_prefix}."
    if unread := [name for name in fit.surplus if name.startswith(base)]:
        warnings.warn(
            f"{folder} has {counted(unread)} for which {type(fit.model).__name__} has no place: they are not "
            "read",
            stacklevel=2,
        )


def require_finite(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Raise a `ValueError` if a tensor has numbers that are not finite, and name it."""
    names: dict[object, str] = {}
    for name, tensor in tensors.items():
        names.setdefault((tensor.data_ptr(), tensor.shape), name)  # tied ones are one
    if spoiled := [name for name in names.values() if not is_finite(tensors[name])]:
        raise ValueError(
            f"{file} has weights that are not finite in {counted(spoiled)}: the training has failed, so use "
            "an earlier checkpoint, or train again with a lower learning rate"
        )


def is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers of a tensor are finite, without a copy of it."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = torch.aminmax(tensor.detach())
    return bool(low.isfinite() & high.isfinite())


def counted(names: list[str]) -> str:
    """Count tensors, and name some."""
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'} ({shortened(names, MOST_NAMED)})"


def hash_of_weights(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their names."""
    digest = sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
