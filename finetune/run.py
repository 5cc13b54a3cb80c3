"""Fine-tuning, from a recipe to a model that knows a task, and an honest account of how well.

rows -> task -> examples ---+
                            +--> a run for every seed --> mean, spread, interval, baselines -> the best model
model -> further reading? --+

Further reading is domain-adaptive pretraining: the model reads text of the task's domain before it learns
the task (Gururangan et al., 2020). Whatever may be wrong with recipe, rows and model shows before the output
folder is touched.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedConfig

from ..ground.messages import quietly
from ..pretraining.recipe import ModelRecipe, PretrainingRecipe
from ..pretraining.run import pretrain
from ..pretraining.text import open_texts
from ..stock.models import from_stock
from ..storage.model_folder import find_folder, load_config, load_tokenizer, save_tokenizer
from ..training.disk import replace_text
from ..training.precision import join_processes
from ..training.run_folder import MODEL, Run, running
from ..training.stages import require_consistent
from ..training.tracking import as_json
from .learning import learn
from .output import ADAPTED, BEFORE, GRID, GRID_SCORES, run_folder, seed_folder
from .prepared import Prepared, Results, prepare
from .recipe import (
    AdaptationRecipe,
    Combinations,
    FineTuningRecipe,
    PretrainedModelRecipe,
    combinations,
    in_words,
)
from .summary import conclude, keep_rows
from .tasks import task_of

IMPORTED = "imported"
"""Folder of a stock model as one of ours, in that of its further pretraining."""


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
    recipe = task_of(recipe.task).settled(recipe)
    if recipe.adaptation is not None:  # which comes after runs without it
        require_consistent(recipe.adaptation.training)
    tried = combinations(recipe)
    with running(recipe, run_folder, resume=resume, overwrite=overwrite, processes=join_processes()) as run:
        return finetune_in(run, recipe, tried)


def finetune_in(run: Run, recipe: FineTuningRecipe, tried: Combinations) -> Path:
    """Fine-tune in the folder that a run holds."""
    folder, adaptation = run.folder, recipe.adaptation
    with run.main_first():
        prepared = prepare(recipe, tried)
    if adaptation is not None:
        require_member(adaptation, prepared.pretrained.model.config, recipe.model.path)
        open_texts(further_pretraining(adaptation, recipe.model.path, folder))  # they are there
    with run.together() as is_main:
        if is_main:
            run.take()
            keep_rows(recipe, prepared)
    chosen = best_of_grid(tried, prepared, run) if tried else recipe
    before = None
    if adaptation is not None:
        before = learn_all(chosen, prepared, folder / BEFORE, resume=run.resume)
        adapted = str(adapt(recipe.model, adaptation, folder / ADAPTED))
        chosen = replace(chosen, model=replace(chosen.model, path=adapted, revision=None))
    results = learn_all(chosen, prepared, folder, resume=run.resume)
    with run.together() as is_main:
        if is_main:
            conclude(chosen, prepared, results, before)
    return folder / MODEL


def learn_all(recipe: FineTuningRecipe, prepared: Prepared, folder: Path, *, resume: bool) -> Results:
    """Carry out the runs of all seeds below a folder."""
    return {
        seed: learn(recipe, prepared.task, prepared.splits, seed_folder(folder, seed), seed, resume=resume)
        for seed in recipe.training.seeds
    }


def best_of_grid(tried: Combinations, prepared: Prepared, run: Run) -> FineTuningRecipe:
    """Try every combination of a grid with the first seed, and give the recipe that is best on validation."""
    splits = {name: split for name, split in prepared.splits.items() if name != "test"}
    results: list[dict[str, Any]] = [
        {"values": values}
        | learn(
            recipe,
            prepared.task,
            splits,
            run.folder / GRID / ",".join(in_words(values)),
            recipe.training.seeds[0],
            resume=run.resume,
        )
        for values, recipe in tried
    ]
    for each in results:
        each["shortfall"] = prepared.task.minimized_metric(each["validation"])
    with run.together() as is_main:
        if is_main:
            replace_text(run.folder / GRID_SCORES, json.dumps([*map(as_json, results)], indent=2) + "\n")
    best = min(range(len(tried)), key=lambda number: results[number]["shortfall"])
    return tried[best][1]


def require_member(recipe: AdaptationRecipe, config: PreTrainedConfig, path: str) -> None:
    """Raise a `ValueError` if the objective of further pretraining does not train the model's member."""
    classes = [cast(type[PreTrainedConfig], model.config_class) for model in recipe.objective.model_classes]
    if not isinstance(config, tuple(classes)):
        raise ValueError(
            f"adaptation.objective is {recipe.objective.kind}, which trains a "
            f"{' or a '.join(known.model_type for known in classes)}, but {path} is a {config.model_type}: "
            "choose another objective, or another model"
        )


def adapt(model: PretrainedModelRecipe, recipe: AdaptationRecipe, folder: Path) -> Path:
    """Go on with the pretraining of a model below a folder, and return the folder of the adapted one.

    A run that was interrupted is continued, and one that is finished is not repeated.

    Raises:
        ValueError: The objective is not the model's, or something is wrong with the text.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    path = str(as_ours(model, folder))
    return pretrain(further_pretraining(recipe, path, folder / "run"), resume=True)


def further_pretraining(recipe: AdaptationRecipe, path: str, output: Path) -> PretrainingRecipe:
    """Return the recipe of the pretraining run that an adaptation is."""
    return PretrainingRecipe(
        model=ModelRecipe(path=path),
        corpus=recipe.corpus,
        objective=recipe.objective,
        training=recipe.training,
        output=str(output),
    )


def as_ours(model: PretrainedModelRecipe, folder: Path) -> Path:
    """Find the model that a run begins with, or bring it into a folder if it is a stock one."""
    source = find_folder(model.path, model.revision)
    if load_config(source).model_type.startswith("tercet"):
        return source
    tokenizer = load_tokenizer(source)
    imported = folder / IMPORTED
    if tokenizer is not None and not imported.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with quietly():
            from_stock(str(source)).save_pretrained(imported)
            save_tokenizer(tokenizer, imported)
    return imported
