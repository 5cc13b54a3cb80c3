"""What a run of fine-tuning is about to do, in one block: at its start and by `tercet finetune --explain`."""

from typing import cast

import torch

from ..configs.messages import counted
from ..training.devices.precision import choose_precision, join_processes
from ..training.start import as_block, device_in_words
from .inputs import Inputs, find_inputs
from .learning import training_of
from .learning_rate import CHOSEN, in_recipes
from .prepared import Prepared, prepare
from .recipe import FineTuningRecipe


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
    steps = training_of(training, prepared.splits["train"].examples, training.seeds[0]).steps
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
