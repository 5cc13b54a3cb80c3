"""What is no number is refused where a model is asked, and what is forbidden is not."""

import pytest
import torch
from torch import nn

from tercet.training.finite_numbers import finite_outputs, require_numbers


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_no_number_is_refused_inside_and_not_behind(value):
    layer = nn.Linear(2, 2)
    damaged = torch.tensor([1.0, value])
    with pytest.raises(ValueError, match=r"no number .* tercet doctor"), finite_outputs(layer):
        layer(damaged)
    assert not layer(damaged).isfinite().all()


def test_what_is_forbidden_stays():
    require_numbers(torch.tensor([1.0, -torch.inf]))
    require_numbers(torch.empty(0))
