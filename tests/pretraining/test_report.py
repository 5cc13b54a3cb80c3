"""Reports of pretraining: intervals over documents, samples of held-out text, what is said at the start."""

import json
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tercet
from tercet.__main__ import main
from tercet.data.steps.batches import one_pass
from tercet.pretraining.prepared import find_inputs, prepare
from tercet.pretraining.run import start_lines
from tercet.reports.pretraining.comparison import TokenLosses
from tercet.reports.pretraining.document_scores import DOCUMENT, SEQUENCE, UnitScores, unit_scores
from tercet.reports.pretraining.report import add_intervals, losses_without_context, verdicts
from tercet.reports.pretraining.samples import samples
from tercet.training.devices.precision import build_accelerator, precision_of
from tercet.training.evaluation import evaluate, micro_batches
from tercet.training.tracking import waiting_for

from ..reported import pretrain, read_report, remove_report
from .conftest import changed

SCORED = [
    "causal_language_modeling",
    "masked_language_modeling",
    "masked_next_token_prediction",
    "hybrid_language_modeling",
    "translation",
    "span_corruption",
    "prefix_language_modeling",
    "denoising",
]
"""Objectives that predict the tokens of documents."""


@pytest.fixture
def prepared(texts, tmp_path, recipe_of):
    """Give the function that prepares a run of two steps, with an accelerator in fp32."""

    def prepared(kind: str):
        recipe = recipe_of(kind, texts, tmp_path / "run", precision="fp32", tokens_per_micro_batch=128)
        accelerator = build_accelerator(recipe.training, tmp_path)
        return recipe, prepare(find_inputs(recipe), accelerator, None), accelerator

    return prepared


@pytest.mark.parametrize("kind", SCORED)
def test_scores_of_documents_add_up_to_those_of_the_evaluation(kind, prepared):
    _, parts, accelerator = prepared(kind)
    steps = parts.data.held_out_steps
    batches = micro_batches(one_pass(steps), accelerator.device)
    scores = evaluate(parts.model, parts.objective.at(1.0), batches, accelerator)
    found = unit_scores(parts.model.eval(), steps, accelerator.device, precision_of(accelerator))
    assert set(found) == set(parts.objective.weights)
    levels = losses_without_context(parts.objective, steps, accelerator.device)
    for term, own in found.items():
        targets = own.targets.sum()
        assert (own.unit, targets) == (DOCUMENT, scores[f"{term}/targets"])
        assert own.loss.sum() / targets == pytest.approx(scores[f"{term}/loss"], rel=1e-5)
        assert own.hits.sum() / targets == pytest.approx(scores[f"{term}/accuracy"])
        assert own.no_context.sum() / targets == pytest.approx(
            levels.get(term, own.no_context.sum() / targets)
        )
        low, high = own.intervals(term)[f"{term}/loss/interval"]
        assert low < scores[f"{term}/loss"] < high


@pytest.mark.parametrize(
    "kind",
    [
        "masked_language_modeling_with_next_sentence",
        "character_language_modeling",
        "replaced_token_detection",
    ],
)
def test_what_is_not_cut_into_documents_has_no_intervals(kind, prepared):
    _, parts, accelerator = prepared(kind)
    assert (
        unit_scores(
            parts.model.eval(), parts.data.held_out_steps, accelerator.device, precision_of(accelerator)
        )
        == {}
    )


@pytest.mark.parametrize(("sequence_length", "is_enough"), [(8, True), (16, False)])
def test_few_documents_are_drawn_by_their_sequences(sequence_length, is_enough, tmp_path, recipe_of, texts):
    """And not at all if these are few, too: of one, each interval would have no width."""
    lines = (texts / "validation.txt").read_text().split("\n\n")[:3]
    (tmp_path / "three.txt").write_text("\n\n".join(lines))
    recipe = changed(
        recipe_of("causal_language_modeling", texts, tmp_path / "run"),
        validation=str(tmp_path / "three.txt"),
        sequence_length=sequence_length,
    )
    accelerator = build_accelerator(recipe.training, tmp_path)
    parts = prepare(find_inputs(recipe), accelerator, None)
    own = unit_scores(
        parts.model.eval(), parts.data.held_out_steps, accelerator.device, precision_of(accelerator)
    )["clm"]
    assert (own.unit, len(own.targets)) == (SEQUENCE, len(parts.data.held_out.source.epoch(0)))
    summary = {"scores": {"clm/loss": 5.0}, "without_context": {"clm": 5.01}, "trigram": {}}
    add_intervals(summary, {"clm": own}, {})
    known = [{*summary["differences"]}, {*summary["drawn"]}, {*summary["scores"]} - {"clm/loss"}]
    assert list(map(bool, known)) == [is_enough] * 3
    if not is_enough:
        assert [each.outcome for each in verdicts(summary, [])] == ["unclear"]


@pytest.mark.parametrize("isolate_documents", [True, False])
def test_a_trigram_is_compared_on_the_same_tokens(isolate_documents, tmp_path, recipe_of, texts):
    """Its losses on the sequences that begin in a document are added up, as the model's are."""
    recipe = changed(
        recipe_of("causal_language_modeling", texts, tmp_path / "run"),
        sequence_length=48,
        isolate_documents=isolate_documents,
    )
    accelerator = build_accelerator(recipe.training, tmp_path)
    parts = prepare(find_inputs(recipe), accelerator, None)
    own = unit_scores(
        parts.model.eval(), parts.data.held_out_steps, accelerator.device, precision_of(accelerator)
    )["clm"]
    examples = parts.data.held_out.source.epoch(0)
    assert own.unit == DOCUMENT
    assert np.diff(own.bounds).tolist() == own.targets.tolist()
    nats = np.random.default_rng(0).random(int(own.targets.sum()))
    documents = np.searchsorted(examples.document_starts, examples.starts, side="right") - 1
    sums = np.bincount(documents, np.add.reduceat(nats, examples.starts), minlength=len(own.loss))
    summary = {"scores": {}}
    add_intervals(summary, {"clm": replace(own, loss=sums)}, {"clm": TokenLosses(nats)})
    assert summary["differences"]["clm"]["trigram"] == pytest.approx((0, 0), abs=1e-12)


def test_models_are_compared_on_the_same_documents():
    """So a difference is sure that is the same in all documents, however much these differ."""
    rng = np.random.default_rng(0)
    targets = rng.integers(50, 500, size=40).astype(float)
    loss = targets * rng.uniform(2, 6, size=40)
    own = UnitScores(loss, targets / 4, targets, loss + targets, DOCUMENT)
    assert own.above(loss, targets) == (0, 0)
    assert own.above_no_context() == pytest.approx((-1, -1))
    assert own.above(loss - 0.01 * targets, targets) == pytest.approx((0.01, 0.01))
    low, high = own.intervals("clm")["clm/loss/interval"]
    assert high - low > 0.2
    spread = own.intervals("clm")["clm/perplexity/interval"]
    assert spread == pytest.approx((math.exp(low), math.exp(high)))


def test_a_small_difference_counts_if_its_interval_says_so():
    summary = {
        "scores": {"clm/loss": 4.18, "clm/loss/interval": [4.0, 4.3]},
        "without_context": {"clm": 6.5},
        "trigram": {"clm": 4.17},
        "differences": {"clm": {"no context": [-2.4, -2.2], "trigram": [0.004, 0.016]}},
    }
    context, counting = verdicts(summary, [])
    assert (context.outcome, counting.outcome) == ("better", "worse")
    assert "4.180 [4.000, 4.300] against 4.170; difference [+0.004, +0.016]" in counting.text


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("causal_language_modeling", ["prompt", "original", "written"]),
        ("hybrid_language_modeling", ["prompt", "original", "written"]),
        ("masked_language_modeling", ["text"]),
        ("translation", ["source", "target", "written"]),
        ("span_corruption", ["source", "target", "written"]),
    ],
)
def test_samples_are_of_held_out_text_and_always_the_same(kind, labels, prepared, texts):
    _, parts, _ = prepared(kind)
    found = [samples(parts.model.eval(), parts.tokenizer, parts.data.held_out_steps) for _ in range(2)]
    assert found[0] == found[1]
    held_out = "".join((texts / "validation.txt").read_text().split())
    for sample in found[0].examples:
        assert [line.label for line in sample.lines] == labels
        if labels == ["text"]:
            (truth,) = [run.text for run in sample.lines[0].runs if run.role == "truth"]
            assert truth in parts.tokenizer.get_vocab()
            assert len(sample.bars) == 3
        read = "".join(
            run.text for line in sample.lines[: len(labels) - 1] or sample.lines for run in line.runs
        )
        if kind != "translation" and "<extra_id" not in read:
            assert "".join(read.split()) in held_out
    assert found[0].examples


def test_what_a_run_waits_for_is_said_if_it_takes_long(capfd, monkeypatch):
    monkeypatch.setattr("tercet.training.tracking.PATIENCE", 0.05)
    with waiting_for("nothing"):
        pass
    with waiting_for("a nap"):
        time.sleep(0.5)
    assert capfd.readouterr().err == "waiting for a nap\n"


def test_the_start_tells_parameters_epochs_and_device(prepared):
    recipe, parts, accelerator = prepared("causal_language_modeling")
    lines = start_lines(find_inputs(recipe), parts, accelerator)
    assert [*lines] == ["model", "text", "steps", "device", "time"]
    assert f"{parts.model.num_parameters():,} parameters" in lines["model"]
    assert f"vocabulary of {len(parts.tokenizer):,}" in lines["model"]
    steps = parts.data.stages[0].steps
    assert lines["steps"].endswith(f": {2 / len(steps.plan(0)[1]):.2g} epochs")
    assert f"{int(steps.plan(0)[0].lengths.sum()):,} tokens" in lines["text"]
    assert lines["device"].endswith((", fp32 (as chosen)", ", fp32 (bf16 is not faster here)"))


def test_the_start_tells_of_windows_of_a_large_text(prepared, monkeypatch):
    for name, number in (("MOST_PLANNED", 42), ("BLOCK", 10), ("BLOCKS_OF_WINDOW", 3)):
        monkeypatch.setattr(f"tercet.pretraining.text.{name}", number)
    recipe, parts, accelerator = prepared("causal_language_modeling")
    lines = start_lines(find_inputs(recipe), parts, accelerator)
    assert lines["text"].endswith(" (the first of 2 windows)")
    assert lines["steps"].endswith(" windows")


def test_reports_are_made_again_from_the_folder(recipe_of, ragged_texts, tmp_path):
    texts = Path(shutil.copytree(ragged_texts, tmp_path / "texts"))
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run", steps=3, evaluate_every=1)
    pretrain(recipe)
    made, evaluation = read_report(recipe.folder), recipe.folder / "evaluation.json"
    assert "trigram" in made["report.md"].decode()
    facts = evaluation.read_bytes()
    remove_report(recipe.folder)
    assert tercet.report(recipe.folder).folder == recipe.folder
    assert read_report(recipe.folder) == made
    assert evaluation.read_bytes() == facts
    with (texts / "validation.txt").open("a") as file:
        file.write("\n\nThe cat saw the dog.")
    with pytest.raises(ValueError, match="is not what the run began with"):
        tercet.report(recipe.folder)


def test_a_run_whose_report_fails_has_its_model(recipe_of, texts, tmp_path, monkeypatch, capsys):
    recipe = recipe_of("masked_language_modeling", texts, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("tercet.reports.pretraining.report.build_report", lambda *arguments: 1 / 0)
        with pytest.raises(RuntimeError, match=rf"make it with tercet report {recipe.folder}"):
            tercet.pretrain(recipe)
    assert (recipe.folder / "model" / "model.safetensors").exists()
    assert main(["report", str(recipe.folder)]) == 0
    assert "hidden tokens" in capsys.readouterr().err


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_run_with_an_uncased_tokenizer_says_that_its_bits_per_byte_are_too_low(
    lowercase, recipe_of, texts, tmp_path
):
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    pretrain(changed(recipe, "tokenizer", kind="wordpiece", lowercase=lowercase))
    found = json.loads((recipe.folder / "scores.json").read_text())
    page = (recipe.folder / "report.md").read_text()
    assert any("bits per byte are too low" in line for line in found["told"]) == lowercase
    assert ("bits per byte are too low" in page) == lowercase
