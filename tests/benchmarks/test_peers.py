"""The other layout and the other names."""

import torch


def test_padding_keeps_every_token_and_target(case, module):
    batch = case.batches()[0]
    rows = module("peers").padded(batch, case.pad_token_id)
    is_real = rows["attention_mask"] == 1
    assert torch.equal(rows["input_ids"][is_real], batch["input_ids"][0])
    assert (rows["input_ids"][~is_real] == case.pad_token_id).all()
    targets = batch["labels"][batch["labels"] != -100]
    assert torch.equal(rows["labels"][rows["labels"] != -100], targets)


def test_copied_weights_fill_every_parameter(case, module):
    stock, ours = case.stock(), case.tercet()
    module("peers").copy_weights(stock, ours, case.preset)
    squares = [sum(p.double().square().sum() for p in model.parameters()) for model in (stock, ours)]
    torch.testing.assert_close(*squares)
