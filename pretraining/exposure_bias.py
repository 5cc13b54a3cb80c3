"""Exposure bias, measured: a generator's next token behind the true beginning, and behind its own.

    true beginning   source, y1 ... y(t-1)  ->  is the most probable next token y_t?
    own beginning    source, what the model has written so far, greedily  ->  is its t-th token y_t?

In training a model has only read true beginnings (Ranzato et al., 2016). Where the second curve falls away
from the first one, mistakes follow from mistakes. What is written correctly one place later than in the
reference counts as wrong there, too: therefore there is a second measure, whether the token is anywhere in
the reference.

Shapes: E examples, T positions of the longest target, B batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from ..metrics.bootstrap import bootstrap_scores, percentile_interval
from ..objectives.writing import padded, write

Ids = Sequence[np.ndarray]
"""Token ids of each example."""


class Generator(ABC):
    """A model that writes targets behind sources. Abstract: how it is called.

    Args:
        model: In evaluation mode.
        pad_id: What fills batches.
    """

    def __init__(self, model: nn.Module, pad_id: int):
        self.model: Any = model
        self.pad_id = pad_id

    @abstractmethod
    def behind_truth(self, sources: Ids, targets: Ids) -> list[np.ndarray]:
        """Predict each token of each target behind the true ones before it."""

    @abstractmethod
    def behind_own(self, sources: Ids, num_tokens: int) -> list[np.ndarray]:
        """Write as many tokens behind each source, or fewer where the model ends, greedily."""


class SourceAndTarget(Generator):
    """A sequence-to-sequence model, Transformer or recurrent."""

    def behind_truth(self, sources: Ids, targets: Ids) -> list[np.ndarray]:
        """Read sources and shifted targets."""
        labels = padded(targets, self.pad_id)["input_ids"]
        inputs = on(self.model, padded(sources, self.pad_id) | {"labels": labels})
        read = self.model.prepare_decoder_input_ids_from_labels(inputs.pop("labels"))
        best = self.model(**inputs, decoder_input_ids=read, use_cache=False).logits.argmax(-1).cpu().numpy()
        return [row[: len(target)] for row, target in zip(best, targets, strict=True)]

    def behind_own(self, sources: Ids, num_tokens: int) -> list[np.ndarray]:
        """Generate, and leave out the token that the decoder begins with."""
        written = write(self.model, sources, self.pad_id, num_beams=1, max_new_tokens=num_tokens)
        return [row[1:] for row in written]


class Continuation(Generator):
    """A decoder, whose source is the beginning of a text: of the same length in all examples."""

    def behind_truth(self, sources: Ids, targets: Ids) -> list[np.ndarray]:
        """Read texts as a whole."""
        texts = [np.concatenate(pair) for pair in zip(sources, targets, strict=True)]
        best = self.model(**on(self.model, padded(texts, self.pad_id)), use_cache=False).logits.argmax(-1)
        pairs = zip(best.cpu().numpy(), sources, targets, strict=True)
        return [row[len(source) - 1 : len(source) + len(target) - 1] for row, source, target in pairs]

    def behind_own(self, sources: Ids, num_tokens: int) -> list[np.ndarray]:
        """Generate, and leave out the source.

        Raises:
            ValueError: Sources have different lengths.
        """
        if len(lengths := {len(source) for source in sources}) > 1:
            raise ValueError(
                f"the beginnings have from {min(lengths)} to {max(lengths)} tokens: cut them to one length"
            )
        written = write(self.model, sources, self.pad_id, num_beams=1, max_new_tokens=num_tokens)
        return [row[len(source) :] for row, source in zip(written, sources, strict=True)]


@dataclass(frozen=True)
class ExposureCurves:
    """Accuracy by position, in both ways.

    Args:
        counts: Targets that have the position, (T,).
        behind_truth: Share of right tokens behind the true beginning, (T,).
        behind_own: Behind the model's own, (T,).
        in_reference_truth: Share of tokens that are anywhere in the reference, behind the true beginning,
            (T,).
        in_reference_own: Behind the model's own, (T,).
        gap: `behind_truth` less `behind_own`, over all tokens.
        interval: Its 95 % interval, by drawing examples again.
        reference_gap: The same of `in_reference`.
        reference_interval: Its interval.
    """

    counts: np.ndarray
    behind_truth: np.ndarray
    behind_own: np.ndarray
    in_reference_truth: np.ndarray
    in_reference_own: np.ndarray
    gap: float
    interval: tuple[float, float]
    reference_gap: float
    reference_interval: tuple[float, float]


@torch.inference_mode()
def measure_exposure_bias(
    generator: Generator, sources: Ids, targets: Ids, batch_size: int = 32
) -> ExposureCurves:
    """Measure a generator on examples.

    Args:
        generator: The model.
        sources: As it reads them.
        targets: What is right, with the token that ends it if the model writes one.
        batch_size: Examples that are read at once.

    Raises:
        ValueError: There are no examples, or more or fewer targets than sources, or an empty target.
    """
    if not targets or len(sources) != len(targets) or not all(map(len, targets)):
        raise ValueError(
            f"there are {len(sources)} sources and {len(targets)} targets, the shortest of "
            f"{min(map(len, targets), default=0)} tokens: give a target of at least one token for each source"
        )
    longest = max(map(len, targets))
    truth: list[np.ndarray] = []
    for first in range(0, len(sources), batch_size):
        batch = slice(first, first + batch_size)
        truth += generator.behind_truth(sources[batch], targets[batch])
    own = generator.behind_own(sources, longest)
    exact = [hits(found, targets, is_at_place) for found in (truth, own)]
    anywhere = [hits(found, targets, is_anywhere) for found in (truth, own)]
    gap, interval = gap_of(exact[0], exact[1], targets)
    reference_gap, reference_interval = gap_of(anywhere[0], anywhere[1], targets)
    return ExposureCurves(
        counts=(~np.isnan(exact[0])).sum(0),
        behind_truth=by_position(exact[0]),
        behind_own=by_position(exact[1]),
        in_reference_truth=by_position(anywhere[0]),
        in_reference_own=by_position(anywhere[1]),
        gap=gap,
        interval=interval,
        reference_gap=reference_gap,
        reference_interval=reference_interval,
    )


def is_at_place(token: int, place: int, target: np.ndarray) -> bool:
    """Return whether a token is the target's at the same place."""
    return token == target[place]


def is_anywhere(token: int, place: int, target: np.ndarray) -> bool:
    """Return whether a token is anywhere in the target."""
    return token in target


def hits(found: Ids, targets: Ids, is_right: Callable[[int, int, np.ndarray], bool]) -> np.ndarray:
    """Mark the right tokens (E, T) by 1, others by 0, and what stands behind the end of a target by nan."""
    table = np.full((len(targets), max(map(len, targets))), np.nan)
    for row, own, right in zip(table, found, targets, strict=True):
        row[: len(right)] = 0
        kept = own[: len(right)].tolist()
        row[: len(kept)] = [is_right(token, place, right) for place, token in enumerate(kept)]
    return table


def by_position(table: np.ndarray) -> np.ndarray:
    """Average the examples that have a position: (E, T) -> (T,)."""
    return np.nanmean(table, axis=0)


def gap_of(truth: np.ndarray, own: np.ndarray, targets: Ids) -> tuple[float, tuple[float, float]]:
    """Return the difference of the shares over all tokens, and its 95 % interval."""
    differences = np.nansum(truth - own, axis=1)
    lengths = np.array([*map(len, targets)])
    drawn = bootstrap_scores(lambda rows: float(differences[rows].sum() / lengths[rows].sum()), len(targets))
    return float(differences.sum() / lengths.sum()), percentile_interval(drawn)


def on(model: nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Bring inputs to a model's device."""
    device = next(model.parameters()).device
    return {name: value.to(device) for name, value in inputs.items()}


def generator_of(model: nn.Module, pad_id: int) -> Generator:
    """Choose how a model is called by whether it has an encoder.

    Raises:
        ValueError: It does not generate.
    """
    config = cast(Any, model).config
    if not cast(Any, model).can_generate():
        raise ValueError(
            f"a {config.model_type} without generate() has no exposure bias to measure: name a model that "
            "translates, or a decoder"
        )
    kind = SourceAndTarget if config.is_encoder_decoder else Continuation
    return kind(model.eval(), pad_id)
