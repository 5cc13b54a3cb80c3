"""The folder of an evaluation: what lies in it, and when one may write there.

recipe.yaml      what was asked                    results.json     all scores, of every model and condition
items.jsonl      every item, with prompt, tokens and scores          report.md, report.html, shots.png,
answers/         what models have said, by the contents of the question, for the next time     reliability.png
"""

from ..pretraining.output import (
    RECIPE,
    delete,
    is_replaced,
    make_folder,
    require_same_recipe,
    require_unused,
    write_recipe,
)
from .recipe import FewShotRecipe

RESULTS = "results.json"
ITEMS = "items.jsonl"
ANSWERS = "answers"
MARKDOWN = "report.md"
PAGE = "report.html"
SHOTS = "shots.png"
RELIABILITY = "reliability.png"

WRITTEN = (RECIPE, RESULTS, ITEMS, ANSWERS, MARKDOWN, PAGE, SHOTS, RELIABILITY)
"""Everything that an evaluation writes into its folder."""

WHAT_IS_ASKED = ("task", "data")
"""Keys of a recipe that a continued evaluation may not change: others change nothing that was said."""


def claim_output(recipe: FewShotRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make the folder and write the recipe into it.

    Raises:
        ValueError: As in `require_claimable`.
    """
    require_claimable(recipe, resume=resume, overwrite=overwrite)
    folder = recipe.folder
    if is_replaced(folder, overwrite):
        for name in WRITTEN:
            delete(folder / name)
    make_folder(folder)
    write_recipe(recipe, folder)


def require_claimable(recipe: FewShotRecipe, *, resume: bool, overwrite: bool) -> None:
    """Make sure that `claim_output` may do as it is told; nothing is changed.

    Raises:
        ValueError: The folder is in use, or an earlier evaluation there asked something else.
    """
    replaced = is_replaced(recipe.folder, overwrite)
    require_unused(recipe.folder, allowed=WRITTEN if resume or replaced else (), written=WRITTEN)
    if resume and not replaced:
        require_same_recipe(recipe.folder, recipe, WHAT_IS_ASKED)
