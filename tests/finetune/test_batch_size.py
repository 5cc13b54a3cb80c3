"""How many rows a step of fine-tuning holds, where rows differ in length."""

import warnings

import numpy as np
import pytest

from tercet.finetune.examples import LabelledExamples
from tercet.finetune.learning import training_of
from tercet.finetune.recipe import FineTuningSchedule
from tercet.training.packing import ragged


def examples_of(lengths: list[int]) -> LabelledExamples:
    return LabelledExamples({"input_ids": ragged([np.ones(length, dtype=int) for length in lengths])})


def test_a_row_as_long_as_many_is_warned_of():
    with pytest.warns(UserWarning, match="has 1,000 tokens, as many as 41 rows .*batch_size = 8"):
        recipe = training_of(
            FineTuningSchedule(batch_size=8, learning_rate=1e-4), examples_of([10] * 67 + [1000]), seed=0
        )
    assert recipe.tokens_per_step == 1000
    with warnings.catch_warnings(action="error"):
        recipe = training_of(
            FineTuningSchedule(batch_size=8, learning_rate=1e-4), examples_of([10] * 67 + [100]), seed=0
        )
    assert recipe.tokens_per_step == 100
