"""What must be equal before speed counts: stock and ours in float32, in bfloat16 the ways to compute a step.

Rounding to bfloat16 makes a noise, measured as the difference of gradients from those in float32. Two ways
that compute the same may differ by `TIMES_NOISE` times as much, since both are rounded.
"""

from functools import partial
from pathlib import Path

import torch
from cases import Case, CaseExamples
from peers import padded
from sides import Pass, compare, first_epoch, training_recipe
from torch import Tensor, nn

from tercet.data.steps.batches import Step
from tercet.data.steps.objective import on_device
from tercet.training.devices.compiling import CompiledBlocks
from tercet.training.devices.precision import build_accelerator
from tercet.training.devices.recording import WARM_UPS, Recorder
from tercet.training.loop import accumulate_gradients
from tercet.training.stages import prepare_data

TIMES_NOISE = 2.0

LIMITS = {"loss_difference": 1e-5, "gradient_difference": 1e-4}
"""Relative differences in float32 below which two models are the same."""


def prepare_laws(case: Case, device: torch.device) -> Pass:
    """Return what compares once it is called."""
    return partial(laws, case, device)


def laws(case: Case, device: torch.device) -> dict[str, dict[str, float]]:
    """Measure each law's relative `difference`, and the `limit` that it keeps; nothing may be dropped."""
    recipe = training_recipe(case, precision="bf16", compile=True)
    accelerator = build_accelerator(recipe, Path())
    torch.manual_seed(0)
    with device:
        bare = case.tercet().train()
    objective, examples = case.objective(), CaseExamples(case)
    ragged, fixed = (
        first_epoch(prepare_data(examples, objective, recipe, accelerator), is_ragged=is_ragged)[0]
        for is_ragged in (True, False)
    )
    assert ragged.parts[0].sizes is None
    assert fixed.parts[0].sizes is not None

    def by_engine(model: nn.Module, step: Step, recorder: Recorder | None = None) -> Tensor:
        accumulate_gradients(model, objective, step, accelerator, recorder=recorder)
        return taken_gradient(bare)

    exact = by_engine(bare, ragged)
    model = accelerator.prepare(bare)
    packed, found = by_engine(model, ragged), {"static = ragged": by_engine(model, fixed)}
    model(**on_device(padded(ragged.parts[0].batch, case.pad_token_id), device)).loss.backward()
    found["packed = padded"] = taken_gradient(bare)
    with CompiledBlocks(bare, has_fixed_sizes=True).in_use():
        found["compiled = eager"] = by_engine(model, fixed)
        if device.type == "cuda":
            recorder = Recorder(bare)
            for _ in range(WARM_UPS + 2):
                found["recorded = eager"] = by_engine(model, fixed, recorder)
            if not recorder.recordings:
                raise RuntimeError("micro-batches cannot be recorded as CUDA graphs")
    limit = TIMES_NOISE * float((packed - exact).norm() / exact.norm())
    differences = {name: float((own - packed).norm() / packed.norm()) for name, own in found.items()}
    parity = compare(case)
    return {
        f"{name.replace('_', ' ')} to stock in float32": {"difference": parity[name], "limit": own}
        for name, own in LIMITS.items()
    } | {name: {"difference": difference, "limit": limit} for name, difference in differences.items()}


def taken_gradient(model: nn.Module) -> Tensor:
    """Take the gradients of all parameters away, as one vector."""
    found = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
    model.zero_grad()
    return found
