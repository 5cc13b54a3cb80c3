"""Fine-tuning, from a recipe to a model that knows a task, and an honest account of how well.

rows -> task -> examples ---+
                            +--> a run for every seed --> mean, spread, interval, baselines -> the best model
model -> further reading? --+

Whatever may be wrong with recipe, rows and model shows before the output folder is touched.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..training.consistency import require_consistent
from ..training.disk import replace_text
from ..training.precision import join_processes
from ..training.run_folder import writing
from ..training.tracking import as_json
from .adaptation import adapt
from .grid import combinations, in_words, varied
from .learning import learn
from .output import BEFORE, GRID, GRID_SCORES, run_folder, seed_folder
from .prepared import Prepared, Results, prepare
from .recipe import FineTuningRecipe
from .summary import conclude, keep_rows


def finetune(recipe: FineTuningRecipe, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Fine-tune a model as a recipe says, once for every seed, and return the folder of the best one.

    Args:
        recipe: Everything that the run depends on.
        resume: Continue an earlier run in the output folder, if there is one.
        overwrite: Replace an earlier run in the output folder.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the rows, the model or the output folder.
        FileNotFoundError: A named file or model does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
        DiskFullError: There is no room; what was written before is intact.
    """
    if recipe.adaptation is not None:  # which comes after runs without it
        require_consistent(recipe.adaptation.training)
    with writing(recipe.folder, join_processes()):
        return finetune_alone(recipe, resume=resume, overwrite=overwrite)


def finetune_alone(recipe: FineTuningRecipe, *, resume: bool, overwrite: bool) -> Path:
    """Fine-tune in a folder that nobody else writes."""
    processes, output = join_processes(), run_folder(recipe)
    output.require_claimable(resume=resume, overwrite=overwrite)
    with processes.main_process_first():
        prepared = prepare(recipe)
    processes.wait_for_everyone()
    if processes.is_main_process:
        output.claim(resume=resume, overwrite=overwrite)
        keep_rows(recipe, prepared)
    processes.wait_for_everyone()
    chosen = best_of_grid(recipe, prepared, resume=resume)
    before = None
    if recipe.adaptation is not None:
        before = learn_all(chosen, prepared, recipe.folder / BEFORE, resume=resume)
        chosen = replace(chosen, model=replace(chosen.model, path=str(adapt(recipe)), revision=None))
    results = learn_all(chosen, prepared, recipe.folder, resume=resume)
    if processes.is_main_process:
        conclude(chosen, prepared, results, before)
    processes.wait_for_everyone()
    return recipe.model_folder


def learn_all(recipe: FineTuningRecipe, prepared: Prepared, folder: Path, *, resume: bool) -> Results:
    """Carry out the runs of all seeds below a folder."""
    return {
        seed: learn(recipe, prepared.task, prepared.splits, seed_folder(folder, seed), seed, resume=resume)
        for seed in recipe.training.seeds
    }


def best_of_grid(recipe: FineTuningRecipe, prepared: Prepared, *, resume: bool) -> FineTuningRecipe:
    """Try a recipe's grid, if it has one, with the first seed, and settle on what is best on validation."""
    if not recipe.grid:
        return recipe
    splits = {name: split for name, split in prepared.splits.items() if name != "test"}
    seed = recipe.training.seeds[0]
    tried: list[dict[str, Any]] = [
        {"values": values}
        | learn(
            varied(recipe, values),
            prepared.task,
            splits,
            recipe.folder / GRID / ",".join(in_words(values)),
            seed,
            resume=resume,
        )
        for values in combinations(recipe)
    ]
    for each in tried:
        each["shortfall"] = prepared.task.minimized_metric(each["validation"])
    if join_processes().is_main_process:
        replace_text(recipe.folder / GRID_SCORES, json.dumps([*map(as_json, tried)], indent=2) + "\n")
    return varied(recipe, min(tried, key=lambda each: each["shortfall"])["values"])
