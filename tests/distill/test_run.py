"""Whole distillations on a page of text: from a recipe to a smaller model, its report and its controls."""

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, AutoTokenizer

from tercet.__main__ import main
from tercet.configs.recipe import load_recipe, parse_recipe, recipe_data
from tercet.distill import run
from tercet.distill.recipe import DistillationRecipe
from tercet.distill.student import build_student
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.reports.distill.comparison import Kept
from tercet.reports.finished_run import find_run
from tercet.tools.push.publication import prepare
from tercet.training.tracking import LOG, read_log

from ..reported import distill

CONSTANT = {"schedule": {"kind": "constant", "warmup_steps": 0}}


def test_teacher_and_student_are_opened_once(recipe_of, teachers, hub):
    """Also where several runs learn with the same student."""
    fetched = hub(dict.fromkeys(["somebody/teacher", "somebody/student"], teachers / "encoder"))
    recipe = recipe_of("encoder", student={"path": "somebody/student"}, report={"without_teacher": True})
    run.distill(replace(recipe, general=replace(recipe.general, teacher="somebody/teacher")))
    assert fetched == {"somebody/teacher": 1, "somebody/student": 1}


@pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])
def test_every_member_is_distilled_to_an_ordinary_model(member, recipe_of, tmp_path):
    recipe = recipe_of(member)
    folder = distill(recipe)
    model, tokenizer = AutoModelForPreTraining.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    teacher = Checkpoint.open(recipe.general.teacher)
    assert model.config.num_hidden_layers == 2 == teacher.config.num_hidden_layers // 2
    assert len(tokenizer) == len(teacher.tokenizer)
    assert load_recipe(DistillationRecipe, folder / "recipe.yaml") == recipe
    records = [record for record in read_log(recipe.folder / "student" / "general" / LOG) if "loss" in record]
    term = "translation" if member == "seq2seq" else "mlm" if member == "encoder" else "clm"
    for record in records:
        parts = 5 * record["soft_targets/loss"] + 2 * record[f"{term}/loss"] + record["cosine/loss"]
        assert record["loss"] == pytest.approx(parts, rel=1e-4)
    told = json.loads((recipe.folder / "evaluation.json").read_text())["scores"]
    assert told[f"{term}/loss"] > 0
    assert ("translation/bleu" in told) == (member == "seq2seq")
    compared = json.loads((recipe.folder / "scores.json").read_text())["general"]["scores"]
    assert all(("bleu" in scores) == (member == "seq2seq") for scores in compared.values())
    if member == "seq2seq":
        assert compared["student"]["bleu"]["score"] == pytest.approx(told["translation/bleu"])
    assert "soft_targets/loss" not in told


def test_the_student_begins_with_the_teachers_layers(recipe_of):
    tiny = {"optimizer": {"learning_rate": 1e-12}, "steps": 1}
    recipe = recipe_of("encoder", training=tiny)
    after = load_file(distill(recipe) / "model.safetensors")
    teacher = Checkpoint.open(recipe.general.teacher).ours()
    first = build_student(recipe.student, teacher, recipe.general.objective.model_class, seed=0)
    for name, tensor in first.state_dict().items():
        if name in after:
            torch.testing.assert_close(after[name], tensor)


def test_a_resumed_run_equals_an_uninterrupted_one(recipe_of):
    settings = CONSTANT | {"precision": "auto"}
    student = {"overrides": {"dropout": 0.1}}
    distill(recipe_of("encoder", "parts", training=settings, student=student))
    longer = {"training": settings | {"steps": 4}, "student": student}
    parts = distill(recipe_of("encoder", "parts", **longer), resume=True)
    whole = distill(recipe_of("encoder", "whole", **longer))
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (parts, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_stage_has_shorter_sequences(recipe_of):
    stage = {"steps": 2, "sequence_length": 16}
    recipe = recipe_of("encoder", training={"stages": [stage], "steps": 3})
    distill(recipe)
    log = read_log(recipe.folder / "student" / "general" / LOG)
    assert [record["epoch"] for record in log if "epoch" in record] == [0, 0, 1]


def test_micro_batches_change_nothing_of_what_is_learned(recipe_of):
    settings = CONSTANT | {"optimizer": {"epsilon": 1e-3}}
    losses = [
        {"kind": "soft_targets"},
        {"kind": "hidden_states"},
        {"kind": "attention_maps"},
        {"kind": "relations"},
    ]
    student = {"overrides": {"hidden_size": 16, "head_dim": 4}, "initialization": "random"}
    base = recipe_of("decoder", "whole", training=settings, student=student)
    general = replace(base.general, losses=load_losses(base, losses))
    whole = distill(replace(base, general=general))
    training = replace(general.training, tokens_per_micro_batch=140)
    parts = replace(base, general=replace(general, training=training), output=f"{base.output}-parts")
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (distill(parts), whole))
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)


def load_losses(recipe, losses):
    data = recipe_data(recipe)
    data["general"]["losses"] = losses
    return parse_recipe(DistillationRecipe, data).general.losses


def test_the_report_compares_with_controls_and_with_the_published_student(recipe_of):
    data = recipe_data(recipe_of("encoder", report={"without_teacher": True, "random": True}))
    data["general"]["corpus"]["sequence_length"] = 16  # so that there are enough sequences for an interval
    folder = distill(parse_recipe(DistillationRecipe, data)).parent
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["students"] == ["student", "without-teacher", "random"]
    kept = scores["general"]["scores"]["student"]["perplexity"]
    low, high = kept["interval"]
    assert low <= kept["share"] <= high
    sizes = scores["sizes"]
    assert sizes["student"]["inner_parameters"] * 2 == sizes["teacher"]["inner_parameters"]
    assert sizes["student"]["disk"] < sizes["teacher"]["disk"]
    page = (folder / "report.md").read_text()
    for words in (
        "without a teacher",
        "from random weights",
        "DistilBERT over BERT-base",
        "96.9%",
        "39% less",
    ):
        assert words in page
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (folder / "comparison.png").exists()
    weights = [
        load_file(folder / name / "general" / "model" / "model.safetensors") for name in scores["students"]
    ]
    assert not any(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    log = read_log(folder / "without-teacher" / "general" / LOG)
    assert not any("soft_targets/loss" in record for record in log)


def test_a_finished_run_leaves_what_its_model_card_tells(recipe_of, monkeypatch):
    known = {name: Kept(0.5, 0.97, (0.9, 1.0)) for name in ("accuracy", "perplexity")}
    # The teacher is untrained: it may have no accuracy of which a share could be kept.
    monkeypatch.setattr("tercet.reports.distill.summary.keep_of_examples", lambda own, teachers: known)
    recipe = recipe_of("decoder", training={"measure_utilization": True})
    folder = distill(recipe).parent
    run = find_run(folder)
    assert run.teacher
    assert run.evaluation["scores"]["distillation/fewer_parameters"] > 0
    assert run.evaluation["scores"]["distillation/retained"] == 0.97
    files = {file.path: file.source for file in prepare(folder, "me/small").files}
    card = files["README.md"].decode()
    assert "distilled from decoder" in card
    assert "share of the teacher's score" in card
    assert "tercet distill recipe.yaml" in card
    assert list(run.texts) == ["train", "validation"]


def test_a_finished_run_is_not_repeated(recipe_of):
    recipe = recipe_of("encoder")
    folder = distill(recipe)
    before = (recipe.folder / "student" / "general" / LOG).read_text()
    distill(recipe, resume=True)
    assert (recipe.folder / "student" / "general" / LOG).read_text() == before
    with pytest.raises(ValueError, match="holds an earlier run"):
        distill(recipe)
    other = replace(recipe, student=replace(recipe.student, layers="last"))
    with pytest.raises(ValueError, match="student of the recipe differs from"):
        distill(other, resume=True)
    distill(other, overwrite=True)
    assert folder.exists()


def test_neither_step_is_refused(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("output: x\n")
    assert main(["distill", str(tmp_path / "recipe.yaml")]) == 2
    assert re.search("neither general nor task", capsys.readouterr().err)


def test_what_needs_no_text_is_refused_before_any_is_read(recipe_of, monkeypatch):
    monkeypatch.setattr("tercet.pretraining.prepared.open_texts", None)
    with pytest.raises(ValueError, match=r"general\.training: schedule\.warmup_steps = 3 exceeds steps"):
        distill(recipe_of("encoder", training={"schedule": {"warmup_steps": 3}}))
