"""An evaluation, from a recipe to what its report is made of: rows, prompts, models and their answers.

Whatever may be wrong with recipe, rows and the first model shows before the output folder is touched.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..modeling.saved.checkpoint import Checkpoint
from ..modeling.saved.weights import hash_of_weights
from ..training.devices.cpu import prepared_cpu
from ..training.run_folder import running
from .evaluation import Evaluation, Outcome
from .facts import facts_of, keep_facts, partial_items
from .output import ITEMS, run_folder
from .recipe import FewShotRecipe
from .rows import read_items
from .subject import load_subject


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
    prompting, contamination = recipe.prompting, None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with running(run_folder(recipe), resume=False, overwrite=overwrite) as run:
        items = read_items(recipe.task.build(), recipe.data, prompting)
        if recipe.contamination is not None:
            from .contamination import find_contamination

            own = recipe.contamination
            contamination = find_contamination(items.test, own.corpus, own.words)
        ready = prepared_cpu(device, retains_heap=prompting.retain_heap)
        with ready, partial_items(run.folder / ITEMS) as keep:
            models: list[dict[str, Any]] = []
            for name in recipe.models:
                checkpoint = Checkpoint.open(name, trust_remote_code=trust_remote_code)
                subject = load_subject(checkpoint, prompting.precision, prompting.head)
                evaluation = Evaluation(items, subject, prompting)
                if not models:
                    run.take()
                models.append(evaluate(evaluation, keep))
        keep_facts(run.folder, items, models, contamination)
        return run.folder


def evaluate(evaluation: Evaluation, keep: Callable[[str, Outcome], None]) -> dict[str, Any]:
    """Evaluate a model in all conditions, keep its answers, and return what is known of it."""
    subject, outcomes = evaluation.subject, list[Outcome]()
    name, before = subject.checkpoint.name, hash_of_weights(subject.model.state_dict())
    shown = tqdm(evaluation.outcomes(), name, len(evaluation.conditions), disable=None, leave=False)
    for outcome in shown:
        outcomes.append(outcome)
        keep(name, outcome)
    require_counted(subject.checkpoint, outcomes)
    weights = before, hash_of_weights(subject.model.state_dict())
    assert weights[0] == weights[1], "evaluation has changed weights"
    return facts_of(subject, weights, outcomes)


def require_counted(checkpoint: Checkpoint, outcomes: Sequence[Outcome]) -> None:
    """Raise a `ValueError` if all conditions have demonstrations, and not one fits."""
    if not any(outcome.counted for outcome in outcomes):
        raise ValueError(
            f"no demonstration fits into any prompt of {checkpoint.name}, which has a maximum length of "
            f"{checkpoint.max_length:,} tokens: add 0 to prompting.num_fewshot, shorten the templates, or "
            f"name a model with a larger maximum length"
        )
