"""The stock model in a folder or on the Hub, with the head that its weights are for."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from .architecture import Architecture, Counterpart
from .architectures import architecture_of
from .messages import quietly, shortened
from .model_folder import find_folder, load_config
from .stored_weights import inspect_weights
from .weights import Dropped, look_up, tied_names


class Attempt(NamedTuple):
    """A model that was loaded with one head, and how well that went.

    Args:
        model: With this head.
        missing: Tensors that it needs and the files do not have, or in another shape. What ours has no use
            for, such as the pooler of a model that was built without one, is not needed.
        surplus: Tensors of the files that it has no place for.
    """

    model: PreTrainedModel
    missing: list[str]
    surplus: list[str]


def load_stock(source: str, revision: str | None = None) -> PreTrainedModel:
    """Load a stock model from a folder or the Hub, with the head that takes up most of its tensors.

    Args:
        source: A folder, or the name of a repository on the Hub.
        revision: Branch, tag or commit there.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: It is none of the architectures that ours can be, or its weights are damaged, incomplete,
            pickled, or more than its architecture has.
    """
    folder = find_folder(source, revision)
    config = load_config(folder)
    if config.model_type.startswith("tercet"):
        raise ValueError(f"{source} is a {config.model_type} already: load it with from_pretrained")
    architecture = architecture_of(config)
    inspect_weights(folder)
    best = best_attempt(folder, architecture, config)
    if best.missing:
        raise ValueError(
            f"{source} lacks {len(best.missing)} tensors of its architecture: {shortened(best.missing)}"
        )
    if best.surplus:
        raise ValueError(
            f"{source} has {len(best.surplus)} tensors that {type(best.model).__name__} does not have: "
            f"{shortened(best.surplus)}"
        )
    return best.model.eval()


def best_attempt(folder: Path, architecture: Architecture, config: PreTrainedConfig) -> Attempt:
    """Load with one head after the other until one fits; else give that which lacks and leaves the least."""
    attempts = []
    for counterpart in candidates(architecture, config):
        attempts.append(attempt(folder, architecture, counterpart))
        if not (attempts[-1].missing or attempts[-1].surplus):
            break
    return min(attempts, key=lambda each: (len(each.missing), len(each.surplus)))


def candidates(architecture: Architecture, config: PreTrainedConfig) -> Iterator[Counterpart]:
    """Give the model that the configuration names, then the others of its architecture."""
    named = (config.architectures or [None])[0]
    yield from sorted(architecture.counterparts, key=lambda each: each.stock != named)


def attempt(folder: Path, architecture: Architecture, counterpart: Counterpart) -> Attempt:
    """Load a model with one head."""
    with quietly():
        model, found = getattr(transformers, counterpart.stock).from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True
        )
    table, present = architecture.table(counterpart), set[str]()
    surplus = [
        name
        for name in sorted(found["unexpected_keys"])
        if not isinstance(look_up(name, table, model.config, present), Dropped)
    ]
    alone = {names[0] for names in tied_names(model) if len(names) == 1}
    left_out = {
        name
        for name in found["missing_keys"]
        if name in alone and isinstance(look_up(name, table, model.config, present), Dropped)
    }
    missing = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])} - left_out
    return Attempt(model, sorted(missing), surplus)
