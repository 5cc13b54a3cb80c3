"""Optimizers, and which parameters they decay; and whose word counts on resuming.

A state that torch loads brings the learning rates, decays and betas of the run that saved it. A recipe that
was changed in between would then be announced and written down, and not be obeyed. So an optimizer's moments
are the checkpoint's, and its constants the recipe's.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.utils import get_total_norm
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ...configs.by_kind import ByKind
from ..devices.sharding import whole
from ..recipe import OptimizerRecipe
from .row_updates import RowAdam, RowAdamW, UpdatesRows

LEARNING_RATE = 5e-4
"""Highest learning rate of a recipe that names none; small models of this family take it well."""

LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
"""The number of the layer in a parameter's name."""

EMBEDDINGS = re.compile(r"(?:^|\.)(?:embeddings|characters)$")
"""The names of what stands before the first layer."""

OF_MATRICES = ByKind(__name__, {"muon": "muon.Muon", "normuon": "muon.NorMuon"})
"""Optimizers that move matrices in their own way, beside AdamW."""

WEIGHT_DECAY = {"adamw": 0.01, "muon": 0.1, "normuon": 0.1}
"""Weight decay of a recipe that names none."""

NEURON_BETA = 0.95
"""Decay rate of `normuon`'s second moments in a recipe that names none (Li et al., 2025)."""

Constants = Sequence[dict[str, Any]]
"""What a recipe says of each group of parameters."""


def build_optimizer(
    model: nn.Module,
    recipe: OptimizerRecipe,
    *,
    sets_learning_rate: bool = False,
    products: torch.dtype = torch.float32,
    copies: DeviceMesh | None = None,
) -> Optimizer:
    """Build the recipe's optimizer over a model that is already on its device.

    Args:
        recipe: Constants left out are those of the sources below.
        sets_learning_rate: Whether the schedule derives the rate itself; the recipe then names none.
        products: Format in which matrices are orthogonalized.
        copies: Processes that hold copies of the model, and can share the optimizer's work.

    Sources: `adamw` is Loshchilov and Hutter, 2019, with the constants of RoBERTa (Liu et al., 2019, section
    3.1); `adam` is Kingma and Ba, 2015, with the constants of Vaswani et al., 2017, section 5.3; `muon` and
    `normuon` are described in `muon.py`, their weight decay and scaling are those of Liu et al., 2025,
    section 2.2.
    """
    rate = 1.0 if sets_learning_rate else recipe.learning_rate or LEARNING_RATE
    betas = recipe.betas or (0.9, 0.98)
    fused = has_fused_kernel(model)
    if recipe.kind == "adam":
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return RowAdam(parameters, rate, betas, recipe.epsilon or 1e-9, fused=fused)
    decay = WEIGHT_DECAY[recipe.kind] if recipe.weight_decay is None else recipe.weight_decay
    if recipe.kind == "adamw":
        groups = decay_groups(model, decay)
        if recipe.layer_decay < 1:
            groups = layer_groups(model, groups, rate, recipe.layer_decay)
        return RowAdamW(groups, rate, betas, recipe.epsilon or 1e-6, fused=fused)
    own: dict[str, Any] = {"lr": recipe.matrix_learning_rate or rate, "weight_decay": decay}
    if recipe.kind == "normuon":
        own["neuron_beta"] = NEURON_BETA if recipe.neuron_beta is None else recipe.neuron_beta

    def build_adamw(matrices: Collection[nn.Parameter]) -> AdamW:
        groups = decay_groups(model, decay, without=matrices)
        return AdamW(groups, rate, betas, recipe.epsilon or 1e-6, fused=fused)

    return OF_MATRICES[recipe.kind].with_adamw(model, build_adamw, products=products, copies=copies, **own)


def decay_groups(
    model: nn.Module, weight_decay: float, *, without: Collection[nn.Parameter] = ()
) -> list[dict]:
    """Split a model's trainable parameters into those that decay and those that do not.

    Only weight matrices decay. Biases and norms never did (Devlin et al., 2019, in their code). Embeddings,
    and the head tied to them, do not either, as in GPT-2's reimplementations and unlike BERT's code: most
    rows have no gradient in a step, and decay would shrink the rows of rare words only because they are rare.
    The parameters in `without` are left out.
    """
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    left_out = {id(parameter) for parameter in without}
    trainable = [p for p in model.parameters() if p.requires_grad and id(p) not in left_out]
    decays = {id(parameter) for parameter in trainable if parameter.dim() >= 2} - embeddings
    return [
        {"params": [p for p in trainable if id(p) in decays], "weight_decay": weight_decay},
        {"params": [p for p in trainable if id(p) not in decays], "weight_decay": 0.0},
    ]


def layer_groups(model: nn.Module, groups: list[dict], rate: float, layer_decay: float) -> list[dict]:
    """Split groups of parameters by layers, whose rates fall from the head down to the embeddings.

    The head has the full rate, the topmost layer `layer_decay` of it, and so on; parameters that belong to
    no layer and stand before the first one, like embeddings, are one layer more; those that all layers share
    learn with the head. In a model of two stacks the layers of the same number learn alike. The highest rates
    come first.
    """
    depths = depths_of(model)
    head = max(depths.values(), default=0)
    split = []
    for group in groups:
        for depth in {depths[id(parameter)] for parameter in group["params"]}:
            chosen = [parameter for parameter in group["params"] if depths[id(parameter)] == depth]
            split.append(group | {"params": chosen, "lr": rate * layer_decay ** (head - depth)})
    return sorted(split, key=lambda group: group["lr"], reverse=True)


def depths_of(model: nn.Module) -> dict[int, int]:
    """Number the layer of every parameter, by its `id`: embeddings 0, layers from 1, what follows last."""
    named = list(model.named_parameters())
    found = {id(parameter): LAYER.search(name) for name, parameter in named}
    numbers = {key: int(match[1]) + 1 for key, match in found.items() if match}
    last = max(numbers.values(), default=0) + 1
    embeddings = {
        id(parameter)
        for name, module in model.named_modules()
        if EMBEDDINGS.search(name)
        for parameter in module.parameters()
    }
    return {id(p): numbers.get(id(p), 0 if id(p) in embeddings else last) for _, p in named}


def has_fused_kernel(model: nn.Module) -> bool:
    """Return whether torch updates all of the model's parameters in one kernel."""
    devices = {parameter.device.type for parameter in model.parameters()}
    return devices <= {"cpu", "cuda"} and all(torch.is_floating_point(p) for p in model.parameters())


def clip_gradients(
    model: nn.Module, optimizer: Optimizer, accelerator: Accelerator, max_norm: float
) -> Tensor:
    """Shorten a model's gradient to a norm, and return what its norm was.

    On a CPU the fused kernel of Adam and AdamW multiplies by the factor, so that no pass of its own does.
    """
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    parameters = [parameter for group in inner.param_groups for parameter in group["params"]]
    are_here = all(type(parameter) is nn.Parameter and parameter.is_cpu for parameter in parameters)
    if not (are_here and isinstance(inner, UpdatesRows) and inner.defaults["fused"]):
        return whole(cast(Tensor, accelerator.clip_grad_norm_([*model.parameters()], max_norm)))
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad.values())
        elif parameter.grad is not None:
            gradients.append(parameter.grad)
    norm = get_total_norm(gradients)
    inner.grad_scale = (norm + NORM_EPSILON) / max_norm if norm > max_norm else None
    return norm


NORM_EPSILON = 1e-6
"""What torch adds to a norm by which it divides."""


def constants_of(optimizer: Optimizer) -> Constants:
    """Note the constants of an optimizer's groups, before a state is loaded into it."""
    return [
        {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]


def give_back(optimizer: Optimizer, schedule: LambdaLR, constants: Constants) -> None:
    """Restore the recipe's constants in an optimizer and its schedule, whose states were loaded.

    The schedule stays at its step; the rate becomes what the recipe's curve says there. Where the recipe is
    the one of the checkpoint, nothing changes, to the last bit.
    """
    schedule.base_lrs = [group["initial_lr"] for group in constants]
    factors = [curve(schedule.last_epoch) for curve in schedule.lr_lambdas]
    rates = [base * factor for base, factor in zip(schedule.base_lrs, factors, strict=True)]
    for group, fixed, rate in zip(optimizer.param_groups, constants, rates, strict=True):
        group |= fixed | {"lr": rate}
