"""A student is measured on no row that its teacher has learned."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tercet.distill.data_leakage import require_no_leakage
from tercet.distill.recipe import TaskStepRecipe
from tercet.distill.task_step import prepare_task
from tercet.finetune.recipe import DataRecipe
from tercet.finetune.run import finetune
from tercet.finetune.splits import read_splits
from tercet.finetune.task_recipes import ClassificationRecipe
from tercet.finetune.tasks import load_task
from tercet.finetune.texts import Classification

from ..finetune.conftest import ROWS, bases, recipe_of, write_rows  # noqa: F401


@pytest.fixture
def teacher(recipe_of):  # noqa: F811
    """Leave what a teacher leaves that was fine-tuned with a fifth of 20 rows held out."""

    def make(**data):
        recipe = recipe_of("classification", count=20)
        recipe = replace(recipe, data=replace(recipe.data, validation=None, **data))
        texts = {"train": [{"name": "train.jsonl", "sha256": sha256(recipe.data.train)}]}
        recipe.model_folder.mkdir(parents=True)
        (recipe.folder / "texts.json").write_text(json.dumps(texts))
        write_yaml(recipe.model_folder / "recipe.yaml", {"data": asdict(recipe.data)})
        return recipe

    return make


def asdict(data):
    return {key: value for key, value in vars(data).items() if value is not None}


def write_yaml(file, told):
    file.write_text(json.dumps(told))


def sha256(file):
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def check(teacher, task, data):
    recipe = replace(teacher, data=data)
    require_no_leakage("runs/teacher", teacher.model_folder, task, data, read_splits(recipe))


@pytest.fixture
def task():
    facts = {"labels": ["cat", "dog"], "are_numbered": False, "shares": [0.5, 0.5]}
    return Classification(ClassificationRecipe("classification"), facts)


def test_another_share_holds_out_rows_that_the_teacher_has_learned(teacher, task):
    made = teacher(validation_share=0.2)
    complaint = (
        r"has learned 6 of the 10 rows that task\.data\.validation_share=0\.5 holds out: set "
        r"task\.data\.validation_share=0\.2, as its recipe did"
    )
    with pytest.raises(ValueError, match=complaint):
        check(made, task, replace(made.data, validation_share=0.5))
    for share in (0.2, 0.1):
        check(made, task, replace(made.data, validation_share=share))


def test_the_same_share_of_another_file_is_answered_with_the_file(teacher, task, tmp_path):
    made = teacher(validation_share=0.2)
    reordered = str(write_rows(tmp_path / "reordered.jsonl", ROWS["classification"](20, 0)[::-1]))
    with pytest.raises(ValueError, match=r"set task\.data\.train=.*train\.jsonl, as its recipe did, or"):
        check(made, task, replace(made.data, train=reordered))


def test_a_file_with_learned_rows_is_no_test(teacher, task, tmp_path):
    """In whatever file they are, and in whatever order."""
    made = teacher(validation_share=0.2)
    rows = ROWS["classification"](20, 0)
    new = [{"text": f"new {number}", "label": "cat"} for number in range(3)]
    test = str(write_rows(tmp_path / "test.jsonl", [*new, *rows[::-1]]))
    with pytest.raises(
        ValueError, match=r"16 of the 23 rows of task\.data\.test, row \d+ the first: take them"
    ):
        check(made, task, replace(made.data, test=test))
    whole = str(write_rows(tmp_path / "new.jsonl", new))
    check(made, task, replace(made.data, test=whole))
    with pytest.raises(ValueError, match=r"of the 20 rows of task\.data\.validation, row"):
        check(made, task, DataRecipe(train=whole, validation=made.data.train))


def test_rows_that_moved_are_found_by_what_they_are(teacher, task, tmp_path):
    made = teacher(validation_share=0.2)
    moved = shutil.move(made.data.train, tmp_path / "moved.jsonl")
    with pytest.raises(ValueError, match="has learned"):
        check(made, task, replace(made.data, train=str(moved), validation_share=0.5))


@pytest.mark.parametrize("lost", ["recipe", "rows", "contents"])
def test_what_nobody_can_tell_is_said(lost, teacher, task, tmp_path):
    made = teacher(validation_share=0.2)
    other = str(write_rows(tmp_path / "other.jsonl", ROWS["classification"](20, 3)))
    if lost == "recipe":
        (made.model_folder / "recipe.yaml").unlink()
    elif lost == "rows":
        (tmp_path / "train.jsonl").unlink()
    else:
        write_rows(tmp_path / "train.jsonl", ROWS["classification"](20, 4))
    with pytest.warns(UserWarning, match="are unknown .*: make sure that the student is not evaluated"):
        check(made, task, DataRecipe(train=other))


def test_a_step_refuses_what_its_teacher_has_learned(recipe_of, tmp_path):  # noqa: F811
    """From the files that a real fine-tuning leaves."""
    recipe = recipe_of("classification", count=40, training={"epochs": 1})
    recipe = replace(recipe, data=replace(recipe.data, validation=None, validation_share=0.25))
    folder = finetune(recipe)
    assert load_task(folder)
    assert prepare_task(TaskStepRecipe(teacher=str(folder), data=recipe.data)).rows["validation"]
    with pytest.raises(ValueError, match=r"set task\.data\.validation_share=0\.25"):
        prepare_task(TaskStepRecipe(teacher=str(folder), data=replace(recipe.data, validation_share=0.5)))
