"""Intermediate models of a run: kept as people load them, and pushed without disturbing the run."""

import json
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from tercet.__main__ import main
from tercet.data.steps.examples import count_left_out
from tercet.data.steps.weighting import WeightedExamples
from tercet.pretraining.revisions import count_words, require_repository, words_per_token
from tercet.pretraining.run import pretrain
from tercet.tools.push import push as client
from tercet.tools.push import revisions as client_of_revisions
from tercet.tools.push.revisions import missing_revisions
from tercet.training.checkpoints import revisions
from tercet.training.checkpoints.revisions import RevisionSeries
from tercet.training.loop import Progress

from ..saved_weights import require_same, require_same_models, weights_in
from ..tools.push.conftest import hub, impatience  # noqa: F401
from ..training.test_mixture import Numbers
from .conftest import changed, unread_recipe

KIND = "causal_language_modeling"
REPO = "me/small"


def test_intermediate_models_are_whole_and_the_run_learns_the_same(recipe_on, hub, capsys):  # noqa: F811
    plain, _ = recipe_on(KIND, "plain", dropout=0.1)
    series, _ = recipe_on(
        KIND, "series", dropout=0.1, revisions=2, push_revisions=REPO, checkpoint_every=2, evaluate_every=2
    )
    require_same_models(pretrain(series), pretrain(plain))

    kept = series.folder / "revisions"
    assert {path.name for path in kept.iterdir()} == {"step-2", "step-4"}
    finished = {path.name for path in (series.folder / "model").iterdir()}
    assert {path.name for path in (kept / "step-2").iterdir()} - finished == {
        "evaluation.json", "texts.json", "pushed.json",
    }  # fmt: skip
    assert finished <= {path.name for path in (kept / "step-2").iterdir()}
    require_same_models(kept / "step-4", series.folder / "model")
    checkpoint = load_file(series.folder / "checkpoints" / "step-00000002" / "model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(kept / "step-2")
    assert all(torch.equal(model.state_dict()[name], weights) for name, weights in checkpoint.items())
    assert json.loads((kept / "step-2" / "evaluation.json").read_text())["scores"]["clm/loss"] > 0

    repository = hub.repositories[REPO]
    assert repository.private
    assert set(repository.branches) == {"main", "step-2", "step-4"}
    arrived = hub.files(REPO, "step-2")
    assert arrived["model.safetensors"] == (kept / "step-2" / "model.safetensors").read_bytes()
    assert {"config.json", "tokenizer.json", "recipe.yaml", "README.md"} <= arrived.keys()
    assert 'revision="step-2"' in arrived["README.md"].decode()
    assert not any("optimizer" in name or name.endswith(".pt") for name in arrived)
    assert "not pushed" not in capsys.readouterr().err


def test_a_hub_that_fails_costs_a_line_and_what_is_missing_is_pushed_later(
    recipe_on, hub, capsys, impatience  # noqa: F811
):  # fmt: skip
    hub.room = threading.Semaphore(0)
    recipe, _ = recipe_on(KIND, revisions=2, push_revisions=REPO)
    assert pretrain(recipe) == recipe.folder / "model"
    said = capsys.readouterr().err
    assert f"the push to {REPO} failed, and was the last attempt: the Hub could not be reached" in said
    assert (
        f"not pushed to {REPO}: step-2, step-4; `tercet push {recipe.folder} {REPO} --all-revisions`" in said
    )
    assert "config.json" not in hub.files(REPO, "step-2")

    hub.room = threading.Semaphore(100)
    command = ["push", str(recipe.folder), REPO, "--all-revisions"]
    assert main(command) == 0
    assert [line.rpartition("/commit/")[0] for line in capsys.readouterr().out.split()] == [
        f"{hub.address}/{REPO}"
    ] * 2
    assert all("config.json" in hub.files(REPO, name) for name in ("step-2", "step-4"))
    before = len(hub.requests)
    assert main(command) == 0
    assert capsys.readouterr().err.endswith("2 of 2 revisions were there already\n")
    assert len(hub.requests) == before + 1

    del hub.repositories[REPO]  # what is recorded here is not taken for what is there
    assert main([*command, "--private"]) == 0
    assert set(hub.repositories[REPO].branches) == {"main", "step-2", "step-4"}


def test_intermediate_models_of_another_run_are_told_of_before_the_first_push(hub, tmp_path):  # noqa: F811
    """Not if there are none, nor of a resumed run, nor if the repository has some of this run."""
    about = {
        "accelerator": SimpleNamespace(is_main_process=True),
        "recipe": SimpleNamespace(push_revisions=REPO),
    }
    session: Any = SimpleNamespace(**about, goes_on=False)
    resumed: Any = SimpleNamespace(**about, goes_on=True)
    names = {"step-10", "step-9", "chck_1M", "draft", "step-by-step"}
    model = tmp_path / "revisions" / "step-9"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    told = r"^me/small has step-9, chck_1M, step-10 already, which this run did not push: those of"
    with warnings.catch_warnings(action="error"):
        require_repository(session)
        for name in names:
            hub.repositories[REPO].commit(name, {})
        require_repository(resumed)
    with pytest.warns(UserWarning, match=told):
        require_repository(session)
    with pytest.warns(UserWarning, match=told):
        assert missing_revisions(tmp_path, REPO) == [model]
    (model / "pushed.json").write_text(json.dumps({REPO: "https://..."}))
    with warnings.catch_warnings(action="error"):
        assert missing_revisions(tmp_path, REPO) == []


def test_models_are_loaded_by_the_run_alone(recipe_on, hub, monkeypatch):  # noqa: F811
    """While one is loaded, `tie_weights` does nothing in the whole process."""
    load, loading = PreTrainedModel.from_pretrained.__func__, []

    def observed(cls, *arguments, **options):
        loading.append(threading.current_thread())
        return load(cls, *arguments, **options)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(observed))
    recipe, _ = recipe_on(KIND, revisions=2, push_revisions=REPO)
    pretrain(recipe)
    assert {"step-2", "step-4"} <= set(hub.repositories[REPO].branches)
    assert len(loading) >= 4
    assert set(loading) == {threading.main_thread()}


def test_a_damaged_model_costs_a_line_and_the_others_are_pushed(recipe_on, hub, monkeypatch, capsys):  # noqa: F811
    prepare = client_of_revisions.prepare

    def refuse_first(model, repo, **options):
        if model.name == "step-2":
            raise ValueError("model.safetensors has weights that are not finite")
        return prepare(model, repo, **options)

    monkeypatch.setattr(client_of_revisions, "prepare", refuse_first)
    recipe, _ = recipe_on(KIND, revisions=2, push_revisions=REPO)
    pretrain(recipe)
    said = capsys.readouterr().err
    assert f"step-2 cannot be pushed to {REPO}: model.safetensors has weights that are not finite" in said
    assert f"not pushed to {REPO}: step-2;" in said
    assert "step-4" in hub.repositories[REPO].branches
    assert "step-2" not in hub.repositories[REPO].branches


def test_a_refused_model_does_not_hold_up_the_others(recipe_on, hub, monkeypatch, capsys):  # noqa: F811
    """Neither those of the run nor those of the command."""
    push = client.push

    def refuse_first(publication, **options):
        if options["revision"] == "step-1":
            raise ValueError("a rule of the repository forbids this branch")
        return push(publication, **options)

    monkeypatch.setattr("tercet.tools.push.revisions.push", refuse_first)
    recipe, _ = recipe_on(KIND, revisions=1, steps=3, push_revisions=REPO)
    pretrain(recipe)
    said = capsys.readouterr().err
    assert "was the last attempt: a rule of the repository forbids this branch" in said
    assert f"not pushed to {REPO}: step-1;" in said
    assert set(hub.repositories[REPO].branches) == {"main", "step-2", "step-3"}
    del hub.repositories[REPO].branches["step-3"]
    assert main(["push", str(recipe.folder), REPO, "--all-revisions", "--private"]) == 2
    assert "forbids this branch" in capsys.readouterr().err
    assert set(hub.repositories[REPO].branches) == {"main", "step-2", "step-3"}


def test_what_an_attempt_missed_goes_with_the_next_one(recipe_on, hub, monkeypatch, capsys):  # noqa: F811
    """The first push fails; the end of the run brings both."""
    push, calls = client.push, []

    def fail_once(publication, **options):
        calls.append(options["revision"])
        if len(calls) == 1:
            raise ConnectionError("the line is cut")
        return push(publication, **options)

    monkeypatch.setattr("tercet.tools.push.revisions.push", fail_once)
    recipe, _ = recipe_on(KIND, revisions=2, push_revisions=REPO)
    pretrain(recipe)
    said = capsys.readouterr().err
    assert f"the push to {REPO} failed" in said
    assert "the line is cut" in said
    assert calls[:2] == ["step-2", "step-2"]
    assert "not pushed" not in said
    assert {"step-2", "step-4"} <= set(hub.repositories[REPO].branches)


def test_a_resumed_run_replaces_and_goes_on(recipe_on):
    recipe, _ = recipe_on(KIND, revisions=1, checkpoint_every=2, steps=3)
    pretrain(recipe)
    first = {name: weights_in(recipe.folder / "revisions" / name) for name in ("step-1", "step-3")}
    (recipe.folder / "revisions" / ".step-4.partial").mkdir()
    pretrain(changed(recipe, "training", steps=4), resume=True)
    for name, weights in first.items():
        require_same(weights_in(recipe.folder / "revisions" / name), weights)
    assert {path.name for path in (recipe.folder / "revisions").iterdir()} == {
        f"step-{step}" for step in (1, 2, 3, 4)
    }


def test_revisions_by_words_have_the_names_of_babylm(recipe_on, ragged_texts, monkeypatch):
    words = len((ragged_texts / "train.txt").read_text().split())
    monkeypatch.setattr(revisions, "MILLION", words / 4)  # an epoch is four "million"
    recipe, _ = recipe_on(KIND, revisions="babylm", steps=8)
    folder = pretrain(recipe)
    kept = {path.name: json.loads((path / "evaluation.json").read_text()) for path in
            (recipe.folder / "revisions").iterdir()}  # fmt: skip
    total = json.loads((recipe.folder / "evaluation.json").read_text())["tokens"]
    one = next(iter(kept.values()))
    read = total * one["words"] / one["tokens"] * 4 / words
    assert set(kept) == {f"chck_{mark}M" for mark in range(1, int(read + 0.05) + 1)}
    assert len(kept) > 2
    for name, about in kept.items():
        assert about["words"] >= int(name[5:-1]) * words / 4 * 0.999
    AutoTokenizer.from_pretrained(recipe.folder / "revisions" / "chck_1M")
    assert folder.exists()


def test_words_are_those_between_white_space(tmp_path):
    class Text(list):
        def fingerprint(self):
            return "a"

    assert count_words((Text(["one two\nthree", " four "]),), tmp_path) == 4  # type: ignore[arg-type]


def test_marks_of_babylm_are_28_and_a_long_step_may_pass_several():
    series, progress = RevisionSeries("babylm", print, [(0, 1.0)]), Progress(step=1)

    def at(tokens: int) -> list[str]:
        progress.tokens = tokens
        return series.due(progress)

    assert at(999_999) == []
    assert at(3_000_000) == ["chck_1M", "chck_2M", "chck_3M"]
    assert at(3_000_001) == []
    assert len(at(2_000_000_000)) == 28 - 3
    assert at(2_000_000_001) == []


def test_words_are_those_of_the_stages_that_were_read():
    """A stage of shorter sequences has fewer words per token; a resumed run goes on counting."""
    progress = Progress(words=900_000)
    for step, tokens, words in ((1, 100_000, 950_000), (2, 200_000, 1_000_000), (3, 600_000, 1_100_000)):
        series = RevisionSeries("babylm", print, [(0, 0.5), (2, 0.25)], tokens=progress.tokens)
        progress.step, progress.tokens = step, tokens
        assert series.due(progress) == (["chck_1M"] if step == 2 else [])
        assert progress.words == pytest.approx(words)


def test_words_of_documents_that_are_in_no_example_are_not_read(tmp_path):
    class Text(list):
        def fingerprint(self):
            return "a"

    left_out = count_left_out("documents", np.array([8, 8, 8]), np.array([True, False, False]), "")
    source = WeightedExamples([Numbers(2, 0)], [np.arange(2)], [0], [0])
    source.lengths, source.left_out = np.array([10, 10]), left_out
    source.epoch = lambda number: source
    texts: Any = (Text(["one two three four"] * 3),)
    assert words_per_token(texts, source, tmp_path) == pytest.approx(8 / 20)


@pytest.mark.parametrize(
    ("training", "corpus", "said"),
    [
        ({"push_revisions": "me/x"}, {}, "set revisions to a number of steps"),
        ({"push_revisions": "x", "revisions": 5}, {}, "named owner/name"),
        ({"revisions": "babylm"}, {"streaming": True}, "set corpus.streaming=false"),
        ({"revisions": 0}, {}, "revisions"),
    ],
)
def test_impossible_series_are_refused(training, corpus, said):
    with pytest.raises(ValueError, match=said):
        unread_recipe(
            KIND,
            {"preset": "decoder-tiny"},
            training={"steps": 10} | training,
            corpus={"train": "x.txt", "validation": "x.txt", "sequence_length": 32} | corpus,
        )


def test_a_run_that_could_never_push_does_not_begin(recipe_on, hub, monkeypatch):  # noqa: F811
    recipe, _ = recipe_on(KIND, revisions=2, push_revisions="somebody/small")
    with pytest.raises(
        ValueError, match="push_revisions is somebody/small, but the token has no write access"
    ):
        pretrain(recipe)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ValueError, match="but there is no token for the Hub"):
        pretrain(recipe)
    assert not (recipe.folder / "recipe.yaml").exists()


def test_checkpoints_of_a_run_without_any_are_one_line(tmp_path, hub, capsys):  # noqa: F811
    assert main(["push", str(tmp_path), REPO, "--all-revisions"]) == 2
    assert "set training.revisions" in capsys.readouterr().err
    assert main(["push", str(tmp_path), REPO, "--all-revisions", "--space"]) == 2
    assert "--space is for one model" in capsys.readouterr().err
    assert hub.requests == []
