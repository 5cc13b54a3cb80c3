"""An evaluation, from a recipe to what its report is made of: rows, prompts, models and their answers.

Whatever may be wrong with recipe, rows and the first model shows before the output folder is touched.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch
from tqdm import tqdm

from ..data.files.atomic_writes import partial_path, replace_text
from ..modeling.saved.checkpoint import Checkpoint
from ..training.books import hash_of_weights
from ..training.devices.cpu import prepared_cpu
from ..training.run_folder import EVALUATION, Run, running
from .contamination import Contamination, find_contamination
from .evaluation import Evaluation, Outcome, conditions_of
from .output import ITEMS, ROWS, run_folder
from .recipe import FewShotRecipe
from .rows import Items, read_items
from .subject import Subject, load_subject


def fewshot(recipe: FewShotRecipe, *, overwrite: bool = False, trust_remote_code: bool = False) -> Path:
    """Evaluate models as a recipe says, and return the folder with what they answered.

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
    """Evaluate all models in the folder that a run holds, and write what the report is made of."""
    items = read_items(recipe)
    contamination = None
    if recipe.contamination is not None:
        contamination = find_contamination(items.test, recipe.contamination)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models: list[dict[str, Any]] = []
    ready = prepared_cpu(device, retains_heap=recipe.prompting.retain_heap)
    with ready, partial_items(recipe.folder / ITEMS) as log:
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
            require_counted(subject, outcomes)
            weights = before, hash_of_weights(subject.model.state_dict())
            assert weights[0] == weights[1], "evaluation has changed weights"
            models.append(facts_of(subject, weights, outcomes))
    keep_facts(recipe, items, models, contamination)


def require_counted(subject: Subject, outcomes: Sequence[Outcome]) -> None:
    """Raise a `ValueError` if all conditions have demonstrations, and not one fits."""
    checkpoint = subject.checkpoint
    if not any(outcome.counted for outcome in outcomes):
        raise ValueError(
            f"no demonstration fits into any prompt of {checkpoint.name}, which has a maximum length of "
            f"{checkpoint.max_length:,} tokens: add 0 to prompting.num_fewshot, shorten the templates, or "
            f"name a model with a larger maximum length"
        )


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


def facts_of(subject: Subject, weights: tuple[str, str], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return what is known of a model, and of each of its conditions beside the records."""
    return {
        "name": subject.checkpoint.name,
        "member": subject.member,
        "class": type(subject.model).__name__,
        "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
        "max_length": subject.checkpoint.max_length,
        "weights_sha256": weights[0],
        "weights_unchanged": weights[0] == weights[1],
        "conditions": [
            {
                **asdict(outcome.condition),
                "items": len(outcome.counted),
                "dropped": outcome.dropped,
                "cut": outcome.cut,
                "prompt_sha256": outcome.prompt_hash,
            }
            for outcome in outcomes
        ],
    }


def keep_facts(
    recipe: FewShotRecipe,
    items: Items,
    models: list[dict[str, Any]],
    contamination: Contamination | None,
) -> None:
    """Write what was evaluated, and of each row what baselines and a corpus say of it."""
    baselines = items.task.baselines(items.test)
    lines = []
    for place, item in enumerate(items.test):
        row: dict[str, Any] = {"row": item.number}
        row["baselines"] = {name: worth[place] for name, worth in baselines.items()}
        if contamination is not None:
            row["is_touched"] = contamination.is_touched[place]
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    replace_text(recipe.folder / ROWS, "".join(lines))
    facts = {
        "task": recipe.task.kind,
        "items": len(items.test),
        "models": models,
        "contamination": None if contamination is None else contamination.as_data(),
    }
    replace_text(recipe.folder / EVALUATION, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
