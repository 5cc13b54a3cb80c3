"""A certificate: two models are one, as far as numbers can tell; or where they begin to differ."""

import hashlib
import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..modeling.pretrained_tercet import TercetPreTrainedModel
from .comparison import PRECISIONS, Difference, compare, first_difference
from .conversion import links_between
from .model_folder import CERTIFICATE
from .probes import probes_for

TOLERANCE = 1e-5
"""Largest difference that counts as none, by the scale of the numbers where that is above 1. In float64 too:
some stock models compute norms in float32 whatever they are given."""


@dataclass(frozen=True)
class Certificate:
    """What was compared, and what came of it.

    Args:
        stock: The stock model's class, and ours.
        ours: Our class.
        sha256: Of all weights of each.
        versions: Of what computed.
        differences: All measurements.
        dropped: Stock tensors that ours does without, and why.
        first_difference: Where the models begin to differ, if they do.
    """

    stock: str
    ours: str
    sha256: dict[str, str]
    versions: dict[str, str]
    differences: tuple[Difference, ...]
    dropped: dict[str, str]
    first_difference: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing differs by more than rounding."""
        return all(difference.relative <= TOLERANCE for difference in self.differences)

    def save(self, folder: Path) -> None:
        """Write `certificate.json`."""
        facts = {"holds": self.holds, "tolerance": TOLERANCE, **asdict(self)}
        (folder / CERTIFICATE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Self:
        """Read what `save` has written.

        Raises:
            ValueError: It is something else.
        """
        try:
            measured: dict[str, Any] = {each.name: facts[each.name] for each in fields(cls)}
            measured["differences"] = tuple(Difference(**each) for each in facts["differences"])
            return cls(**measured)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{CERTIFICATE} is not a file of `tercet import` or `tercet export` ({error}): write it "
                f"again, or remove it"
            ) from error

    def verdict(self) -> str:
        """Say in one line what came of it."""
        if self.holds:
            return f"{self.stock} and {self.ours} are equal"
        worst = max(self.differences, key=lambda each: each.relative)
        return (
            f"{self.stock} and {self.ours} are not equal: {worst.what} on {worst.probe} differ by "
            f"{worst.relative:.1e} in {worst.precision}, first in {self.first_difference}"
        )

    def table(self) -> str:
        """Show the measurements as Markdown."""
        return "\n".join(
            [
                f"{self.verdict()}.",
                "",
                "| compared | on | " + " | ".join(PRECISIONS) + " |",
                "|---|---|" + "--:|" * len(PRECISIONS),
                *self._rows(),
                "",
                f"Largest differences, relative to numbers above 1; up to {TOLERANCE:g} counts as rounding.",
                *(f"Without {name}: {reason}." for name, reason in self.dropped.items()),
            ]
        )

    def _rows(self) -> Iterator[str]:
        found = {(each.what, each.probe, each.precision): each for each in self.differences}
        for what, probe in dict.fromkeys((each.what, each.probe) for each in self.differences):
            cells = [found.get((what, probe, precision)) for precision in PRECISIONS]
            shown = ["" if cell is None else f"{cell.relative:.1e}" for cell in cells]
            yield f"| {what} | {probe} | {' | '.join(shown)} |"


def certify(
    stock: PreTrainedModel, ours: TercetPreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None
) -> Certificate:
    """Compare a stock model with one of ours that is to be the same, in float64 and float32.

    Args:
        stock: Any stock model with a counterpart.
        ours: What it became, or came from.
        tokenizer: Theirs: with it they are also compared on texts.
    """
    probes = probes_for(stock, ours, tokenizer)
    differences = tuple(
        difference for precision in PRECISIONS for difference in compare(stock, ours, probes, precision)
    )
    where = None
    if any(difference.relative > TOLERANCE for difference in differences):
        found = (first_difference(stock, ours, probe, TOLERANCE) for probe in probes)
        where = next((place for place in found if place), "the head")
    return Certificate(
        stock=type(stock).__name__,
        ours=type(ours).__name__,
        sha256={"stock": digest(stock), "ours": digest(ours)},
        versions={name: version(name) for name in ("tercet", "torch", "transformers")}
        | {"python": platform.python_version()},
        differences=differences,
        dropped=dict(links_between(stock, ours).dropped),
        first_difference=where,
    )


def digest(model: Any) -> str:
    """Hash all tensors of a model, in the order of their names."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha256.update(name.encode())
        sha256.update(str(tensor.dtype).encode())
        numbers = tensor.detach().cpu().contiguous().flatten()
        sha256.update(numbers.view(torch.uint8).numpy().tobytes())  # numpy knows no bfloat16
    return sha256.hexdigest()
