"""Each shipped recipe of fine-tuning, on few rows and a tiny model, does what it asks for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tercet.configs.recipe import load_recipe
from tercet.finetune.recipe import DataRecipe, FineTuningRecipe

from ..reported import finetune
from ..small_taggers import save_characters, save_static
from .conftest import multiple_choice_rows, question_answering_rows, sentences, tagging_rows, write_rows

RECIPES = sorted((Path(__file__).parents[2] / "configs" / "finetune").glob("*.yaml"))
MEMBER = {"generation": "seq2seq", "chat": "decoder"}
COUNT = 37
"""Rows: a step of 32 and one of five, or of 16."""


def rows_of(task: Any) -> list[dict[str, Any]]:
    """Make rows with the columns of a task."""
    texts = [" ".join(words) for words in sentences(COUNT, 0)]
    inputs = [dict.fromkeys(task.input_columns, text) for text in texts]
    if task.kind == "tagging":
        rows = tagging_rows(COUNT, 0)
        return [{task.words: row["tokens"], task.tags: row["tags"]} for row in rows]
    if task.kind == "multiple_choice":
        return multiple_choice_rows(COUNT, 0)
    if task.kind == "question_answering":
        return question_answering_rows(COUNT, 0)
    if task.kind == "chat":
        turns = ("user", "assistant")
        return [{"messages": [{"role": role, "content": text} for role in turns]} for text in texts]
    labels: dict[str, Any] = {
        "classification": task.kind == "classification" and (task.label_names or ("a", "b")),
        "multi_label": [["a"], ["b"]],
        "regression": [0.5, 1.5],
    }
    values = labels.get(task.kind) or texts
    return [
        row | dict.fromkeys(task.label_columns, values[number % len(values)])
        for number, row in enumerate(inputs)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_a_shipped_recipe_learns_from_each_row_in_each_epoch(file, bases, tmp_path, capsys):
    shipped = load_recipe(FineTuningRecipe, file)
    train = str(write_rows(tmp_path / "train.jsonl", rows_of(shipped.task)))
    model = replace(shipped.model, path=str(bases / MEMBER.get(shipped.task.kind, "encoder")))
    if shipped.model.tagger is not None:
        beside = replace(shipped.model.tagger, beside=(str(save_static(tmp_path / "static")),))
        path = str(save_characters(tmp_path / "characters"))
        model = replace(shipped.model, path=path, tagger=beside)
    recipe = replace(
        shipped,
        model=model,
        task=replace(shipped.task, longest_target=8) if shipped.task.kind == "generation" else shipped.task,
        data=DataRecipe(train, validation=train),
        training=replace(shipped.training, seeds=(0,), precision="fp32", learning_rate=1e-4),
        output=str(tmp_path / "run"),
    )
    finetune(recipe)
    (result,) = json.loads((recipe.folder / "scores.json").read_text())["seeds"].values()
    learned, epochs = result["learned"], int(shipped.training.epochs)
    assert learned["examples_of_epochs"] == [COUNT] * epochs
    assert learned["skipped_steps"] == 0
    assert learned["scored"] == learned["saved"]
    assert result["steps"] == -(-COUNT // shipped.training.batch_size) * epochs
    if shipped.task.kind in ("classification", "multi_label", "regression", "multiple_choice", "ranking"):
        assert [*learned["targets"].values()] == [COUNT * epochs]
    assert "has learned from" not in capsys.readouterr().err
