"""Fine-tuning, from a recipe to a model that knows a task, and the scores of every seed.

rows -> task -> examples ---+
                            +--> a run for every seed --> scores --> the best model
model -> further reading? --+

Further reading is domain-adaptive pretraining: the model reads text of the task's domain before it learns
the task (Gururangan et al., 2020). Whatever may be wrong with recipe, rows and model shows before the output
folder is touched.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedConfig

from ..pretraining.recipe import ModelRecipe, PretrainingRecipe
from ..pretraining.start import tell_start
from ..storage.checkpoint import Checkpoint, Opener, opening_once
from ..training.disk import replace_text
from ..training.exchange import main_first
from ..training.lock import require_unheld
from ..training.precision import join_processes
from ..training.run_folder import MODEL, Run, running
from ..training.stages import require_consistent
from ..training.tracking import as_json
from .explanation import Rates, settled, start_lines
from .facts import keep_best, keep_rows
from .learning import learn_seed
from .model import PretrainedModel
from .output import ADAPTED, BEFORE, GRID, GRID_SCORES, run_folder, seed_folder
from .prepared import Prepared, Results, prepare
from .recipe import (
    AdaptationRecipe,
    Combinations,
    FineTuningRecipe,
    in_words,
)
from .splits import Split


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
        WriteError: There is no room; what was written before is intact.
    """
    require_unheld(recipe.folder)  # said before a model is looked for
    open_model = opening_once()
    recipe, tried, rates = settled(recipe, open_model)
    if recipe.adaptation is not None:  # which comes after runs without it
        require_consistent(recipe.adaptation.training)
    with running(recipe, run_folder, resume=resume, overwrite=overwrite, processes=join_processes()) as run:
        return finetune_in(run, recipe, tried, rates, open_model)


def finetune_in(
    run: Run, recipe: FineTuningRecipe, tried: Combinations, rates: Rates, open_model: Opener
) -> Path:
    """Fine-tune in the folder that a run holds, with what `settled` found."""
    folder, adaptation = run.folder, recipe.adaptation
    with main_first():
        prepared = prepare(recipe, tried, open_model)
    if adaptation is not None:
        from ..pretraining.text import open_texts

        require_member(adaptation, prepared.pretrained.model.config, recipe.model.path)
        open_texts(further_pretraining(adaptation, recipe.model.path, folder))  # they are there
    with run.together() as is_main:
        if is_main:
            run.take()
            keep_rows(recipe, prepared)
            tell_start(start_lines(tried[0][1] if tried else recipe, prepared, rates, len(tried)))
    best = best_of_grid(tried, prepared, run) if tried else 0
    chosen = tried[best][1] if tried else recipe
    first = None if tried else prepared.pretrained
    if adaptation is not None:
        learn_all(chosen, prepared, folder / BEFORE, first=first, resume=run.resume)
        first = None
        unadapted_model = open_model(recipe.model.path, recipe.model.revision)
        adapted = adapt(unadapted_model, adaptation, folder / ADAPTED)
        chosen = replace(chosen, model=replace(chosen.model, path=str(adapted), revision=None))
    results = learn_all(chosen, prepared, folder, first=first, resume=run.resume)
    with run.together() as is_main:
        if is_main:
            keep_best(chosen, prepared, results, rate=rates[best])
    return folder / MODEL


def learn_all(
    recipe: FineTuningRecipe,
    prepared: Prepared,
    folder: Path,
    *,
    first: PretrainedModel | None,
    resume: bool,
    read: Mapping[str, Split] | None = None,
    **options: Any,
) -> Results:
    """Carry out the runs of all seeds below a folder.

    Args:
        recipe: Says how.
        prepared: The task and the rows.
        folder: Receives a folder of each seed.
        first: The model of the first seed if it is loaded already; it is changed.
        resume: Continue runs that are there.
        read: What is learned from and measured on, if not what was prepared.
        **options: Further ones of `learn_seed`.
    """
    splits = prepared.splits if read is None else read
    results = {}
    for seed in recipe.training.seeds:
        place = seed_folder(folder, seed)
        results[seed] = learn_seed(
            *(recipe, prepared.task, splits, place, seed),
            pretrained=first,
            open_model=prepared.open_model,
            resume=resume,
            **options,
        )
        first = None
    return results


def best_of_grid(tried: Combinations, prepared: Prepared, run: Run) -> int:
    """Try every combination of a grid with the first seed, and give the number of the best on validation."""
    splits = {name: split for name, split in prepared.splits.items() if name != "test"}
    results: list[dict[str, Any]] = [
        {"values": values}
        | learn_seed(
            recipe,
            prepared.task,
            splits,
            run.folder / GRID / ",".join(in_words(values)),
            recipe.training.seeds[0],
            open_model=prepared.open_model,
            resume=run.resume,
        )
        for values, recipe in tried
    ]
    for each in results:
        each["shortfall"] = prepared.task.minimized_metric(each["validation"])
    with run.together() as is_main:
        if is_main:
            replace_text(run.folder / GRID_SCORES, json.dumps([*map(as_json, results)], indent=2) + "\n")
    return min(range(len(tried)), key=lambda number: results[number]["shortfall"])


def require_member(recipe: AdaptationRecipe, config: PreTrainedConfig, path: str) -> None:
    """Raise a `ValueError` if the objective of further pretraining does not train the model's member."""
    classes = [cast(type[PreTrainedConfig], model.config_class) for model in recipe.objective.model_classes]
    if not isinstance(config, tuple(classes)):
        raise ValueError(
            f"adaptation.objective is {recipe.objective.kind}, which trains a "
            f"{' or a '.join(known.model_type for known in classes)}, but {path} is a {config.model_type}: "
            "choose another objective, or another model"
        )


def adapt(model: Checkpoint, recipe: AdaptationRecipe, folder: Path) -> Path:
    """Go on with the pretraining of a model below a folder, and return the folder of the adapted one.

    A run that was interrupted is continued, and one that is finished is not repeated.

    Raises:
        ValueError: The objective is not the model's, or something is wrong with the text.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    from ..pretraining.run import pretrain

    return pretrain(further_pretraining(recipe, str(model.folder), folder / "run"), resume=True)


def further_pretraining(recipe: AdaptationRecipe, path: str, output: Path) -> PretrainingRecipe:
    """Return the recipe of the pretraining run that an adaptation is."""
    return PretrainingRecipe(
        model=ModelRecipe(path=path),
        corpus=recipe.corpus,
        objective=recipe.objective,
        training=recipe.training,
        output=str(output),
    )
