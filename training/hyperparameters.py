"""Whose word counts on resuming: an optimizer's moments are the checkpoint's, its constants the recipe's.

A state that torch loads brings the learning rates, decays and betas of the run that saved it. A recipe that
was changed in between would then be announced and written down, and not be obeyed.
"""

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Constants = Sequence[dict[str, Any]]
"""What a recipe says of each group of parameters."""


def constants_of(optimizer: Optimizer) -> Constants:
    """Note the constants of an optimizer's groups, before a state is loaded into it."""
    return [
        {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]


def give_back(optimizer: Optimizer, schedule: LambdaLR, constants: Constants) -> None:
    """Give an optimizer and its schedule, whose states were loaded, the constants of the recipe again.

    The schedule stays at its step; the rate becomes what the recipe's curve says there. Where the recipe is
    the one of the checkpoint, nothing changes, to the last bit.
    """
    schedule.base_lrs = [group["initial_lr"] for group in constants]
    factors = [curve(schedule.last_epoch) for curve in schedule.lr_lambdas]
    rates = [base * factor for base, factor in zip(schedule.base_lrs, factors, strict=True)]
    for group, own, rate in zip(optimizer.param_groups, constants, rates, strict=True):
        group |= own | {"lr": rate}
    schedule._last_lr = rates
