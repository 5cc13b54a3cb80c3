"""An evaluation, from a recipe to a report: rows, prompts, models, scores and how far they can be trusted.

Whatever may be wrong with recipe, rows and the first model shows before the output folder is touched.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from tqdm import tqdm

from ..configs.recipe import recipe_data
from ..reporting.page import save
from ..reporting.verdicts import as_data
from ..storage.checkpoint import Checkpoint
from ..training.books import hash_of_weights
from ..training.cpu import prepared_cpu
from ..training.disk import partial_path, replace_text
from ..training.run_folder import Run, running
from .contamination import Contamination, find_contamination
from .evaluation import Evaluation, Outcome, conditions_of
from .output import ITEMS, RESULTS, run_folder
from .recipe import FewShotRecipe
from .report import build_report, verdicts
from .rows import Items, read_items
from .subject import load_subject
from .summary import summarize_model
from .task import RowScore


def fewshot(recipe: FewShotRecipe, *, overwrite: bool = False, trust_remote_code: bool = False) -> Path:
    """Evaluate models as a recipe says, and return the folder with results and report.

    Args:
        recipe: Everything that the evaluation depends on.
        overwrite: Replace an earlier evaluation in the output folder.
        trust_remote_code: Run the code that a model brings along.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the rows, a model or the output folder.
        FileNotFoundError: A named file or model does not exist.
    """
    if not recipe.models:
        raise ValueError("no model is named: pass --model, or set models in the recipe")
    with running(recipe, run_folder, resume=False, overwrite=overwrite) as run:
        evaluate_in(run, recipe, trust_remote_code=trust_remote_code)
    return recipe.folder


def evaluate_in(run: Run, recipe: FewShotRecipe, *, trust_remote_code: bool) -> None:
    """Evaluate all models in the folder that a run holds."""
    items = read_items(recipe)
    contamination = None
    if recipe.contamination is not None:
        contamination = find_contamination(items.test, recipe.contamination)
    baselines = items.task.baselines(items.test)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models: list[dict[str, Any]] = []
    with prepared_cpu(recipe.prompting, device), partial_items(recipe.folder / ITEMS) as log:
        for number, name in enumerate(recipe.models):
            prompting = recipe.prompting
            checkpoint = Checkpoint.open(name, trust_remote_code=trust_remote_code)
            subject = load_subject(checkpoint, prompting.precision, prompting.head)
            before = hash_of_weights(subject.model.state_dict())
            evaluation = Evaluation(recipe, items, subject)
            if not number:
                run.take()
            outcomes, conditions = [], conditions_of(recipe)
            for outcome in tqdm(evaluation.outcomes(), name, len(conditions), disable=None, leave=False):
                outcomes.append(outcome)
                log(name, outcome)
            weights = before, hash_of_weights(subject.model.state_dict())
            assert weights[0] == weights[1], "evaluation has changed weights"
            models.append(
                summarize_model(items.task, subject, weights, outcomes, baselines, contamination)
                | {"max_length": checkpoint.max_length}
            )
    conclude(recipe, items, models, baselines, contamination)


@contextmanager
def partial_items(file: Path) -> Iterator[Any]:
    """Yield the function that logs an outcome's items; the log gets its name when all are in it."""
    partial, opened = partial_path(file), list[TextIO]()

    def log(model: str, outcome: Outcome) -> None:
        if not opened:
            opened.append(partial.open("w", encoding="utf-8"))
        for record in outcome.counted:
            opened[0].write(json.dumps({"model": model} | record, ensure_ascii=False) + "\n")

    try:
        yield log
        for each in opened:
            each.close()
            partial.replace(file)
    finally:
        for each in opened:
            each.close()
        partial.unlink(missing_ok=True)


def conclude(
    recipe: FewShotRecipe,
    items: Items,
    models: list[dict[str, Any]],
    baselines: Mapping[str, RowScore],
    contamination: Contamination | None,
) -> None:
    """Write the results and the report."""
    results = {
        "task": recipe.task.kind,
        "criterion": items.task.metric,
        "recipe": recipe_data(recipe),
        "items": len(items.test),
        "baselines": {name: score(np.arange(len(items.test))) for name, score in baselines.items()},
        "models": models,
        "contamination": None if contamination is None else contamination.as_data(),
    }
    results["verdicts"] = as_data(verdicts(results, is_higher_better=items.task.is_higher_better))
    replace_text(recipe.folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    save(build_report(recipe, items.task, results), recipe.folder)
