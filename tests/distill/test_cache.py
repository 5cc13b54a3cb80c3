"""A cached teacher is the live one, as far as it was kept, and of no other teacher or text."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from tercet.configs.recipe import parse_recipe, recipe_data
from tercet.data.steps.examples import pick
from tercet.data.steps.objective import IGNORE
from tercet.data.steps.static_shapes import POSITIONS
from tercet.distill.cache import CachedTeacher, FixedCopies, binding_of, write_cache
from tercet.distill.general_recipe import CacheRecipe
from tercet.distill.general_step import GeneralStep, build_setup, source_of
from tercet.distill.model_outputs import RequiredOutputs
from tercet.distill.recipe import DistillationRecipe
from tercet.distill.steps import students_of
from tercet.distill.teacher import LiveTeacher
from tercet.pretraining.recipe import CorpusRecipe
from tercet.training.devices.precision import build_accelerator
from tercet.training.tracking import LOG, read_log

from ..reported import distill

CPU = torch.device("cpu")
FIXED = {"encoder": {"masking": "static"}, "decoder": {}, "seq2seq": {}}
QUICKLY = ["encoder", "decoder", pytest.param("seq2seq", marks=pytest.mark.slow)]
CONSTANT = {"schedule": {"kind": "constant", "warmup_steps": 0}}


def written(recipe, tmp_path, cache, temperatures=(2.0,)):
    """Write a cache; give the step, the live teacher and the cached one, and what both read."""
    step = GeneralStep.prepare(recipe.general)
    source = FixedCopies(step.text.source, cache.copies)
    live = LiveTeacher(step.model, RequiredOutputs(logits=True), CPU, "fp32")
    binding = binding_of(step.teacher, source, replace(step.recipe, cache=cache), "fp32")
    folder = tmp_path / "cache"
    folder.mkdir()
    write_cache(folder, live, step.base, source, binding, temperatures)
    return step, live, CachedTeacher(folder, binding, CPU), source


def batch_of(step, source, epoch, indices):
    batch = step.base.collate(pick(source.epoch(epoch), indices), 7)
    return batch | {"index": torch.from_numpy(indices + (epoch % source.number) * len(source.examples))}


def with_filling(batch, positions):
    """Add a sequence of five tokens that is no example, and two positions that have no target."""
    stream = "decoder_input_ids" if "decoder_input_ids" in batch else "input_ids"
    filled = batch | {
        stream: F.pad(batch[stream], (0, 5)),
        "index": F.pad(batch["index"], (0, 1), value=IGNORE),
        POSITIONS: F.pad(positions, (0, 2)),
    }
    return filled, filled[POSITIONS]


@pytest.mark.parametrize("member", FIXED)
def test_all_tokens_are_the_live_teacher(member, recipe_of, tmp_path):
    """Whatever batch an example is in, in every copy."""
    recipe = recipe_of(member, objective=FIXED[member])
    cache = CacheRecipe(top_k=None, copies=2, precision="fp32")
    step, live, cached, source = written(recipe, tmp_path, cache)
    rng = np.random.default_rng(0)
    for epoch in range(3):
        indices = rng.choice(len(source.examples), 9, replace=False)
        batch = batch_of(step, source, epoch, indices)
        positions = step.base.output_positions(batch).positions
        ours, theirs = cached.compute_outputs(batch, positions), live.compute_outputs(batch, positions)
        torch.testing.assert_close(ours.logits, theirs.logits.log_softmax(-1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.states, theirs.states, rtol=1e-4, atol=1e-4)
        assert ours.tokens is None
        filled = cached.compute_outputs(*with_filling(batch, positions))
        assert filled.logits is not None
        torch.testing.assert_close(filled.logits[: len(positions)], ours.logits)
        torch.testing.assert_close(filled.states[: ours.states.shape[0]], ours.states)
        assert [len(filled.logits), len(filled.states)] == [len(positions) + 2, len(ours.states) + 5]
    assert cached.missing == {"2.0": 0.0}


def test_copies_are_masked_otherwise_and_take_turns(recipe_of, tmp_path):
    recipe = recipe_of("encoder", objective=FIXED["encoder"])
    step = GeneralStep.prepare(recipe.general)
    source, indices = FixedCopies(step.text.source, 2), np.arange(6)
    ids = [batch_of(step, source, epoch, indices)["input_ids"] for epoch in range(4)]
    assert torch.equal(ids[0], ids[2])
    assert torch.equal(ids[1], ids[3])
    assert not torch.equal(ids[0], ids[1])
    one = source.epoch(1)
    assert [one[3]["index"], pick(one, np.array([3]))[0]["index"]] == [3 + len(one)] * 2


def test_the_likeliest_tokens_are_kept_and_the_rest_is_told(recipe_of, tmp_path):
    recipe = recipe_of("decoder")
    cache = CacheRecipe(top_k=5, precision="fp16")
    step, live, cached, source = written(recipe, tmp_path, cache, temperatures=(1.0, 4.0))
    total, count = np.zeros(2), 0
    for indices in np.array_split(np.arange(len(source.examples)), 4):
        batch = batch_of(step, source, 0, indices)
        positions = step.base.output_positions(batch).positions
        ours, theirs = cached.compute_outputs(batch, positions), live.compute_outputs(batch, positions)
        values, tokens = theirs.logits.log_softmax(-1).topk(5)
        torch.testing.assert_close(ours.logits, values, rtol=2e-3, atol=2e-3)
        assert (ours.tokens == tokens).float().mean() > 0.99
        for place, temperature in enumerate((1.0, 4.0)):
            assert theirs.logits is not None
            p = (theirs.logits / temperature).softmax(-1)
            total[place] += (1 - p.gather(1, tokens).sum(-1)).sum().item()
        count += len(positions)
    assert cached.missing is not None
    assert list(cached.missing.values()) == pytest.approx((total / count).tolist(), rel=1e-3)
    assert 0 < cached.missing["1.0"] < cached.missing["4.0"] < 1


@pytest.mark.parametrize("member", QUICKLY)
def test_a_student_of_a_cached_teacher_is_that_of_the_live_one(member, recipe_of):
    """With all tokens kept; and half precision or a few tokens make another one."""
    settings = {"training": CONSTANT | {"optimizer": {"epsilon": 1e-3}}, "objective": FIXED[member]}
    weights = {}
    for name, cache in (
        ("live", None),
        ("all", {"top_k": None, "precision": "fp32"}),
        ("few", {"top_k": 2}),
    ):
        recipe = recipe_of(member, name, **settings)
        if cache is not None:
            recipe = replace(recipe, general=replace(recipe.general, cache=parse_recipe(CacheRecipe, cache)))
        weights[name] = load_file(distill(recipe) / "model.safetensors")
    for name, tensor in weights["live"].items():
        torch.testing.assert_close(weights["all"][name], tensor, rtol=1e-3, atol=2e-4)
    assert not all(
        torch.allclose(weights["few"][name], tensor, rtol=1e-3, atol=1e-4)
        for name, tensor in weights["live"].items()
    )


@pytest.mark.parametrize("member", ["decoder", pytest.param("encoder", marks=pytest.mark.slow)])
def test_a_resumed_run_with_a_cache_equals_an_uninterrupted_one(member, recipe_of, tmp_path, monkeypatch):
    """Through both copies of the text, with dropout; the teacher reads once, before the interruption."""
    student = {"overrides": {"dropout": 0.1}}

    copies = 2 if member == "encoder" else 1

    def recipe(name, steps):
        tokens = 4096 if member == "seq2seq" else 1024
        training = CONSTANT | {"precision": "auto", "steps": steps, "tokens_per_step": tokens}
        made = recipe_of(member, name, training=training, student=student, objective=FIXED[member])
        return cached_recipe(made, tmp_path / "kept", copies=copies)

    distill(recipe("parts", 3))
    monkeypatch.setattr("tercet.distill.cache.write_cache", None)
    parts, whole = distill(recipe("parts", 6), resume=True), distill(recipe("whole", 6))
    log = read_log(recipe("whole", 6).folder / "student" / "general" / LOG)
    assert max(record["epoch"] for record in log if "epoch" in record) >= 1
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (parts, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def cached_recipe(recipe, folder, **changes):
    return replace(recipe, general=replace(recipe.general, cache=CacheRecipe(folder=str(folder), **changes)))


def test_a_cache_of_something_else_is_refused(recipe_of, tmp_path, teachers):
    settings = {"objective": FIXED["encoder"]}
    folder = tmp_path / "kept"
    recipe = cached_recipe(recipe_of("encoder", "first", **settings), folder)
    distill(recipe)
    before = (folder / "about.json").read_bytes()

    def refused(other, message):
        with pytest.raises(ValueError, match=message):
            distill(replace(other, output=str(tmp_path / "other")), overwrite=True)

    refused(cached_recipe(recipe, folder, top_k=3), r"another top_k \(64 instead of 3\)")
    refused(cached_recipe(recipe, folder, copies=2), r"another number of copies")
    seeded = replace(recipe.general, training=replace(recipe.general.training, seed=5))
    precise = replace(recipe.general, training=replace(recipe.general.training, precision="bf16"))
    refused(replace(recipe, general=precise), r"computed in another training\.precision")
    refused(replace(recipe, general=seeded), r"another training\.seed, which decides what is masked")
    shorter = replace(recipe.general, corpus=replace(recipe.general.corpus, sequence_length=32))
    refused(replace(recipe, general=shorter), "was written for other data")
    taught = tmp_path / "taught"
    taught.mkdir()
    for file in (teachers / "encoder").iterdir():
        (taught / file.name).write_bytes(file.read_bytes())
    weights = load_file(taught / "model.safetensors")
    save_file({name: tensor * 1.01 for name, tensor in weights.items()}, taught / "model.safetensors")
    refused(
        replace(recipe, general=replace(recipe.general, teacher=str(taught))), "written for another teacher"
    )
    assert (folder / "about.json").read_bytes() == before
    (folder / "values").write_bytes(b"0")
    refused(recipe, "values is damaged")
    (folder / "about.json").write_text("{")
    refused(recipe, "is not a teacher's cache")


@pytest.mark.parametrize(
    ("kind", "loss", "message"),
    [
        ("decoder", {"kind": "logit_mse"}, "compares logits, but a cache holds probabilities"),
        (
            "decoder",
            {"kind": "reverse_kl"},
            r"^general: cache: .* needs the probability of every token: cache\.top_k=null",
        ),
        ("decoder", {"kind": "relations"}, "compares what a cache does not hold"),
        ("decoder", {"kind": "hidden_states"}, "compares what a cache does not hold"),
    ],
)
def test_what_a_cache_cannot_give_is_refused(kind, loss, message, recipe_of):
    data = recipe_data(recipe_of(kind))
    data["general"]["cache"] = {"top_k": 8}
    data["general"]["losses"] = [loss]
    with pytest.raises(ValueError, match=message):
        distill(parse_recipe(DistillationRecipe, data))


def test_copies_without_masks_are_refused(recipe_of):
    with pytest.raises(ValueError, match=r"^general: cache\.copies is 2, but clm corrupts nothing"):
        distill(cached_recipe(recipe_of("decoder"), "kept", copies=2))


def test_the_control_without_a_teacher_reads_the_same_masks_and_no_cache(recipe_of, tmp_path):
    settings = {"objective": FIXED["encoder"], "report": {"without_teacher": True}}
    recipe = recipe_of("encoder", general={"cache": {"copies": 3, "folder": str(tmp_path / "c")}}, **settings)
    step, students = GeneralStep.prepare(recipe.general), students_of(recipe)
    assert [student.is_taught for student in students] == [True, False]
    sources = [source_of(step, step.recipe_for(student), CPU) for student in students]
    for epoch in range(4):
        ids = [
            step.base.collate(pick(source.epoch(epoch), np.arange(9)), 7)["input_ids"] for source in sources
        ]
        assert torch.equal(*ids)
    (tmp_path / "c").mkdir()
    general = step.recipe_for(students[1])
    accelerator = build_accelerator(general.training, tmp_path)
    step.require_learnable(students[1], tmp_path)
    _, objective = build_setup(step, recipe.student, general, sources[1], accelerator)
    assert isinstance(objective.teacher, LiveTeacher)
    assert not objective.teacher_losses
    assert not list((tmp_path / "c").iterdir())


def test_a_cache_lies_beside_the_tokenized_corpus_and_is_written_once(recipe_of, tmp_path, monkeypatch):
    recipe = recipe_of("decoder", "first")
    corpus: CorpusRecipe = replace(recipe.general.corpus, cache=str(tmp_path / "cache"))
    general = replace(recipe.general, corpus=corpus, cache=CacheRecipe(top_k=4))
    distill(replace(recipe, general=general))
    (folder,) = (tmp_path / "cache" / "teachers").iterdir()
    about = json.loads((folder / "about.json").read_text())
    assert about["kept"] == 4
    told = json.loads((recipe.folder / "scores.json").read_text())["general"]["cache"]
    assert told["missing"] == about["missing"]
    assert "probability" in (recipe.folder / "report.md").read_text()
    monkeypatch.setattr("tercet.distill.cache.write_cache", None)
    distill(replace(recipe, general=general, output=str(tmp_path / "second")))
