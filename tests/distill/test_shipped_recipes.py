"""Each shipped recipe of distillation, on few texts and rows and tiny models, does what it asks for."""

import json
from pathlib import Path

import pytest

from tercet.configs.recipe import parse_recipe, read_recipe
from tercet.distill.recipe import DistillationRecipe
from tercet.distill.run import distill
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune

from ..pretraining.test_shipped_recipes import TRAINING, require_accounts

RECIPES = sorted(file.stem for file in (Path(__file__).parents[2] / "configs" / "distill").glob("*.yaml"))
COUNT = 37
MEMBER = {
    "masked_language_modeling": "encoder",
    "causal_language_modeling": "decoder",
    "translation": "seq2seq",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    texts = [f"the {('cat', 'dog')[number % 2]} sat over the tree {number}" for number in range(COUNT)]
    lines = [json.dumps({"text": text, "label": "ab"[number % 2]}) for number, text in enumerate(texts)]
    file.write_text("\n".join(lines))
    return str(file)


@pytest.fixture(scope="module")
def classifier(teachers, rows, tmp_path_factory):
    """Fine-tune the encoder; give the folder of the model."""
    data = {
        "model": {"path": str(teachers / "encoder")},
        "task": {"kind": "classification", "texts": ["text"], "label": "label"},
        "data": {"train": rows, "validation": rows},
        "training": {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, "precision": "fp32"},
        "output": str(tmp_path_factory.mktemp("teacher") / "run"),
    }
    return str(finetune(parse_recipe(FineTuningRecipe, data)))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_learns_from_as_much_as_it_asks_for(
    name, teachers, texts, rows, classifier, tmp_path, capsys
):
    _, data = read_recipe(name, [], kind="distill")
    general, task = data.get("general"), data.get("task")
    if general is not None:
        member = MEMBER[general["objective"]["kind"]]
        ending = "jsonl" if member == "seq2seq" else "txt"
        general["teacher"] = str(teachers / member)
        corpus = {split: str(texts / f"{split}.{ending}") for split in ("train", "validation")}
        columns = {"source_column": "left", "target_column": "right"} if member == "seq2seq" else {}
        general["corpus"] = corpus | {"sequence_length": 64, "cache": str(texts / "cache")} | columns
        general["training"] |= TRAINING
        if "sequences" in general:
            general["sequences"] = 2
            data["student"] |= {"num_layers": 2}
    if task is not None:
        task |= {"teacher": classifier, "data": {"train": rows, "validation": rows}}
        task["training"] |= {"learning_rate": 1e-3, "precision": "fp32", "seeds": [0]}
    data |= {
        "report": {"speed": False, "random": False, "without_teacher": False},
        "output": str(tmp_path / "run"),
    }
    recipe = parse_recipe(DistillationRecipe, data)
    distill(recipe)
    said = capsys.readouterr().err
    if recipe.general is not None:
        (run,) = tmp_path.glob("run/*/general")
        require_accounts(run, recipe.general.training, said)
    if recipe.task is not None:
        (file,) = tmp_path.glob("run/*/task/seed-0/scores.json")
        learned = json.loads(file.read_text())["learned"]
        assert learned["examples_of_epochs"] == [COUNT] * int(recipe.task.training.epochs)
        assert learned["skipped_steps"] == 0
        assert learned["scored"] == learned["saved"]
        assert "has learned from" not in said
