"""Trains a small Transformer in processes of its own, in one layout after another, as a list of runs says."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import patch_environment

from tercet.configs.recipe import parse_recipe
from tercet.pretraining.objectives.recipes import ObjectiveContext
from tercet.training.devices.precision import build_accelerator
from tercet.training.recipe import TrainingRecipe

from ..pretraining.objectives.conftest import read
from ..pretraining.objectives.test_recipes import LENGTH, make_source
from ..pretraining.objectives.test_static_shapes import small_model
from ..word_level import ROLES, SIGNS, word_level
from .conftest import fit_source

KIND = "causal_language_modeling"
FIXED = {
    "tokens_per_step": 300, "tokens_per_micro_batch": 60, "precision": "fp32", "log_every": 1,
    "keep_checkpoints": 9, "measure_utilization": False, "schedule": {"kind": "constant", "warmup_steps": 0},
}  # fmt: skip
"""What all recipes have: each of four processes adds up the gradients of two micro-batches."""


def train(folder: str, variables: dict[str, str], dropout: float, **training: Any) -> None:
    """Carry out a run from its beginning, or from its last checkpoint, with the variables of a launcher."""
    roles = ROLES | {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    tokenizer = word_level([*SIGNS, *(f"w{i}" for i in range(50))], **roles)
    recipe = parse_recipe(TrainingRecipe, FIXED | training)
    model = small_model(KIND, len(tokenizer), dropout=dropout, num_hidden_layers=3)
    objective = read(KIND).build(ObjectiveContext(tokenizer, LENGTH))
    with patch_environment(**variables):
        accelerator = build_accelerator(recipe, Path(folder))
        parts = model, objective, make_source(KIND, tokenizer), recipe, Path(folder), accelerator
        print(fit_source(*parts, resume=True))


def main() -> None:
    """Train by the argument of the program, and count how often gradients are summed over two replicas."""
    sums, all_reduce = 0, torch.distributed.all_reduce

    def counted(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        nonlocal sums
        group = options.get("group")
        sums += group is not None and group.size() == 2 and tensor.numel() > 1
        return all_reduce(tensor, *arguments, **options)

    torch.distributed.all_reduce = counted
    for run in json.loads(sys.argv[1]):
        train(**run)
    print(f"sums over replicas: {sums}", flush=True)
