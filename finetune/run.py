"""Fine-tuning, from a recipe to a model that knows a task, and the scores of every seed.

recipe -> inputs -> parts: task, rows as examples, model -> a run for every seed -> scores -> the best model
                                              |
                                              +-> further reading? -> the same again

Further reading is domain-adaptive pretraining: the model reads text of the task's domain before it learns
the task (Gururangan et al., 2020). Whatever may be wrong with recipe, rows and model shows before the output
folder is touched.
"""

from pathlib import Path
from typing import cast

import torch

from ..configs.messages import counted
from ..data.files.locks import require_unheld
from ..data.steps.exchange import main_first
from ..training.devices.precision import choose_precision, join_processes
from ..training.run_folder import MODEL, running
from ..training.tracking import as_block, device_in_words, tell_start
from .facts import keep_best, keep_rows
from .inputs import Inputs, find_inputs
from .learning import learn_best, training_recipe_of
from .learning_rate import CHOSEN, in_recipes
from .output import run_folder
from .prepared import Prepared, prepare
from .recipe import FineTuningRecipe


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
    inputs = find_inputs(recipe)
    recipe, processes = inputs.recipe, join_processes()
    with running(run_folder(recipe), resume=resume, overwrite=overwrite, processes=processes) as run:
        with main_first():
            prepared = prepare(inputs)
        if inputs.adaptation is not None:
            inputs.adaptation.require_adaptable(prepared.pretrained.model.config, recipe.model.path)
        with run.together() as is_main:
            if is_main:
                run.take()
                keep_rows(run.folder, inputs.data, prepared)
                tell_start(start_lines(inputs, prepared))
        setting, results = learn_best(inputs, prepared, run)
        with run.together() as is_main:
            if is_main:
                keep_best(run.folder, prepared, results, setting)
        return run.folder / MODEL


def explain(recipe: FineTuningRecipe) -> str:
    """Write what a run would read, learn and compute, line by line; nothing is written or learned."""
    inputs = find_inputs(recipe)
    return as_block(start_lines(inputs, prepare(inputs)) | {"output": recipe.output})


def start_lines(inputs: Inputs, prepared: Prepared) -> dict[str, str]:
    """Return what a prepared run is about to do, by the names of the lines."""
    model, task, first = prepared.pretrained.model, prepared.task, inputs.settings[0]
    training, data, name = first.training, inputs.data, first.start.model.name
    new = counted(len(prepared.pretrained.fresh), "new tensor")
    lines = {"model": f"{name}: {counted(model.num_parameters(), 'parameter')}, {new}"}
    if labels := task.config_fields.get("id2label"):
        lines["labels"] = ", ".join(labels.values())
    for name, split in prepared.splits.items():
        lengths = split.examples.lengths
        tokens = f"{lengths.mean():.0f} tokens each, {lengths.max():,} at most"
        is_share = name == "validation" and data.validation is None
        held_out = f", {data.validation_share:.0%} of data.train" if is_share else ""
        lines[name] = f"{counted(len(split.rows), 'row')} of {tokens}{held_out}"
    steps = training_recipe_of(training, prepared.splits["train"].examples, training.seeds[0]).steps
    lines["steps"] = f"{steps:,} of {counted(training.batch_size, 'row')}: {training.epochs:g} epochs"
    of_grid = f", and {len(inputs.settings)} with the settings of the grid" if first.values else ""
    lines["runs"] = f"{len(training.seeds)}, one for each seed{of_grid}"
    if rates := [setting.rate for setting in inputs.settings if setting.rate is not None]:
        lines["rate"] = "; ".join(dict.fromkeys(map(str, rates)))
    elif not first.values and training.learning_rate is not None:
        lines["rate"] = f"{CHOSEN} = {in_recipes(training.learning_rate)}, as the recipe says"
    processes = join_processes()
    device = cast(torch.device, processes.device)
    precision = choose_precision(training.precision, device)
    lines["device"] = device_in_words(device, precision, processes.num_processes)
    score = task.score_names.get(task.metric_for_best_model, task.metric_for_best_model)
    return lines | {"score": f"{score} of the {prepared.measured[-1]} rows"}
