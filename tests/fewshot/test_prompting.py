"""Prompts as far as a model reads."""

import pytest

from ..reported import fewshot
from .conftest import read


def test_a_context_that_fits_stays_whole_beside_one_that_does_not(recipe_of, saved):
    contexts = "['the dog', 'the cat' + ' the cat' * 150]"
    task = {"contexts": contexts, "continuation": "ran .", "target": "0"}
    alone = task | {"contexts": "['the dog', 'the cat']"}
    values = []
    for own in (task, alone):
        recipe = recipe_of("partial_evaluation", [saved("decoder")], task=own, prompting={"num_fewshot": [0]})
        items = read(fewshot(recipe, overwrite=True))[1]
        values.append([item["values"]["none"][0] for item in items])
        assert {item["cut"] > 0 for item in items} == {own is task}
    assert values[0] == pytest.approx(values[1], abs=1e-5)
