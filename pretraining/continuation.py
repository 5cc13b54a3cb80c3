"""A run that goes on from a trained model: what is said before its first step, and compared after the last.

The held-out scores before the first step stand in the log as those of step 0, where a resumed run finds them.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..reporting.blocks import Prose, Table, format_score
from ..storage.scores import METRICS, what_is_scored
from ..training.tracking import Record
from .recipe import PretrainingRecipe

SMALLEST_RATE, ADVISED_RATE, LARGEST_RATE = 2e-5, 1e-4, 5e-4
"""Peak learning rates with which trained models are trained on. The README of BERT's code advises the first.
Gururangan et al. (2020) took the others: for a task's own text, and for a domain's, 2,048 texts a step."""

TOKENS, TOKENS_BEFORE = "tokens", "tokens_before"
"""Under these names it is told how many tokens the held-out text has, now and by the tokenizer before."""


def tell_of_replaced(recipe: PretrainingRecipe) -> None:
    """Show on the screen that a model takes the place of the recipe's preset."""
    model = recipe.model
    if model.path is None or model.preset is None:
        return
    names = f" and its overrides ({', '.join(model.overrides)})" if model.overrides else ""
    remedy = "; for overrides of the model, set model.preset=null" if model.overrides else ""
    print(f"{model.path} replaces the preset {model.preset}{names}{remedy}", file=sys.stderr, flush=True)


def tell_of_learning_rate(recipe: PretrainingRecipe) -> None:
    """Show on the screen what is advised if a trained model is to learn as fast as random weights do."""
    rate = recipe.training.optimizer.learning_rate
    if recipe.model.path is None or rate is None or rate <= LARGEST_RATE:
        return
    print(
        f"training.optimizer.learning_rate is {rate:g}, as for random weights, which may undo what "
        f"{recipe.model.path} has learned: begin with {ADVISED_RATE:g} (from {SMALLEST_RATE:g} to "
        f"{LARGEST_RATE:g}: Devlin et al., 2019, Gururangan et al., 2020), and compare the scores before the "
        "first step with later ones",
        file=sys.stderr,
        flush=True,
    )


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


def told_of_tokens(about: Mapping[str, float]) -> str | None:
    """Say how many tokens the held-out text has become by a change of the tokenizer, if there was one."""
    if TOKENS_BEFORE not in about:
        return None
    now, earlier = int(about[TOKENS]), int(about[TOKENS_BEFORE])
    return (
        f"the held-out text has {now:,} tokens, and had {earlier:,} by the tokenizer before "
        f"({now / earlier - 1:+.1%})"
    )


def change_of_tokens(about: Mapping[str, float]) -> Iterator[Prose]:
    """Yield how many tokens the held-out text has become, and what that means for perplexities."""
    if (told := told_of_tokens(about)) is not None:
        yield Prose(
            f"{told[0].upper()}{told[1:]}. Perplexities by different tokenizers cannot be compared, bits per "
            "byte can."
        )
