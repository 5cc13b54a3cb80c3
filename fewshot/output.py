"""The folder of an evaluation: what lies in it, and when one may write there.

recipe.yaml      what was evaluated                evaluation.json  the models and conditions
items.jsonl      every item, with prompt, tokens and log-likelihoods
rows.jsonl       what baselines and the contamination corpus say of every row

The report (`reports/fewshot/report.py`) is made from these:

scores.json      all scores, of every model and condition
report.md, report.html, shots.png, reliability.png
"""

from ..training.run_folder import RunFolder
from .recipe import FewShotRecipe

ITEMS = "items.jsonl"
ROWS = "rows.jsonl"
SHOTS = "shots.png"
RELIABILITY = "reliability.png"


def run_folder(recipe: FewShotRecipe) -> RunFolder:
    """Return where an evaluation writes and what it reads."""
    return RunFolder(
        recipe,
        models=("models",),
        texts=("data.test", "data.demonstrations", "contamination.corpus"),
    )
