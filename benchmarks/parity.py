"""That both models compute the same, so that their speeds can be compared at all."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from cases import Case, CaseExamples
from peers import copy_weights, in_our_names
from sides import first_epoch, pad_all, training_recipe

from tercet.training.loop import accumulate_gradients
from tercet.training.precision import build_accelerator, fastest_float32_products
from tercet.training.stages import prepare_data
from tercet.training.utilization import count_flops_per_token


def compare(case: Case) -> dict[str, Any]:
    """Score one batch with both models: equal weights, no dropout, float32.

    Returns their losses, the relative difference of the losses and of all gradients (Frobenius), how many
    parameters they have, and how many floating-point operations ours spends on a real token.
    """
    case = replace(case, dropout=0.0)
    recipe = training_recipe(case, precision="fp32", compile=False)
    accelerator = build_accelerator(recipe, Path())
    torch.manual_seed(0)
    device, objective = cast(torch.device, accelerator.device), case.objective()
    with device:
        stock, ours = case.stock().train(), case.tercet().train()
    copy_weights(stock, ours, case.preset)
    ours = accelerator.prepare(ours)
    step = first_epoch(prepare_data(CaseExamples(case), objective, recipe, accelerator))[0]

    stock_loss = stock(**pad_all(case, [step.parts[0].batch], device)[0]).loss
    stock_loss.backward()
    with fastest_float32_products(device):
        our_loss = accumulate_gradients(ours, objective, step, accelerator)["loss"]
        gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
        difference = gradient_difference(gradients, dict(in_our_names(stock, case.preset, gradients=True)))
        flops_per_token = count_flops_per_token(ours, objective, step, accelerator)
    return {
        "stock_loss": stock_loss.item(),
        "tercet_loss": our_loss.item(),
        "loss_difference": abs(our_loss.item() / stock_loss.item() - 1),
        "gradient_difference": difference,
        "parameters": sum(parameter.numel() for parameter in stock.parameters()),
        "flops_per_token": flops_per_token,
    }


def gradient_difference(ours: dict[str, Any], stock: dict[str, Any]) -> float:
    """Relate the difference of all gradients, as one vector, to the length of the stock model's."""
    squares = [(ours[name] - stock[name]).double().square().sum() for name in ours]
    of_stock = [gradient.double().square().sum() for gradient in stock.values()]
    return float((torch.stack(squares).sum() / torch.stack(of_stock).sum()).sqrt())
