"""What a pretrained model scores on held-out text as a recipe measures it, its own or another one."""

from collections.abc import Mapping
from pathlib import Path

from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import build_held_out, context_of, open_text
from tercet.storage.own_model import load_ours
from tercet.text.tokenizer import load_tokenizer
from tercet.training.evaluation import evaluate_held_out
from tercet.training.precision import build_accelerator
from tercet.training.stages import cut_held_out


def measure_as(recipe: PretrainingRecipe, model: Path) -> Mapping[str, float]:
    """Measure the model of a folder on the validation text of a recipe, with its objective and length."""
    tokenizer = load_tokenizer(str(model))
    accelerator = build_accelerator(recipe.training, model.parent)
    held_out = build_held_out(recipe, open_text(recipe, "validation"), tokenizer)
    assert held_out.source is not None
    objective = recipe.objective.build(context_of(recipe, tokenizer)).at(1.0)
    steps = cut_held_out(held_out.source, objective, recipe.training, accelerator)
    network = accelerator.prepare(load_ours(str(model)))
    return evaluate_held_out(network, objective, held_out, steps, accelerator)
