"""Whole fine-tuning runs on a few rows: from a recipe to a model that pipelines load."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from tercet.__main__ import main
from tercet.configs.recipe import recipe_data
from tercet.finetune import run
from tercet.finetune.inputs import find_inputs
from tercet.finetune.learning import learn_seed
from tercet.finetune.model import load_task_model
from tercet.finetune.prepared import prepare

from ..reported import finetune
from .conftest import ROWS, write_rows


def scores_of(recipe) -> dict:
    return json.loads((recipe.folder / "scores.json").read_text())


def test_a_csv_of_two_columns_becomes_a_model_that_a_pipeline_answers_with(bases, tmp_path, capsys):
    rows = ROWS["classification"](60, 0)
    table = "".join(f'"{row["text"]}",{row["label"]}\n' for row in rows)
    (tmp_path / "rows.csv").write_text(f"text,label\n{table}", encoding="utf-8")
    code = main(
        [
            *("finetune", "text-classification", f"model.path={bases / 'encoder'}"),
            *(f"data.train={tmp_path / 'rows.csv'}", f"output={tmp_path / 'run'}", "training.epochs=1"),
        ]
    )
    assert code == 0
    folder = tmp_path / "run" / "model"
    printed = capsys.readouterr()
    assert printed.out.strip() == str(folder)
    command = f'tercet predict {folder} "a text"'
    assert printed.err.splitlines()[-3:] == [
        f"next: {command}",
        f"with rows of text: tercet predict {folder} FILE --output predictions.jsonl",
        f"to use it without Tercet's code: tercet export {folder} FOLDER --onnx",
    ]
    assert f"`{command}` predicts a text." in (tmp_path / "run" / "report.md").read_text()
    answer = pipeline("text-classification", str(folder))("the cat sat")[0]
    assert answer["label"] in {row["label"] for row in rows}
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!doctype html>")


def test_the_model_before_a_run_is_a_baseline_unless_its_head_is_new(recipe_of, tmp_path):
    first = recipe_of("classification")
    folder = finetune(first)
    second = replace(first, model=replace(first.model, path=str(folder)), output=str(tmp_path / "again"))
    finetune(second)
    before, again = scores_of(first)["baselines"], scores_of(second)["baselines"]
    assert set(again) - set(before) == {"before this run"}
    assert "; the same model before this run." in (second.folder / "report.md").read_text()  # the last


def test_saved_scores_are_those_of_the_saved_model(recipe_of):
    recipe = recipe_of("classification", "decoder", training={"epochs": 3, "learning_rate": 1e-3})
    folder = finetune(recipe)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    told = [json.loads(line) for line in (recipe.folder / "predictions.jsonl").read_text().splitlines()]
    for row, prediction in zip(ROWS["classification"](8, 1), told, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(row["text"], return_tensors="pt")).logits[0]
        scores = dict(zip(model.config.id2label.values(), logits.softmax(-1).tolist(), strict=True))
        assert scores == pytest.approx(prediction["scores"], abs=1e-5)


def test_a_run_goes_on_with_no_other_rows_than_it_began_with(recipe_of, tmp_path):
    """Predictions of a finished seed would be compared with what other rows say."""
    recipe = recipe_of("classification", training={"epochs": 1})
    finetune(recipe)
    scores = scores_of(recipe)["mean"]
    for split in ("train", "validation"):
        file = tmp_path / f"{split}.jsonl"
        rows = file.read_text()
        file.write_text(rows.replace("sat", "ran"))
        for _ in range(2):
            with pytest.raises(
                ValueError, match=rf"{split}: {split}.jsonl .* is not what the run began with"
            ):
                finetune(recipe, resume=True)
        file.write_text(rows)
    finetune(recipe, resume=True)
    assert scores_of(recipe)["mean"] == scores


def test_the_share_of_unknown_tokens_is_told(recipe_of, capsys):
    recipe = recipe_of("classification", training={"epochs": 1})
    finetune(recipe)
    share = scores_of(recipe)["unknown_tokens"]["validation"]
    evaluation = json.loads((recipe.folder / "evaluation.json").read_text())
    assert evaluation["held_out"] == {"unknown_tokens": share}
    assert (
        f"the validation rows: {share:.2%} of the tokens are unknown to the tokenizer"
        in capsys.readouterr().err
    )


def test_rows_that_are_learned_and_measured_are_told(recipe_of, tmp_path, capsys):
    recipe = recipe_of("classification", training={"epochs": 1})
    learned = [json.loads(line) for line in Path(recipe.data.train).read_text().split("\n") if line]
    test = write_rows(tmp_path / "test.jsonl", [*learned[:3], *ROWS["classification"](7, 9)])
    recipe = replace(recipe, data=replace(recipe.data, test=str(test)))
    finetune(recipe)
    line = "3 of the 10 test rows are equal to a training row"
    assert line in capsys.readouterr().err
    assert line in (recipe.folder / "report.md").read_text()
    assert scores_of(recipe)["shared_rows"]["test"] == 3


def test_runs_are_functions_of_their_seed(recipe_of):
    recipe = recipe_of("classification", training={"seeds": [3, 4]})
    finetune(recipe)
    first = load_file(recipe.folder / "seed-3" / "model" / "model.safetensors")
    other = load_file(recipe.folder / "seed-4" / "model" / "model.safetensors")
    finetune(recipe, overwrite=True)
    again = load_file(recipe.folder / "seed-3" / "model" / "model.safetensors")
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    assert set(scores_of(recipe)["seeds"]) == {"3", "4"}


def test_a_finished_run_takes_further_seeds(recipe_of):
    finetune(recipe_of("classification", training={"seeds": [0]}))
    before = (recipe_of("classification").folder / "seed-0" / "scores.json").stat().st_mtime_ns
    recipe = recipe_of("classification", training={"seeds": [0, 1]})
    finetune(recipe, resume=True)
    assert (recipe.folder / "seed-0" / "scores.json").stat().st_mtime_ns == before
    assert set(scores_of(recipe)["seeds"]) == {"0", "1"}


def test_a_grid_settles_on_what_is_best_on_validation(recipe_of):
    grid = {"training.learning_rate": [1e-9, 5e-3], "model.overrides.dropout": [0.0]}
    recipe = recipe_of("classification", count=40, training={"epochs": 3, "seeds": [0, 1]}, grid=grid)
    finetune(recipe)
    tried = json.loads((recipe.folder / "grid.json").read_text())
    assert [each["values"]["training.learning_rate"] for each in tried] == [1e-9, 5e-3]
    best = min(tried, key=lambda each: each["shortfall"])
    assert best["values"]["training.learning_rate"] == 5e-3
    chosen = scores_of(recipe)["seeds"]["0"]["validation"]
    assert chosen["accuracy"] == best["validation"]["accuracy"]
    assert "Grid search" in (recipe.folder / "report.md").read_text()


def test_additions_of_lora_are_merged_and_kept(recipe_of, bases):
    pytest.importorskip("peft", reason="PEFT is not installed")
    recipe = recipe_of("classification", training={"epochs": 4, "learning_rate": 1e-2}, lora={"rank": 4})
    folder = finetune(recipe)
    weights, before = (
        load_file(folder / "model.safetensors"),
        load_file(bases / "encoder" / "model.safetensors"),
    )
    changed = {
        name for name, tensor in before.items() if name in weights and not torch.equal(tensor, weights[name])
    }
    assert changed
    assert all(name.endswith("_proj.weight") for name in changed)
    assert (recipe.folder / "seed-0" / "adapter" / "adapter_model.safetensors").exists()
    assert len(pipeline("text-classification", str(folder))(["the cat sat", "a dog"])) == 2


def test_from_scratch_nothing_of_the_weights_is_taken(recipe_of, bases):
    recipe = recipe_of(
        "classification", model={"from_scratch": True}, training={"learning_rate": 1e-9, "seeds": [7]}
    )
    after = load_file(run.finetune(recipe) / "model.safetensors")
    before = load_file(bases / "encoder" / "model.safetensors")
    matrices = [name for name in before if name in after and before[name].ndim == 2]
    assert matrices
    assert not any(torch.allclose(before[name], after[name], atol=1e-4) for name in matrices)


def test_frozen_layers_do_not_learn(recipe_of, bases):
    recipe = recipe_of("classification", training={"frozen_layers": 1, "learning_rate": 1e-2})
    after = load_file(run.finetune(recipe) / "model.safetensors")
    before = load_file(bases / "encoder" / "model.safetensors")
    for name, tensor in before.items():
        if name in after and (".layers.0." in name or "embeddings" in name):
            assert torch.equal(tensor, after[name]), name
        elif name in after and name.endswith("q_proj.weight"):
            assert not torch.equal(tensor, after[name]), name


@pytest.mark.parametrize(
    ("member", "text", "training", "message"),
    [
        ("decoder", "nowhere.txt", {}, "which trains a tercet_encoder, but .* is a tercet_decoder"),
        ("encoder", "nowhere.txt", {}, "nowhere.txt does not exist"),
        ("encoder", "here.txt", {}, r"^adaptation\.corpus\.sequence_length is 9999, but the model has"),
        ("encoder", "here.txt", {"schedule": {"warmup_steps": 4}},
         r"adaptation\.training: schedule\.warmup_steps = 4 exceeds steps = 3"),
        ("encoder", "here.txt", {"stages": [{"steps": 1, "sequence_length": 10_000}]},
         r"sequence_length = 10000 exceeds corpus\.sequence_length"),
    ],
)  # fmt: skip
def test_further_pretraining_that_cannot_be_is_refused_before_anything_is_learned(
    member, text, training, message, recipe_of, tmp_path
):
    (tmp_path / "here.txt").write_text("a cat\n\na dog")
    adaptation = {
        "corpus": {"train": str(tmp_path / text), "sequence_length": 9999},
        "objective": {"kind": "masked_language_modeling"},
        "training": {"steps": 3} | training,
    }
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        finetune(recipe_of("classification", member, adaptation=adaptation))
    assert not (tmp_path / "run").exists()


def test_further_pretraining_is_compared_with_none(recipe_of, tmp_path):
    for name, seed in (("more", 3), ("held-out", 4)):
        texts = [row["text"] for row in ROWS["classification"](80, seed)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
    adaptation = {
        "corpus": {
            "train": str(tmp_path / "more.txt"),
            "validation": str(tmp_path / "held-out.txt"),
            "sequence_length": 32,
            "cache": str(tmp_path / "cache"),
        },
        "objective": {"kind": "masked_language_modeling"},
        "training": {"steps": 3, "tokens_per_step": 256, "measure_utilization": False},
    }
    recipe = recipe_of("classification", adaptation=adaptation)
    finetune(recipe)
    scores = scores_of(recipe)
    assert set(scores["before_adaptation"]) == {"mean", "standard_deviation"}
    assert "Effect of domain adaptation" in (recipe.folder / "report.md").read_text()
    before = load_file(recipe.folder / "before" / "seed-0" / "model" / "model.safetensors")
    after = load_file(recipe.folder / "model" / "model.safetensors")
    assert not all(torch.equal(before[name], after[name]) for name in before)


KILLED_WHILE_IT_CONCLUDES = """
import json, os, signal, sys
from tercet.data.files import atomic_writes
flush = atomic_writes.flush
def flush_or_die(path):
    if path.name == ".evaluation.json.partial" and path.parent.name == "run":
        os.kill(os.getpid(), signal.SIGKILL)
    flush(path)
atomic_writes.flush = flush_or_die
from tercet.configs.recipe import parse_recipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune
finetune(parse_recipe(FineTuningRecipe, json.loads(sys.argv[1])))
"""


def test_a_run_killed_while_it_concludes_goes_on(recipe_of, fork_server):
    recipe = recipe_of("classification", training={"epochs": 1})
    killed = fork_server.start(KILLED_WHILE_IT_CONCLUDES, json.dumps(recipe_data(recipe)))
    assert fork_server.wait(killed) == -signal.SIGKILL
    assert (recipe.folder / ".evaluation.json.partial").exists()
    with pytest.raises(ValueError, match=r"holds an earlier run .*--resume"):
        finetune(recipe)
    finetune(recipe, resume=True)
    assert not (recipe.folder / ".evaluation.json.partial").exists()
    finetune(recipe, overwrite=True)


def test_recipe_in_the_model_is_the_one_that_was_run(recipe_of):
    recipe = recipe_of("classification", training={"learning_rate": 1e-3})
    folder = run.finetune(recipe)
    assert yaml.safe_load((folder / "recipe.yaml").read_text()) == recipe_data(recipe)


def test_models_are_loaded_once_for_each_seed_and_learn_the_same(recipe_of, tmp_path, monkeypatch):
    """The first seed learns with the model that was prepared and scored, as if it was loaded for it alone."""
    loaded = []

    def load(start, task, seed):
        loaded.append(seed)
        return load_task_model(start, task, seed)

    for module in ("learning", "prepared"):
        monkeypatch.setattr(f"tercet.finetune.{module}.load_task_model", load)
    recipe = recipe_of("classification", training={"epochs": 1, "seeds": [3, 5], "learning_rate": 1e-3})
    finetune(recipe)
    assert loaded == [3, 5]
    inputs = find_inputs(recipe)
    prepared, (setting,) = prepare(inputs), inputs.settings
    for seed in recipe.training.seeds:
        learn_seed(setting, prepared.task, prepared.splits, tmp_path / f"alone-{seed}", seed, resume=False)
        folders = recipe.folder / f"seed-{seed}", tmp_path / f"alone-{seed}"
        together, alone = (load_file(folder / "model" / "model.safetensors") for folder in folders)
        assert all(torch.equal(weights, alone[name]) for name, weights in together.items())


def test_a_model_is_opened_once_for_all_seeds(recipe_of, bases, hub):
    """A report, which is made from the folder later, opens it by itself."""
    fetched = hub({"somebody/model": bases / "encoder"})
    training = {"epochs": 1, "seeds": [0, 1]}
    run.finetune(recipe_of("ranking", count=8, model={"path": "somebody/model"}, training=training))
    assert fetched == {"somebody/model": 1}
