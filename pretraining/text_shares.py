"""What a run reads of each text of its corpus: the shares of tokens, and how often it reads each.

epochs of a stage  *  passes of an epoch  =  how often the stage reads a text, or a window of a large one
"""

import sys
from collections import defaultdict
from collections.abc import Sequence

from ..training.stages import Stage, epochs_of
from ..training.weighting import WeightedSource
from ..training.windows import windows_of
from .recipe import PretrainingRecipe, texts_of


def passes_of(recipe: PretrainingRecipe, stages: Sequence[Stage]) -> dict[str, float]:
    """Compute how often a run reads each of its texts, by their names; nothing if it reads one text."""
    passes: dict[str, float] = defaultdict(float)
    for stage, epochs in zip(stages, epochs_of(stages, recipe.training.steps), strict=True):
        if isinstance(source := stage.steps.source, WeightedSource):
            for name, number in source.passes.items():
                passes[name] += epochs * number / windows_of(source.sources[name])
    return passes


def require_enough_text(recipe: PretrainingRecipe, stages: Sequence[Stage]) -> None:
    """Make sure that no text is read more often than the recipe allows.

    Raises:
        ValueError: One is.
    """
    passes = passes_of(recipe, stages)
    for text in texts_of(recipe.corpus.train):
        if text.epochs is not None and (found := passes[text.name]) > text.epochs:
            raise ValueError(
                f"corpus.train: {text.name} would be read {found:.3g} times, and its epochs allow for "
                f"{text.epochs:g}: lower its share or training.steps, raise its epochs, or add text"
            )


def tell_shares(recipe: PretrainingRecipe, stages: Sequence[Stage]) -> None:
    """Show each text on the screen: its share of the tokens, stage by stage, and how often it is read."""
    for name, number in passes_of(recipe, stages).items():
        shares = dict.fromkeys(
            f"{source.shares[name]:.3g}"
            for stage in stages
            if isinstance(source := stage.steps.source, WeightedSource)
        )
        told = ", then ".join(shares)
        print(f"text {name}: {told} of the tokens, read {number:.3g} times", file=sys.stderr, flush=True)
