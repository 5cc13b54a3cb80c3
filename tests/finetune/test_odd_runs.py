"""What is odd about a run is said before it learns, and scores that are not defined end none."""

import json
import math

import numpy as np
import pytest
from datasets import Dataset

from tercet.finetune.evaluation import prediction_loop
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prepared import prepare
from tercet.finetune.tasks.regression import Regression

from ..reported import finetune
from .conftest import found_task, write_rows

REFUSED = {
    "F1 of many labels": ("classification", {"task": {"metric_for_best_model": "f1"}},
        "metric_for_best_model is f1, which needs two labels, but there are 4: set task"),
    "spans where none are marked": (
        "tagging",
        {"task": {"metric_for_best_model": "span_f1", "scheme": "none"}},
        r"task: metric_for_best_model is span_f1, but scheme is none",
    ),
    "a seed twice": ("classification", {"training": {"seeds": [3, 1, 3]}}, r"training: seeds names 3 twice"),
    "an output without a name": ("classification", {"output": ""}, "^output is '': name a file or folder"),
    "more frozen layers than there are": ("classification", {"grid": {"training.frozen_layers": [0, 9]}},
        "frozen_layers is 9, but the model has 2 layers"),
    "another width": ("classification", {"grid": {"model.overrides.hidden_size": [32, 48]}},
        "model.overrides do not fit its weights"),
    "rotary positions that turn nothing": (
        "classification",
        {"model": {"overrides": {"rope_parameters": {"rope_theta": 0}}}},
        r"^model\.overrides: rope_parameters\.rope_theta is 0: choose a number above 0",
    ),
    "a field of transformers 4": ("classification", {"model": {"overrides": {"partial_rotary_factor": 0.5}}},
        r"^model\.overrides\.partial_rotary_factor is not .* mean rope_parameters\.partial_rotary_factor\?"),
    "an unknown field": ("classification", {"grid": {"model.overrides.num_layers": [2]}},
        "num_layers is not a field of TercetEncoderConfig"),
} | {
    name: (
        "classification",
        {"model": {"overrides": {name: None}}},
        rf"model: overrides\.{name}: the task sets the labels",
    )
    for name in ("id2label", "label2id", "num_labels", "problem_type")
}  # fmt: skip
"""Kind of task, changes of its recipe, and what is said before anything is tried."""


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_tried_is_told_before_anything_is(what, recipe_of, tmp_path):
    kind, changes, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        finetune(recipe_of(kind, **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [1e30, -3e37, 1e300])
def test_a_number_that_float32_cannot_square_is_told(number, recipe_of, tmp_path):
    recipe = recipe_of("regression")
    rows = [{"text": f"cat {value}", "score": value} for value in (1.0, 2.0, number)]
    write_rows(tmp_path / "train.jsonl", rows)
    with pytest.raises(
        ValueError, match=r"train.jsonl, line 3: row 3 has .* whose square no float32 holds: scale"
    ):
        found_task(recipe)


def test_a_score_that_is_not_defined_is_the_worst(recipe_of):
    task = found_task(recipe_of("regression"))
    assert (
        task.minimized_metric({"pearson": math.nan}) == task.minimized_metric({"pearson": None}) == math.inf
    )
    assert task.minimized_metric({"pearson": -0.5}) == 0.5


def test_a_split_without_a_target_has_no_loss_and_its_run_a_report(recipe_of, tmp_path):
    """Words of which the tokenizer leaves nothing are no targets: nothing was measured, which is not 0."""
    recipe = recipe_of("tagging", training={"epochs": 1}, grid={"training.learning_rate": [1e-3, 1e-4]})
    write_rows(tmp_path / "validation.jsonl", [{"tokens": ["\u200b"], "tags": ["O"]}] * 2)
    finetune(recipe)
    scores = json.loads((recipe.folder / "scores.json").read_text())
    assert scores["mean"]["validation"]["loss"] is None
    assert "| - |" in (recipe.folder / "report.md").read_text()
    finetune(recipe, resume=True)


def test_rows_without_labels_have_no_loss(recipe_of):
    prepared = prepare(find_inputs(recipe_of("classification")))
    examples = prepared.splits["train"].examples
    blank = type(examples)({name: field for name, field in examples.fields.items() if name != "labels"})
    answers, loss = prediction_loop(prepared.pretrained.model.eval(), prepared.task.objective(), blank, 4096)
    assert len(answers) == 16
    assert math.isnan(loss)


def test_small_numbers_are_predicted_and_scored_as_they_are(recipe_of):
    recipe = recipe_of("regression")
    numbers = np.array([[3e-7], [1e-7], [2e-7]], dtype=np.float32)
    found = Regression(recipe.task, {}).predictions(list(numbers), Dataset.from_dict({"text": list("abc")}))
    assert found == [{"score": 3e-7}, {"score": 1e-7}, {"score": 2e-7}]
    assert Regression(recipe.task, {}).score(found, numbers[:, 0])["pearson"] == pytest.approx(1)
