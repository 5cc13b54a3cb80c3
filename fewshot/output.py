"""The folder of an evaluation: what lies in it, and when one may write there.

recipe.yaml      what was evaluated                results.json     all scores, of every model and condition
items.jsonl      every item, with prompt, tokens and scores          report.md, report.html, shots.png,
answers/         scores and texts, by the contents of the request, for the next time       reliability.png
"""

from ..training.run_folder import MARKDOWN, PAGE, RECIPE, RunFolder
from .recipe import FewShotRecipe

RESULTS = "results.json"
ITEMS = "items.jsonl"
ANSWERS = "answers"
SHOTS = "shots.png"
RELIABILITY = "reliability.png"

WRITTEN = (RECIPE, RESULTS, ITEMS, ANSWERS, MARKDOWN, PAGE, SHOTS, RELIABILITY)
"""Everything that an evaluation writes into its folder."""

WHAT_IS_EVALUATED = ("task", "data")
"""Keys of a recipe that a continued evaluation may not change: others change no score."""


def run_folder(recipe: FewShotRecipe) -> RunFolder:
    """Return what an evaluation writes and reads."""
    return RunFolder(
        recipe,
        written=WRITTEN,
        kept=WHAT_IS_EVALUATED,
        models=("models",),
        texts=("data.test", "data.demonstrations", "contamination.corpus"),
    )
