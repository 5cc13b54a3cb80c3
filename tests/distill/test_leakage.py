"""Who distills is told where a student may be measured on rows that its teacher has learned."""

import warnings
from dataclasses import replace

import pytest

from tercet.distill.task_step import tell_of_leakage
from tercet.finetune.recipe import DataRecipe

DATA = DataRecipe(train="rows.csv", validation_share=0.2)
TOLD = {"data": {"train": "rows.csv", "validation_share": 0.2}}


@pytest.mark.parametrize(
    "changes",
    [{"validation_share": 0.5}, {"train": "others.csv"}, {"validation": "held.csv"}, {"test": "rows.csv"}],
    ids=str,
)
def test_other_held_out_rows_than_the_teachers_are_told(changes):
    match = (
        r"runs/t may have learned .* trained with task.data.train=rows.csv, task.data.validation_share=0.2"
    )
    with pytest.warns(UserWarning, match=match):
        tell_of_leakage("runs/t", TOLD, replace(DATA, **changes))


def test_rows_that_the_teacher_held_out_are_in_order():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_of_leakage("runs/t", TOLD, DATA)
        tell_of_leakage("runs/t", {"task": TOLD}, replace(DATA, validation_share=0.1, test="test.csv"))
    with pytest.warns(UserWarning, match="trained with rows that its folder does not name"):
        tell_of_leakage("runs/t", {}, DATA)
