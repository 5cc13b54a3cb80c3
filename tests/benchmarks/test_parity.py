"""The models that are timed against each other compute the same."""

import pytest

pytestmark = pytest.mark.usefixtures("no_accelerator_remains")


def test_loss_and_gradients_equal_the_stock_model(case, module):
    parity = module("parity").compare(case)
    assert parity["loss_difference"] < 1e-5
    assert parity["gradient_difference"] < 1e-4
    assert parity["flops_per_token"] > 0


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
def test_every_side_takes_its_steps(case, module, side):
    sides, measuring = module("sides").SIDES, module("measuring")
    train_once = sides[side].prepare(case, measuring.present_device())
    train_once()
    train_once()
