"""The model's operations and the machine's peak."""

import pytest
import torch
from accelerate import Accelerator

from tercet.training.batches import StepDataset
from tercet.training.utilization import count_flops_per_token, measure_peak


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


def test_a_machine_has_a_peak():
    assert measure_peak(torch.device("cpu"), "no") > 1e8
