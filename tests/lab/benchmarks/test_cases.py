"""What is measured: equal models, the promised filling, equal tokens on all sides."""

import numpy as np
import pytest
import torch

from lab.benchmarks import cases, measuring, sides
from tercet.data.steps.packing import sequence_lengths


def test_both_models_have_equally_many_parameters(case):
    ours, stock = (sum(p.numel() for p in model.parameters()) for model in (case.tercet(), case.stock()))
    assert ours == stock


@pytest.mark.parametrize("name", ["encoder", "seq2seq"])
def test_text_fills_58_percent_of_a_padded_batch(name):
    case = cases.CASES[name]
    lengths = np.concatenate([case.lengths(np.random.default_rng(seed)) for seed in range(50)])
    assert lengths.max() == case.sequence_length
    assert 0.56 < lengths.mean() / case.sequence_length < 0.6


def test_grouping_changes_the_company_but_not_the_sequences(case):
    def sequences(batches):
        return sorted(tokens for batch in batches for tokens in sequence_lengths(batch))

    plain, grouped = case.batches(), case.grouped_batches()
    assert len(plain) == len(grouped) == case.num_batches
    assert sequences(plain) == sequences(grouped)
    assert sum(max(sequence_lengths(b)) for b in grouped) <= sum(max(sequence_lengths(b)) for b in plain)


@pytest.mark.parametrize("multiple", [1, 8])
def test_padding_keeps_every_token_and_target(case, multiple):
    batch = case.batches()[0]
    rows = sides.padded(batch, case.pad_token_id, multiple)
    assert all(each.shape[1] % multiple == 0 for each in rows.values() if each.dim() == 2)
    is_real = rows["attention_mask"] == 1
    assert torch.equal(rows["input_ids"][is_real], batch["input_ids"][0])
    assert (rows["input_ids"][~is_real] == case.pad_token_id).all()
    targets = batch["labels"][batch["labels"] != -100]
    assert torch.equal(rows["labels"][rows["labels"] != -100], targets)


def test_copied_weights_fill_every_parameter(case):
    stock, ours = case.stock(), case.tercet()
    cases.copy_weights(stock, ours)
    squares = [sum(p.double().square().sum() for p in model.parameters()) for model in (stock, ours)]
    torch.testing.assert_close(*squares)


@pytest.mark.usefixtures("no_accelerator_remains")
def test_loss_and_gradients_equal_the_stock_model(case):
    parity = sides.compare(case)
    assert parity["loss_difference"] < 1e-5
    assert parity["gradient_difference"] < 1e-4
    assert parity["flops_per_token"] > 0


@pytest.mark.usefixtures("no_accelerator_remains")
@pytest.mark.parametrize(
    "side",
    [
        "stock",
        "stock-tuned",
        pytest.param("stock-compiled", marks=pytest.mark.slow),
        "tercet",
        "tercet-float32",
    ],
)
def test_every_side_takes_its_steps(case, side):
    train_once = sides.SIDES[side].prepare(case, measuring.present_device())
    train_once()
    train_once()
