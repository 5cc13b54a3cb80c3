"""Whole pretraining runs on a page of text: from a recipe to models that the Auto classes load."""

import hashlib
import json
import os
import re
import signal
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from tercet.__main__ import main
from tercet.configs.recipe import load_recipe, recipe_data
from tercet.data import streaming
from tercet.data.streaming import TokenizedStream
from tercet.pretraining import run
from tercet.pretraining.objectives.masked_language_modeling import MaskedLanguageModeling
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import train_recipe_tokenizer
from tercet.reports.finished_run import find_run
from tercet.tools.push.publication import prepare
from tercet.training.checkpoints.checkpoint import CHECKPOINTS, latest, read_state
from tercet.training.tracking import LOG, read_log

from ..reported import pretrain
from ..saved_weights import require_same_models, weights_in
from .conftest import changed

KINDS = [
    "masked_language_modeling",
    "masked_language_modeling_with_next_sentence",
    "masked_language_modeling_with_sentence_order",
    "causal_language_modeling",
    "masked_next_token_prediction",
    "hybrid_language_modeling",
    "fill_in_the_middle",
    "character_language_modeling",
    "translation",
    "span_corruption",
    "prefix_language_modeling",
    "mixture_of_denoisers",
    "denoising",
]

OF_SEVERAL_PARTS = {
    "masked_language_modeling_with_next_sentence",
    "character_language_modeling",
    "hybrid_language_modeling",
    "translation",
}
"""Those whose runs are compared by their micro-batches, as the losses of all are in tests of objectives."""

CONSTANT = {"schedule": {"kind": "constant", "warmup_steps": 0}}
STREAM = {"streaming": True}

WITH_BYTES = {
    "causal_language_modeling",
    "hybrid_language_modeling",
    "fill_in_the_middle",
    "character_language_modeling",
    "translation",
}
"""Those whose targets are whole texts."""


def test_a_stage_may_have_shorter_sequences_and_not_longer_ones(texts, tmp_path, recipe_of):
    stage = {"steps": 3, "tokens_per_step": 128, "sequence_length": 16}
    recipe = recipe_of("span_corruption", texts, tmp_path / "run", stages=[stage], steps=5, log_every=1)
    run.pretrain(recipe)
    records = [record for record in read_log(tmp_path / "run" / LOG) if "epoch" in record]
    assert [record["epoch"] for record in records] == [0, 0, 0, 1, 1]
    examples = np.diff([0, *(record["examples"] for record in records)])
    tokens = np.diff([0, *(record["tokens"] for record in records)])
    assert (tokens / examples)[:3].max() < (tokens / examples)[3:].min()
    longer = [stage | {"sequence_length": 65}]
    with pytest.raises(ValueError, match=r"sequence_length = 65 exceeds corpus.sequence_length = 64: lower"):
        recipe_of("denoising", texts, tmp_path / "longer", stages=longer, steps=5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_objective_gives_a_model_that_loads_whatever_the_micro_batches(
    kind, texts, tmp_path, recipe_of
):
    """Several small ones are one large one: targets are ragged, here of two terms, there smoothed."""
    # A large epsilon, since Adam makes a full step of the sign of any gradient, rounding errors included.
    settings = {"precision": "fp32", "optimizer": {"epsilon": 1e-3}} | CONSTANT
    recipe = recipe_of(kind, texts, tmp_path / "run", **settings)
    folder = pretrain(recipe)
    if kind in OF_SEVERAL_PARTS:
        parts = pretrain(recipe_of(kind, texts, tmp_path / "parts", **settings, tokens_per_micro_batch=140))
        ours, theirs = weights_in(parts), weights_in(folder)
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6)
    model, tokenizer = AutoModelForPreTraining.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.pad_token_id == tokenizer.pad_token_id != tokenizer.eos_token_id
    assert load_recipe(PretrainingRecipe, folder / "recipe.yaml") == recipe
    scores = json.loads((tmp_path / "run" / "evaluation.json").read_text())["scores"]
    assert 0 < scores["loss"] < 10
    assert any("bits_per_byte" in name for name in scores) == (kind in WITH_BYTES)
    assert ("translation/bleu" in scores) == (kind == "translation")


def test_a_finished_run_leaves_what_its_model_card_tells(texts, tmp_path, recipe_of, capsys):
    folder = tmp_path / "run"
    pretrain(recipe_of("causal_language_modeling", texts, folder, measure_utilization=True, log_every=1))
    run = find_run(folder)
    hashes = [hashlib.sha256((texts / f"{split}.txt").read_bytes()).hexdigest() for split in run.texts]
    assert list(run.texts) == ["train", "validation"]
    assert [parts[0]["sha256"] for parts in run.texts.values()] == hashes
    assert run.evaluation["trained_on"]["torch"] == torch.__version__
    assert f"attention: {run.evaluation['trained_on']['attention']}\n" in capsys.readouterr().err
    assert run.evaluation["trained_on"]["attention"].startswith("grouped, ")
    assert run.flops
    assert [plot.name for plot in run.plots] == ["curves.png"]
    assert {line.partition(":")[0] for line in prepare(folder, "me/small").missing} == {"license", "language"}


def test_pretrained_encoder_fills_masks(texts, tmp_path, recipe_of):
    """The head of `ForPreTraining` is the one that `AutoModelForMaskedLM` loads."""
    folder = run.pretrain(recipe_of("masked_language_modeling_with_next_sentence", texts, tmp_path / "run"))
    model, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"]
    inputs = AutoTokenizer.from_pretrained(folder)("the [MASK] sat", return_tensors="pt")
    assert model(**inputs).logits.shape[:2] == inputs["input_ids"].shape


@pytest.mark.parametrize(
    ("kind", "corpus"),
    [
        *((kind, {}) for kind in ("replaced_token_detection", "character_language_modeling")),
        *(
            pytest.param(kind, {}, marks=pytest.mark.slow)
            for kind in ("masked_language_modeling", "sentence_denoising", "bidirectional_language_modeling")
        ),
        *(
            pytest.param("character_language_modeling", corpus, marks=pytest.mark.slow)
            for corpus in ({"isolate_documents": False}, STREAM)
        ),
    ],
)
def test_resumed_run_equals_an_uninterrupted_one(kind, corpus, recipe_on):
    """With dropout; of models that learn together, each does."""

    def run(name, steps, **options):
        recipe, _ = recipe_on(kind, name, dropout=0.1, steps=steps, **CONSTANT)
        return pretrain(changed(recipe, **corpus), **options).parent

    run("parts", 2)
    parts, whole = run("parts", 4, resume=True), run("whole", 4)
    models = [file.parent.name for file in whole.glob("*/model.safetensors")]
    assert len(models) == (2 if kind == "replaced_token_detection" else 1)
    for name in models:
        require_same_models(parts / name, whole / name)


def test_tokenizer_trained_beforehand_is_used(texts, tmp_path, recipe_of):
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    folder = train_recipe_tokenizer(recipe)
    earlier = (folder / "tokenizer.json").stat().st_mtime_ns
    run.pretrain(recipe)
    assert (folder / "tokenizer.json").stat().st_mtime_ns == earlier


@pytest.mark.parametrize(
    ("accident", "code", "message"),
    [
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            1,
            r"a data worker died \(SIGKILL\) while it prepared",
        ),
        (lambda: [][0], 1, "cannot be prepared: IndexError: list index out of range"),
    ],
    ids=["killed", "mistaken"],
)
def test_failing_worker_ends_the_run_with_one_line(
    accident, code, message, texts, tmp_path, monkeypatch, capfd, recipe_of
):
    collate = MaskedLanguageModeling.collate

    def fail_late(self, examples, seed):
        if get_worker_info() is not None and (tmp_path / "run" / "checkpoints").exists():
            accident()
        return collate(self, examples, seed)

    monkeypatch.setattr(MaskedLanguageModeling, "collate", fail_late)
    recipe = recipe_of(
        "masked_language_modeling", texts, tmp_path / "run", steps=200, num_workers=2, checkpoint_every=1
    )
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe_data(recipe)))
    assert main(["pretrain", str(tmp_path / "recipe.yaml")]) == code
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, line)
    assert re.search(r"step \d+ of epoch \d+ \(examples \d+", line)


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_streamed_text_is_resumed_in_the_middle_of_a_window_and_in_a_later_one(
    num_workers, texts, tmp_path, monkeypatch, recipe_of
):
    """A window of 40 of the 60 documents goes on across the stream's end, and has five or six steps."""
    monkeypatch.setattr(streaming, "TokenizedStream", partial(TokenizedStream, window_documents=40))
    settings = CONSTANT | {"num_workers": num_workers}

    def train(name, **more):
        recipe = recipe_of("masked_language_modeling", texts, tmp_path / name, **settings, **more)
        return pretrain(changed(recipe, **STREAM), resume=True)

    for steps in (3, 8, 14):
        parts = train("parts", steps=steps)
    whole = train("whole", steps=14)
    states = [read_state(newest_checkpoint(tmp_path / name)) for name in ("parts", "whole")]
    assert states[0]["progress"]["epoch"] >= 2
    assert states[0]["progress"]["checksum"] == states[1]["progress"]["checksum"]
    require_same_models(parts, whole)


def newest_checkpoint(folder):
    newest = latest(folder / CHECKPOINTS)
    assert newest is not None
    return newest


def test_a_run_that_met_a_bad_record_goes_on_without_it(texts, tmp_path, monkeypatch, recipe_of):
    """A stream finds it late, in the middle of the run."""
    monkeypatch.setattr(
        "tercet.data.streaming.TokenizedStream", partial(TokenizedStream, window_documents=40)
    )
    train = tmp_path / "train.txt"
    train.write_bytes((texts / "train.txt").read_bytes())
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run", **CONSTANT)
    recipe = changed(recipe, train=str(train), **STREAM)
    run.pretrain(recipe)
    with train.open("ab") as file:
        file.write(b"\n\n\xe9\n")
    longer = changed(recipe, "training", steps=30)
    with pytest.raises(ValueError, match="byte 0xe9 is not UTF-8"):
        run.pretrain(longer, resume=True)
    with pytest.warns(UserWarning, match="skipped 1 of 61 records"):
        run.pretrain(changed(longer, skip_bad_records=True), resume=True)


def test_a_resumed_run_says_that_its_text_is_another_one(texts, tmp_path, capfd, recipe_of):
    train = tmp_path / "train.txt"
    train.write_bytes((texts / "train.txt").read_bytes())
    recipe = changed(recipe_of("causal_language_modeling", texts, tmp_path / "run"), train=str(train))
    run.pretrain(recipe)
    with train.open("a") as file:
        file.write("\n\nthe cat sat under a big tree.")
    run.pretrain(changed(recipe, "training", steps=4), resume=True)
    (told,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("  text: ")]
    assert re.fullmatch(
        r"  text: 61 examples of [\d,]+ tokens, was 60 examples of [\d,]+ tokens \(the place .*\)", told
    )
