"""Optimizers, and which parameters they decay."""

import torch
from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from .recipe import OptimizerRecipe

LEARNING_RATE = 5e-4
"""Highest learning rate of a recipe that names none; small models of this family take it well."""


def build_optimizer(
    model: nn.Module, recipe: OptimizerRecipe, *, sets_learning_rate: bool = False
) -> Optimizer:
    """Build the recipe's optimizer over a model that is already on its device.

    Args:
        model: Its trainable parameters are optimized.
        recipe: Constants left out are those of the sources below.
        sets_learning_rate: Whether the schedule derives the rate itself; the recipe must then name none.

    Raises:
        ValueError: The recipe names constants that its choice of optimizer or schedule does not use.

    Sources: `adamw` is Loshchilov and Hutter, 2019, with the constants of RoBERTa (Liu et al., 2019, section
    3.1); `adam` is Kingma and Ba, 2015, with the constants of Vaswani et al., 2017, section 5.3.
    """
    if sets_learning_rate and recipe.learning_rate is not None:
        raise ValueError(
            f"optimizer.learning_rate = {recipe.learning_rate}: the noam schedule derives the rate from the "
            "model's width; remove it, and scale the rate by schedule.factor"
        )
    if recipe.kind == "adam" and recipe.weight_decay:
        raise ValueError(
            f"optimizer.weight_decay = {recipe.weight_decay}: adam decays nothing; choose kind adamw"
        )
    rate = 1.0 if sets_learning_rate else recipe.learning_rate or LEARNING_RATE
    betas = recipe.betas or (0.9, 0.98)
    fused = has_fused_kernel(model)
    if recipe.kind == "adam":
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return Adam(parameters, rate, betas, recipe.epsilon or 1e-9, fused=fused)
    decay = 0.01 if recipe.weight_decay is None else recipe.weight_decay
    return AdamW(decay_groups(model, decay), rate, betas, recipe.epsilon or 1e-6, fused=fused)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Split a model's trainable parameters into those that decay and those that do not.

    Only weight matrices decay. Biases and norms never did (Devlin et al., 2019, in their code). Embeddings,
    and the head tied to them, do not either, as in GPT-2's reimplementations and unlike BERT's code: most
    rows have no gradient in a step, and decay would shrink the rows of rare words only because they are rare.
    """
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decays = {id(parameter) for parameter in trainable if parameter.dim() >= 2} - embeddings
    return [
        {"params": [p for p in trainable if id(p) in decays], "weight_decay": weight_decay},
        {"params": [p for p in trainable if id(p) not in decays], "weight_decay": 0.0},
    ]


def has_fused_kernel(model: nn.Module) -> bool:
    """Tell whether torch updates all of the model's parameters in one kernel."""
    devices = {parameter.device.type for parameter in model.parameters()}
    return devices <= {"cpu", "cuda"} and all(torch.is_floating_point(p) for p in model.parameters())
