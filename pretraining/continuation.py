"""A run that goes on from a trained model: what is said before its first step."""

import sys
from collections.abc import Mapping

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


def told_of_tokens(about: Mapping[str, float]) -> str | None:
    """Say how many tokens the held-out text has become by a change of the tokenizer, if there was one."""
    if TOKENS_BEFORE not in about:
        return None
    now, earlier = int(about[TOKENS]), int(about[TOKENS_BEFORE])
    return (
        f"the held-out text has {now:,} tokens, and had {earlier:,} by the tokenizer before "
        f"({now / earlier - 1:+.1%})"
    )
