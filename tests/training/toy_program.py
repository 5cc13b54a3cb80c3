"""Trains the toy by `folder/recipe.yaml` in a process of its own; its arguments are those of `train`."""

import os
import sys
from itertools import count
from pathlib import Path

import torch
from accelerate import Accelerator

from tercet.configs.recipe import load_recipe
from tercet.training.devices.precision import build_accelerator
from tercet.training.evaluation import HeldOut
from tercet.training.recipe import TrainingRecipe

from .conftest import ToyModel, ToyObjective, ToySource, fit_source


def of_two_minds(accelerator: Accelerator) -> HeldOut:
    """Measure what falls in every evaluation on all processes but the main one, where it rises."""
    minds = count(1.0) if accelerator.is_main_process else count(-1.0, -1.0)
    return HeldOut(measure=lambda model: {"mind": next(minds)}, criterion=lambda scores: scores["mind"])


def train(folder: str, dropout: str, resume: str, *overrides: str) -> None:
    """Train the toy, and keep its final weights."""
    torch.use_deterministic_algorithms(True)
    recipe = load_recipe(TrainingRecipe, Path(folder) / "recipe.yaml", overrides)
    torch.manual_seed(recipe.seed)
    model = ToyModel(float(dropout))
    accelerator = build_accelerator(recipe, Path(folder))
    held_out = of_two_minds(accelerator) if "TOYS_DISAGREE" in os.environ else HeldOut(ToySource(30, seed=1))
    parts = model, ToyObjective(), ToySource(), recipe, Path(folder), accelerator
    print(fit_source(*parts, held_out=held_out, resume=resume == "1"))


def main() -> None:
    train(*sys.argv[1:])
