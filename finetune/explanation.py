"""What a run of fine-tuning is about to do, in one block: at its start and by `tercet finetune --explain`."""

from collections.abc import Sequence
from typing import cast

import torch

from ..configs.messages import counted
from ..modeling.saved.checkpoint import Checkpoint, Opener, opening_once
from ..training.devices.precision import choose_precision, join_processes
from ..training.start import as_block, device_in_words
from .learning import training_of
from .learning_rate import CHOSEN, LearningRate, choose_learning_rate, in_recipes, with_learning_rate
from .prepared import Prepared, prepare
from .recipe import Combinations, FineTuningRecipe, combinations, varied
from .tasks.tasks import task_of

Rates = Sequence[LearningRate | None]
"""The learning rates that were chosen, `None` where one is named."""


def explain(recipe: FineTuningRecipe) -> str:
    """Write what a run would read, learn and compute, line by line; nothing is written or learned.

    Raises:
        ValueError: As in `finetune`.
        FileNotFoundError: As in `finetune`.
    """
    open_model = opening_once()
    recipe, tried, rates = settled(recipe, open_model)
    first = tried[0][1] if tried else recipe
    return as_block(
        start_lines(first, prepare(recipe, tried, open_model), rates, len(tried)) | {"output": recipe.output}
    )


def settled(
    recipe: FineTuningRecipe, open_model: Opener = Checkpoint.open
) -> tuple[FineTuningRecipe, Combinations, Rates]:
    """Fill in what a recipe leaves to the model: what its task needs, and the learning rate if it has none.

    Returns:
        The recipe, what its grid tries, and the rate that was chosen for each of these, or for the recipe
        without a grid. A grid over what decides the rate has it among its values, and the recipe has none.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: It cannot be fine-tuned so, or as in `combinations`.
    """
    recipe = task_of(recipe.task).settled(recipe, open_model)
    tried = combinations(recipe)
    rates = [choose_learning_rate(each, open_model) for each in ([one for _, one in tried] or [recipe])]
    if len(set(rates)) == 1:
        recipe = with_learning_rate(recipe, rates[0])
        return recipe, combinations(recipe), rates
    chosen = [{CHOSEN: rate.value} if rate else {} for rate in rates]
    return recipe, [(v | c, varied(recipe, v | c)) for (v, _), c in zip(tried, chosen, strict=True)], rates


def start_lines(recipe: FineTuningRecipe, prepared: Prepared, rates: Rates, num_tried: int) -> dict[str, str]:
    """Return what a prepared run is about to do, by the names of the lines."""
    model, task, training = prepared.pretrained.model, prepared.task, recipe.training
    new = counted(len(prepared.pretrained.fresh), "new tensor")
    lines = {"model": f"{recipe.model.path}: {counted(model.num_parameters(), 'parameter')}, {new}"}
    if labels := task.config_fields.get("id2label"):
        lines["labels"] = ", ".join(labels.values())
    for name, split in prepared.splits.items():
        lengths = split.examples.lengths
        tokens = f"{lengths.mean():.0f} tokens each, {lengths.max():,} at most"
        is_share = name == "validation" and recipe.data.validation is None
        held_out = f", {recipe.data.validation_share:.0%} of data.train" if is_share else ""
        lines[name] = f"{counted(len(split.rows), 'row')} of {tokens}{held_out}"
    steps = training_of(training, prepared.splits["train"].examples, training.seeds[0]).steps
    lines["steps"] = f"{steps:,} of {counted(training.batch_size, 'row')}: {training.epochs:g} epochs"
    of_grid = f", and {num_tried} with the settings of the grid" if num_tried else ""
    lines["runs"] = f"{len(training.seeds)}, one for each seed{of_grid}"
    if any(rates):
        lines["rate"] = "; ".join(dict.fromkeys(map(str, rates)))
    elif num_tried == 0 and training.learning_rate is not None:
        lines["rate"] = f"{CHOSEN} = {in_recipes(training.learning_rate)}, as the recipe says"
    processes = join_processes()
    device = cast(torch.device, processes.device)
    precision = choose_precision(training.precision, device)
    lines["device"] = device_in_words(device, precision, processes.num_processes)
    score = task.score_names.get(task.metric_for_best_model, task.metric_for_best_model)
    return lines | {"score": f"{score} of the {prepared.measured[-1]} rows"}
