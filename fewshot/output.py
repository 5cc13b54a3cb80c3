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
    """Say what an evaluation has to do with its folder."""
    data = recipe.data
    splits = {"data.test": data.test, "data.demonstrations": data.demonstrations}
    rows = {key: split and data.place(split) for key, split in splits.items()} if data.dataset is None else {}
    corpus = recipe.contamination and recipe.contamination.corpus
    return RunFolder(
        recipe,
        written=WRITTEN,
        kept=WHAT_IS_EVALUATED,
        models={"models": recipe.models},
        texts=rows | {"contamination.corpus": corpus},
    )
