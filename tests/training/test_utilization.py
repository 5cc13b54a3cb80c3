"""The model's operations and the machine's peak."""

from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator

from tercet.modeling.attention.kernels import KERNELS, VARLEN
from tercet.training.batches import StepDataset
from tercet.training.utilization import count_flops_per_token, measure_peak

from ..objectives.conftest import tokenizer  # noqa: F401
from .test_gradient_checkpointing import prepare


def test_operations_are_six_per_token_and_weight_of_a_product(toys, objective, source):
    model = toys.Model(dropout=0.5)
    step = StepDataset(source, objective, tokens_per_step=200, tokens_per_micro_batch=80, seed=0)[0, 0]
    before = torch.get_rng_state()
    found = count_flops_per_token(model, objective, step, Accelerator(cpu=True))
    batches = step.micro_batches(torch.device("cpu"))
    batch = batches[len(batches) // 2]
    per_sequence = len(batch["is_long"]) / batch["input_ids"].numel()
    weights = 16 * 16 + 16 * 23 + 16 * 2 * per_sequence
    assert found == pytest.approx(6 * weights)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_operations_of_kernels_that_a_counter_does_not_know_are_those_of_groups(tokenizer, monkeypatch):  # noqa: F811
    objective, model, steps = prepare("causal_language_modeling", tokenizer, num_key_value_heads=1)
    arguments = model, objective, steps[0, 0, 0], Accelerator(cpu=True)
    expected = count_flops_per_token(*arguments)
    unknown = replace(
        VARLEN, compute=None, devices=("cpu",), dtypes=None, is_available=None, multiple_of_channels=1
    )
    monkeypatch.setitem(KERNELS, "varlen", unknown)
    assert count_flops_per_token(*arguments) == expected
    with pytest.raises(TypeError, match="not callable"):
        objective.losses(model, steps[0, 0, 0].micro_batches(torch.device("cpu"))[0])


def test_a_machine_has_a_peak():
    assert measure_peak(torch.device("cpu"), "no") > 1e8
