"""What all runs of a recipe have in common, each checked once: the task, the rows, the pretrained model."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..data.files.bad_rows import OnBadRow
from ..data.files.reading import naming_keys
from ..modeling import TercetPreTrainedModel
from .inputs import Inputs, Setting
from .model import TaskModel, learner_of, load_task_model
from .splits import MEASURED, Split, SplitRows, contents, encode_splits, encoder_of, find_task, read_splits
from .tasks.task import Task

Results = Mapping[int, dict[str, Any]]
"""Seed -> scores of its run."""


@dataclass(frozen=True)
class Prepared:
    """What all runs of a recipe have in common."""

    task: Task
    splits: Mapping[str, Split]
    pretrained: TaskModel
    """The model of the first seed, whose run learns with it: what is asked of its weights is asked before."""
    bad_rows: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """How many rows of each file were bad, and why, where there were any."""

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


def prepare(inputs: Inputs) -> Prepared:
    """Read the rows, load the model, and make sure that all fits, also with what a grid tries."""
    with naming_keys(inputs.task.recipe.keys):  # a teacher's columns are no keys of a distillation
        rows = read_splits(inputs.data, inputs.task)
    task = find_task(inputs.task, rows, trust_remote_code=inputs.trust_remote_code)
    first, *others = inputs.settings
    prepared, seed = prepare_rows(rows, task, first, inputs.data.on_bad_row), first.training.seeds[0]
    for setting in others:
        is_same = setting.start == first.start
        each = prepared.pretrained if is_same else load_task_model(setting.start, task, seed)
        require_learnable(each.model, setting)
    return prepared


def prepare_rows(rows: SplitRows, task: Task, setting: Setting, on_bad_row: OnBadRow) -> Prepared:
    """Load the model that learns, and encode rows of its task as it reads them."""
    pretrained = load_task_model(setting.start, task, setting.training.seeds[0])
    require_learnable(pretrained.model, setting)
    encoder = encoder_of(pretrained.model, pretrained.tokenizer, setting.max_length)
    splits = encode_splits(rows, task, encoder, on_bad_row)
    return Prepared(task, splits, pretrained, rows.bad_rows)


def require_learnable(model: TercetPreTrainedModel, setting: Setting) -> None:
    """Raise a `ValueError` if a model lacks the layers that a setting freezes or adds to."""
    with torch.device("meta"):  # on a model without storage: neither weights nor memory are touched
        learner_of(type(model)(deepcopy(model.config)), setting.lora, setting.training.frozen_layers)
