"""What a run of fine-tuning works with before it reads a row: here the recipe ends.

recipe -> models, opened once -> what the recipe leaves to them -> the settings that are tried
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..configs.recipe import recipe_data
from ..modeling.saved.checkpoint import opening_once
from .learning_rate import CHOSEN, LearningRate, choose_learning_rate
from .model import Start
from .recipe import DataRecipe, FineTuningRecipe, FineTuningTraining, LoraRecipe, combinations, varied
from .tasks.task import Task

if TYPE_CHECKING:
    from .adaptation import AdaptationRecipe


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a model learns: as the recipe says, or with values that its grid tries."""

    start: Start
    """What learns."""
    training: FineTuningTraining
    """Optimization, with a learning rate."""
    lora: LoraRecipe | None = None
    max_length: int | None = None
    """Tokens of a row at most, if the recipe says."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The recipe that says all this, as plain data, kept with checkpoints."""
    rate: LearningRate | None = None
    """The learning rate with its reason, if it was chosen."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What a grid tries here, by its keys; nothing without a grid."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run works with."""

    recipe: FineTuningRecipe
    """As it is carried out, with what it left to the model: for the run's folder alone."""
    task: Task
    """As it is before its rows are read."""
    data: DataRecipe
    """Which rows."""
    settings: Sequence[Setting]
    """The recipe's own, or those that its grid tries."""
    adaptation: "AdaptationRecipe | None" = None
    """Further pretraining, if any."""
    trust_remote_code: bool = False
    """Whether others' code is run that computes metrics."""


def find_inputs(recipe: FineTuningRecipe) -> Inputs:
    """Open the models of a recipe, each once, and settle what it leaves to them.

    Where the learning rate depends on what a grid tries, it is among the values of each setting, and the
    recipe has none.
    """
    open_model, named = opening_once(), recipe.model
    model = open_model(named.path, named.revision)
    beside = None if named.tagger is None else tuple(map(open_model, named.tagger.beside))
    task, max_length = recipe.task.build().settled(model)
    max_length = recipe.data.max_length or max_length
    recipe = replace(recipe, task=task, data=replace(recipe.data, max_length=max_length))
    tried = combinations(recipe.grid)
    recipes = [varied(recipe, values) for values in tried]
    rates = [
        choose_learning_rate(model, each.training, each.lora, is_tagger=beside is not None)
        for each in recipes
    ]
    if len({*rates}) == 1 and rates[0] is not None:
        recipe = replace(recipe, training=replace(recipe.training, learning_rate=rates[0].value))
    else:
        chosen = [{CHOSEN: rate.value} if rate else {} for rate in rates]
        tried = [values | own for values, own in zip(tried, chosen, strict=True)]
    recipes = [varied(recipe, values) for values in tried]  # now with their learning rates
    settings = [
        Setting(
            start=Start(model, beside, each.model.overrides, named.from_scratch, named.new_head),
            training=each.training,
            lora=each.lora,
            max_length=max_length,
            about=recipe_data(each),
            rate=rate,
            values=values,
        )
        for each, values, rate in zip(recipes, tried, rates, strict=True)
    ]
    return Inputs(
        recipe=recipe,
        task=task.build(),
        data=recipe.data,
        settings=settings,
        adaptation=recipe.adaptation,
        trust_remote_code=recipe.trust_remote_code,
    )
