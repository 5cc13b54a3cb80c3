"""The stock model in a folder or on the Hub, with the head that its weights are for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ..ground.saved_weights import Fit, compare_weights, inspect_weights, load_finite, require_fit
from ..stock.architecture import Architecture, Counterpart
from ..stock.architectures import architecture_of
from ..stock.weights import is_dropped, tied_names
from ..storage.model_folder import find_folder, load_config


class Attempt(NamedTuple):
    """One head for a model, and how well it goes with the files.

    Args:
        loader: The class with this head.
        fit: Without what ours has no use for, such as the pooler of a model that was built without one.
    """

    loader: Any
    fit: Fit

    @property
    def num_misfits(self) -> tuple[int, int]:
        """Count the tensors that are not as the model needs them, and those that it does not have."""
        return len(self.fit.missing) + len(self.fit.misshapen), len(self.fit.surplus)


def load_stock(source: str, revision: str | None = None) -> PreTrainedModel:
    """Load a stock model from a folder or the Hub, with the head that takes up most of its tensors.

    Args:
        source: A folder, or the name of a repository on the Hub.
        revision: Branch, tag or commit there.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: It is none of the architectures that ours can be, or its weights are damaged, incomplete,
            pickled, not finite, or more than its architecture has.
    """
    folder = find_folder(source, revision)
    config = load_config(folder)
    if config.model_type.startswith("tercet"):
        raise ValueError(f"{source} is a {config.model_type} already: load it with from_pretrained")
    architecture = architecture_of(config)
    stored = inspect_weights(folder)
    best = best_attempt(folder, architecture, config)
    require_fit(best.fit, stored)
    return load_finite(best.loader, folder, stored)


def best_attempt(folder: Path, architecture: Architecture, config: PreTrainedConfig) -> Attempt:
    """Compare one head after the other until one fits; else give that which lacks and leaves the least."""
    attempts = []
    for counterpart in candidates(architecture, config):
        attempts.append(attempt(folder, architecture, counterpart))
        if not any(attempts[-1].num_misfits):
            break
    return min(attempts, key=lambda each: each.num_misfits)


def candidates(architecture: Architecture, config: PreTrainedConfig) -> Iterator[Counterpart]:
    """Yield the model that the configuration names, then the others of its architecture."""
    named = (config.architectures or [None])[0]
    yield from sorted(architecture.counterparts, key=lambda each: each.stock != named)


def attempt(folder: Path, architecture: Architecture, counterpart: Counterpart) -> Attempt:
    """Compare the files with one head."""
    loader = getattr(transformers, counterpart.stock)
    fit = compare_weights(loader, folder)
    alone = {names[0] for names in tied_names(fit.model) if len(names) == 1}
    about = architecture.table(counterpart), fit.model.config
    missing = [name for name in fit.missing if not (name in alone and is_dropped(name, *about))]
    surplus = [name for name in fit.surplus if not is_dropped(name, *about)]
    return Attempt(loader, fit._replace(missing=missing, surplus=surplus))
