"""What a run has changed that went on from a trained model, for its report: scores and numbers of tokens.

The held-out scores before the first step stand in the log as those of step 0, where a resumed run finds them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...pretraining.continuation import told_of_tokens
from ...training.tracking import Record
from ..blocks import Prose, Table, format_score
from ..scores import METRICS, what_is_scored


def before(log: Sequence[Record]) -> Mapping[str, Any]:
    """Find the held-out scores before the first step; there are none of a run from random weights."""
    found = [record for record in log if record["step"] == 0 and "evaluation/loss" in record]
    return {name.removeprefix("evaluation/"): value for name, value in found[-1].items()} if found else {}


def losses_before(log: Sequence[Record]) -> dict[str, float]:
    """Return the finite losses before the first step, by their terms."""
    losses = {
        name.removesuffix("/loss"): value for name, value in before(log).items() if name.endswith("/loss")
    }
    return {term: loss for term, loss in losses.items() if loss is not None and math.isfinite(loss)}


def change_of_scores(scores: Mapping[str, Any], log: Sequence[Record]) -> Iterator[Table]:
    """List the scores of every term before the first step and after the last; nothing without the former."""
    earlier = before(log)
    rows = [
        [
            f"{what_is_scored(term)}: {METRICS[name]}",
            format_score(earlier[key]),
            format_score(scores.get(key)),
        ]
        for term in losses_before(log)
        for name in METRICS
        if (key := f"{term}/{name}") in earlier
    ]
    if rows:
        yield Table(["on held-out text", "before the first step", "at the end"], rows)


def change_of_tokens(about: Mapping[str, float]) -> Iterator[Prose]:
    """Yield how many tokens the held-out text has become, and what that means for perplexities."""
    if (told := told_of_tokens(about)) is not None:
        yield Prose(
            f"{told[0].upper()}{told[1:]}. Perplexities by different tokenizers cannot be compared, bits per "
            "byte can."
        )
