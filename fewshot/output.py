"""The folder of an evaluation: what lies in it, and when one may write there.

recipe.yaml      what was evaluated                results.json     all scores, of every model and condition
items.jsonl      every item, with prompt, tokens and scores          report.md, report.html, shots.png,
                                                                     reliability.png
"""

from ..training.run_folder import MARKDOWN, PAGE, RECIPE, RunFolder
from .recipe import FewShotRecipe

RESULTS = "results.json"
ITEMS = "items.jsonl"
SHOTS = "shots.png"
RELIABILITY = "reliability.png"

WRITTEN = (RECIPE, RESULTS, ITEMS, MARKDOWN, PAGE, SHOTS, RELIABILITY)
"""Everything that an evaluation writes into its folder."""


def run_folder(recipe: FewShotRecipe) -> RunFolder:
    """Return what an evaluation writes and reads."""
    return RunFolder(
        recipe,
        written=WRITTEN,
        models=("models",),
        texts=("data.test", "data.demonstrations", "contamination.corpus"),
    )
