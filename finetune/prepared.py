"""What all runs of a recipe have in common, each checked once: the task, the rows, the pretrained model."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..data.files.reading import naming_keys
from ..modeling import TercetPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint, Opener
from .model import PretrainedModel, learner_of, load_pretrained_model
from .recipe import Combinations, FineTuningRecipe
from .splits import MEASURED, Split, contents, encode_splits, encoder_of, find_task, read_splits
from .tasks.task import Task

Results = Mapping[int, dict[str, Any]]
"""Seed -> scores of its run."""


@dataclass(frozen=True)
class Prepared:
    """What all runs of a recipe have in common."""

    task: Task
    splits: Mapping[str, Split]
    pretrained: PretrainedModel
    """Of the first seed, whose run learns with it: what is asked of its weights is asked before."""
    bad_rows: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """How many rows of each file were bad, and why, where there were any."""
    open_model: Opener = Checkpoint.open
    """Finds the models of further seeds."""

    @property
    def measured(self) -> list[str]:
        """The splits that nothing is learned from; the last one is what counts."""
        return [name for name in MEASURED if name in self.splits]

    @cached_property
    def shared_rows(self) -> dict[str, int]:
        """Number of rows of each measured split of which a model reads the same as of a training row."""
        columns = self.task.recipe.input_columns
        learned = set(contents(self.splits["train"].rows, columns))
        return {
            split: sum(each in learned for each in contents(self.splits[split].rows, columns))
            for split in self.measured
        }


def prepare(
    recipe: FineTuningRecipe, tried: Combinations = (), open_model: Opener = Checkpoint.open
) -> Prepared:
    """Read rows and model, and make sure that all fits, also with what a grid tries.

    Raises:
        ValueError: It does not.
        FileNotFoundError: A file or model is not there.
    """
    with naming_keys(recipe.task.keys):  # a teacher's columns are no keys of a distillation
        rows = read_splits(recipe)
    task = find_task(recipe, rows)
    pretrained = load_pretrained_model(recipe.model, task, recipe.training.seeds[0], open_model)
    require_learnable(pretrained.model, recipe)
    for _, varied in tried:
        is_same = varied.model == recipe.model
        seed = recipe.training.seeds[0]
        each = pretrained if is_same else load_pretrained_model(varied.model, task, seed, open_model)
        require_learnable(each.model, varied)
    encoder = encoder_of(pretrained.model, pretrained.tokenizer, recipe.data.max_length)
    splits = encode_splits(rows, task, encoder, recipe.data.on_bad_row)
    return Prepared(task, splits, pretrained, rows.bad_rows, open_model)


def require_learnable(model: TercetPreTrainedModel, recipe: FineTuningRecipe) -> None:
    """Raise a `ValueError` if a model lacks the layers that a recipe freezes or adds to.

    A model without storage is frozen instead of this one: neither weights nor memory are touched.
    """
    with torch.device("meta"):
        learner_of(type(model)(deepcopy(model.config)), recipe.lora, recipe.training.frozen_layers)
