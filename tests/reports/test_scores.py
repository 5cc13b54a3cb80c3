"""What a task scores, and by which metrics, has words for reports."""

import pytest

from tercet.configs.recipe import parse_recipe
from tercet.finetune.tasks.recipes import TASKS
from tercet.reports.scores import metric_words, what_is_scored


@pytest.mark.parametrize("kind", TASKS)
def test_every_task_and_metric_has_words(kind):
    recipe = parse_recipe(TASKS[kind], {"kind": kind})
    assert recipe.TERMS.keys() == {kind}
    assert what_is_scored(kind) == recipe.TERMS[kind][0]
    assert recipe.build().metrics.keys() <= metric_words().keys()
