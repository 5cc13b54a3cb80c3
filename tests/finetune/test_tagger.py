"""A tagger is built on pretrained word vectors, learns a task, and is a model like others from then on."""

import itertools
import json
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch.testing import assert_close

from tercet.data.steps.examples import pick
from tercet.finetune import run
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.evaluation import evaluate_rows
from tercet.finetune.inputs import find_inputs
from tercet.finetune.model import freeze
from tercet.finetune.output import seed_folder
from tercet.finetune.prediction import Predictor, predict_file
from tercet.finetune.prepared import prepare
from tercet.modeling import TercetTaggerForTokenClassification
from tercet.modeling.recurrent import tagger as word_features
from tercet.modeling.recurrent.word_tokenizer import word_tokenizer
from tercet.modeling.recurrent.words import read_words
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.training.tracking import LOG, read_log

from ..reported import finetune
from ..small_taggers import save_sources
from .conftest import ROWS, recipe_in, write_rows

SMALL = {"hidden_size": 32, "dropout": 0.0, "word_dropout": 0.0}
DROPOUT = {"dropout": 0.3, "word_dropout": 0.1}
RATE = {"learning_rate": 1e-2, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    return save_sources(tmp_path_factory.mktemp("sources"))


def tagger_in(folder: Path, bases: Path, sources: Path, *names, kind="tagging", overrides=None, **parts):
    """Make a recipe of a tagger on the word vectors of some models."""
    first, *others = (str(sources / name) for name in names)
    model = {"path": first, "tagger": {"beside": others}, "overrides": SMALL | (overrides or {})}
    return recipe_in(folder, bases, kind, model=model, **parts)


@pytest.fixture
def tagger_recipe(bases, sources, tmp_path):
    return partial(tagger_in, tmp_path, bases, sources)


@pytest.mark.parametrize("names", [("characters", "static"), ("elmo", "static")], ids="-".join)
def test_sixteen_rows_are_learned_by_heart(names, tagger_recipe):
    prepared = prepare(find_inputs(tagger_recipe(*names)))
    task, train, model = prepared.task, prepared.splits["train"], prepared.pretrained.model.train()
    objective = task.objective_for(model)
    batch = objective.collate(pick(train.examples, np.arange(16)), 0)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        (sum(objective.losses(model, batch).values()) / objective.targets(batch)["tag"]).backward()
        optimizer.step()
    scores = evaluate_rows(model.eval(), task, train.rows, train.examples).scores
    assert scores["span_f1"] > 0.95
    assert scores["loss"] < 0.1


def test_a_run_computes_word_vectors_once_for_all_epochs_and_seeds(tagger_recipe, monkeypatch):
    sentences = []
    compute = word_features.WordFeatures.compute
    monkeypatch.setattr(
        word_features.WordFeatures,
        "compute",
        lambda self, given: sentences.extend(map(tuple, given)) or compute(self, given),
    )
    word_features.KEPT.clear()
    recipe = tagger_recipe("characters", training={"seeds": [0, 1]} | RATE)
    run.finetune(recipe)
    learned = [tuple(row["tokens"]) for row in (*ROWS["tagging"](16, 0), *ROWS["tagging"](8, 1))]
    assert sorted(set(sentences)) == sorted(set(learned))
    assert len(sentences) == len(set(sentences))


def test_a_finished_tagger_predicts_what_its_scores_say(tagger_recipe, tmp_path):
    recipe = tagger_recipe("characters", "static", count=60, training={"epochs": 20} | RATE)
    folder = finetune(recipe)
    scores = json.loads((recipe.folder / "scores.json").read_text())
    rows = ROWS["tagging"](30, 1)
    unlabelled = write_rows(tmp_path / "new.jsonl", [{"tokens": row["tokens"]} for row in rows])
    assert predict_file(str(folder), str(unlabelled), str(tmp_path / "out.jsonl")) == 30
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    kept = [json.loads(line) for line in (recipe.folder / "predictions.jsonl").read_text().splitlines()]
    assert found == kept
    assert scores["mean"]["validation"]["span_f1"] > 0.8


@pytest.fixture(scope="module")
def two_seeds(bases, sources, tmp_path_factory):
    """A finished run of two seeds on vectors of models that drop states while they learn themselves."""
    word_features.KEPT.clear()
    names, training = ("elmo", "characters"), {"seeds": [0, 1]} | RATE
    folder = tmp_path_factory.mktemp("two-seeds")
    recipe = tagger_in(folder, bases, sources, *names, overrides=DROPOUT, training=training)
    finetune(recipe)
    return recipe


def learned(folder: Path, seed: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """What a seed's run has come to: its model, and the losses on the way."""
    own = seed_folder(folder, seed)
    losses = [record["loss"] for record in read_log(own / LOG) if "loss" in record]
    return load_file(own / "model" / "model.safetensors"), losses


def test_scores_are_those_of_the_saved_tagger(two_seeds):
    word_features.KEPT.clear()
    prepared = prepare(find_inputs(two_seeds))
    for seed in (0, 1):
        folder = seed_folder(two_seeds.folder, seed)
        told = json.loads((folder / "scores.json").read_text())["validation"]
        split = prepared.splits["validation"]
        tagger = TercetTaggerForTokenClassification.from_pretrained(folder / "model")
        found = evaluate_rows(tagger, prepared.task, split.rows, split.examples).scores
        assert found == pytest.approx(told, rel=1e-5)


def test_a_seed_learns_the_same_alone_and_behind_others(two_seeds, tmp_path):
    word_features.KEPT.clear()
    training = replace(two_seeds.training, seeds=(1,))
    alone = replace(two_seeds, output=str(tmp_path / "alone"), training=training)
    run.finetune(alone)
    assert_close(learned(alone.folder, 1), learned(two_seeds.folder, 1), rtol=0, atol=0)


@pytest.mark.parametrize("evaluations", [1, 3])
def test_a_run_that_was_stopped_in_a_seed_ends_in_the_same_bits(
    two_seeds, evaluations, tmp_path, monkeypatch
):
    recipe = replace(two_seeds, output=str(tmp_path / "stopped"))
    word_features.KEPT.clear()
    measure, calls = evaluate_rows, itertools.count(1)

    def stopped(*arguments):
        if next(calls) == evaluations:
            signal.raise_signal(signal.SIGTERM)
        return measure(*arguments)

    monkeypatch.setattr("tercet.finetune.evaluation.evaluate_rows", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(recipe)
    assert (seed_folder(recipe.folder, 0) / "scores.json").exists() == (evaluations == 3)
    monkeypatch.setattr("tercet.finetune.evaluation.evaluate_rows", measure)
    word_features.KEPT.clear()
    finetune(recipe, resume=True)
    for seed in (0, 1):
        assert_close(learned(recipe.folder, seed), learned(two_seeds.folder, seed), rtol=0, atol=0)


def test_a_finished_tagger_learns_other_labels(tagger_recipe, recipe_of, tmp_path):
    folder = run.finetune(tagger_recipe("static", training={"epochs": 1}))
    names = {"tags": "other"}
    rows = [
        {"tokens": row["tokens"], "other": ["B-X", *["O"] * (len(row["tokens"]) - 1)]}
        for row in ROWS["tagging"](9, 0)
    ]
    file = write_rows(tmp_path / "other.jsonl", rows)
    recipe = recipe_of(
        "tagging",
        model={"path": str(folder), "new_head": True},
        task=names,
        data={"train": str(file), "validation": None},
    )
    pretrained = prepare(find_inputs(recipe)).pretrained
    assert pretrained.model.config.id2label == {0: "B-X", 1: "O", 2: "I-X"}
    assert {name.partition(".")[0] for name in pretrained.fresh} == {"classifier", "crf"}
    freeze(pretrained.model, -1)
    assert not any(each.requires_grad for each in pretrained.model.model.parameters())


def test_a_word_with_a_space_is_labelled_at_its_beginning(tagger_recipe, tmp_path):
    rows = [{"tokens": ["the", "big cat", " "], "tags": ["O", "B-ANIMAL", "O"]}] * 8
    file = str(write_rows(tmp_path / "spaces.jsonl", rows))
    recipe = tagger_recipe("characters", data={"train": file, "validation": file}, training={"epochs": 1})
    folder = run.finetune(recipe)
    predictor = Predictor(Checkpoint.open(str(folder)))
    (found,) = predictor.predict(Dataset.from_list([{"tokens": rows[0]["tokens"]}]))
    assert len(found["tags"]) == 3
    assert isinstance(predictor.model, TercetTaggerForTokenClassification)


@pytest.mark.parametrize(
    ("names", "parts", "words"),
    [
        (("static",), {"kind": "classification"}, "model.tagger labels words, but the task is class"),
        (("static",), {"overrides": {"embeddings": []}}, "model.overrides.embeddings: name the models"),
        (("static",), {"overrides": {"id2label": {0: "O"}}}, "overrides.id2label: the task sets the labels"),
        (("static",), {"training": {"frozen_layers": -1}},
         "training.frozen_layers is -1, but model.tagger freezes the word"),
        (("static",), {"training": {"layer_decay": 0.9}},
         "training.layer_decay is 0.9, but the layers of model.tagger are all new"),
        (("static",), {"overrides": {"hidden_size": 15}}, "hidden_size is 15: choose an even one"),
        (("static",), {"overrides": {"hiden_size": 16}}, "not a field of TercetTaggerConfig: did you mean"),
        (("static", "nowhere"), {}, "is neither a folder nor a model on the Hub|does not exist"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(names, parts, words, tagger_recipe):
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        prepare(find_inputs(tagger_recipe(*names, **parts)))


def test_models_without_word_vectors_are_refused(recipe_of, bases):
    recipe = recipe_of("tagging", model={"path": str(bases / "encoder"), "tagger": {}})
    with pytest.raises(ValueError, match="a tercet_encoder gives no word vectors to a tagger"):
        prepare(find_inputs(recipe))
    drawn = replace(recipe, model=replace(recipe.model, from_scratch=True))
    with pytest.raises(ValueError, match=r"model\.from_scratch = true would randomize the word vectors"):
        prepare(find_inputs(drawn))


def test_labels_of_words_are_where_the_model_reads_them():
    """Words may have spaces before them, or be nothing else."""
    encoder = TextEncoder(word_tokenizer(), 100, has_token_types=False)
    encoded = encoder.encode_words([["Bob", " lead", "x"], [" lead", " ", "x"]])
    for row, places in enumerate([[0, 5, 10], [1, 8]]):
        assert np.flatnonzero(encoded["words"][row] >= 0).tolist() == places
        ids = torch.from_numpy(encoded["input_ids"][row])[None]
        assert read_words(ids)[0].positions.tolist() == places
