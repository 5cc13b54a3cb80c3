"""The folder of an evaluation: what lies in it, and when one may write there.

recipe.yaml      what was evaluated                results.json     all scores, of every model and condition
items.jsonl      every item, with prompt, tokens and scores          report.md, report.html, shots.png,
                                                                     reliability.png
"""

from ..training.run_folder import RunFolder
from .recipe import FewShotRecipe

RESULTS = "results.json"
ITEMS = "items.jsonl"
SHOTS = "shots.png"
RELIABILITY = "reliability.png"


def run_folder(recipe: FewShotRecipe) -> RunFolder:
    """Return where an evaluation writes and what it reads."""
    return RunFolder(
        recipe,
        models=("models",),
        texts=("data.test", "data.demonstrations", "contamination.corpus"),
    )
