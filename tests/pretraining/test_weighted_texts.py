"""Runs on several texts: their shares in every step, scores of each, resume, and what is refused."""

import json
import re
import shutil

import pytest

from tercet.configs.recipe import parse_recipe
from tercet.pretraining import run
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import open_text
from tercet.training.run_folder import EVALUATION
from tercet.training.tracking import LOG, read_log

from ..pretraining_parts import documents_of
from ..reported import pretrain
from ..saved_weights import require_same_models
from .conftest import recipe_data_of

TWO = {"wiki": 3.0, "forum": 1.0}


@pytest.fixture
def recipe_with(texts, ragged_texts, tmp_path):
    """Make a recipe of two texts, of which the second is the smaller."""

    def recipe_with(
        name="run", kind="causal_language_modeling", corpus=None, **training
    ) -> PretrainingRecipe:
        data = recipe_data_of(kind, texts, tmp_path / name, **training)
        ending = "jsonl" if kind == "translation" else "txt"
        folders = {"wiki": texts, "forum": ragged_texts}
        data["corpus"] |= {
            "train": [
                {"path": str(folders[text] / f"train.{ending}"), "name": text, "share": share}
                for text, share in TWO.items()
            ],
            "validation": [
                {"path": str(folder / f"validation.{ending}"), "name": text}
                for text, folder in folders.items()
            ],
        } | (corpus or {})
        return parse_recipe(PretrainingRecipe, data)

    return recipe_with


def evaluation(recipe: PretrainingRecipe) -> dict:
    return json.loads((recipe.folder / EVALUATION).read_text())


def test_two_texts_of_one_file_are_refused(recipe_with, texts):
    path = str(texts / "train.txt")
    recipe = recipe_with(corpus={"train": [{"path": path, "name": name} for name in ("a", "b")]})
    with pytest.raises(ValueError, match=r"^corpus.train: a and b both have .*train.txt, whose text"):
        open_text(recipe.corpus, recipe.objective, "train")


def test_a_run_reads_and_scores_each_text_by_itself(recipe_with, capsys):
    recipe = recipe_with(steps=6, log_every=1)
    pretrain(recipe)
    records = [record for record in read_log(recipe.folder / LOG) if "tokens/wiki" in record]
    assert len(records) == 6
    for record in records:
        assert record["tokens/wiki"] + record["tokens/forum"] == record["tokens"]
        assert record["tokens/wiki"] == pytest.approx(0.75 * record["tokens"], abs=64)
    assert re.search(r"text wiki: 0\.75 of the tokens, read [\d.]+ times", capsys.readouterr().err)
    report = (recipe.folder / "report.html").read_text(encoding="utf-8")
    assert "text: wiki (share 3), forum (share 1); held out: wiki, forum; at most 64 tokens" in report
    scores = evaluation(recipe)["scores"]
    targets = [scores[f"{part}clm/targets"] for part in ("", "wiki/", "forum/")]
    assert targets[0] == targets[1] + targets[2]
    losses = [scores[f"{part}clm/loss"] for part in ("", "wiki/", "forum/")]
    together = (losses[1] * targets[1] + losses[2] * targets[2]) / targets[0]
    assert losses[0] == pytest.approx(together, rel=1e-6)


def test_held_out_texts_are_joined_in_one_order_however_they_are_listed(recipe_with):
    """Where masks go by the place of an example, the joint loss would depend on it."""
    recipe = recipe_with()
    listed = [{"path": text.path, "name": text.name} for text in recipe.corpus.validation]
    (there,), (back,) = (
        documents_of(recipe_with(corpus={"validation": texts}))["validation"]
        for texts in (listed, listed[::-1])
    )
    assert there.fingerprint() == back.fingerprint()
    assert list(there) == list(back)


@pytest.mark.parametrize("kind", ["masked_language_modeling_with_next_sentence", "mixture", "translation"])
def test_every_kind_of_examples_has_shares(recipe_with, kind):
    recipe = recipe_with(kind=kind, steps=3, log_every=1)
    run.pretrain(recipe)
    counted = evaluation(recipe)["tokens_of"]
    assert counted["wiki"] / sum(counted.values()) == pytest.approx(0.75, abs=0.1)


def test_a_stage_has_shares_of_its_own_and_a_resumed_run_is_the_same(recipe_with):
    stages = [{"steps": 3, "shares": {"forum": 1}}]
    options = {"steps": 8, "stages": stages, "log_every": 1, "checkpoint_every": 2, "keep_checkpoints": 9}
    whole, broken = (recipe_with(name, **options) for name in ("whole", "broken"))
    run.pretrain(broken)
    for step in (6, 8):
        shutil.rmtree(broken.folder / "checkpoints" / f"step-{step:08}")
    require_same_models(run.pretrain(broken, resume=True), run.pretrain(whole))
    records = [record for record in read_log(whole.folder / LOG) if "tokens/wiki" in record]
    assert [record["tokens/wiki"] for record in records[:3]] == [0, 0, 0]
    assert records[3]["tokens/wiki"] > 0
    again = [record for record in read_log(broken.folder / LOG) if "tokens/wiki" in record]
    assert [record["tokens/wiki"] for record in again] == [record["tokens/wiki"] for record in records]


@pytest.mark.parametrize(
    ("corpus", "training", "message"),
    [
        ({"streaming": True}, {}, r"texts with shares cannot be streamed: set streaming=false"),
        ({"train": "x.txt"}, {"stages": [{"steps": 1, "shares": {"wiki": 1}}]}, "corpus.train is one text"),
        (
            {},
            {"stages": [{"steps": 1, "shares": {"books": 1}}]},
            "shares name books, but the texts of corpus.train",
        ),
        ({"validation": [{"path": "a/x.txt"}, {"path": "b/x.txt"}]}, {}, "several texts of the name x"),
    ],
)
def test_texts_that_do_not_fit_are_refused(recipe_with, corpus, training, message):
    with pytest.raises(ValueError, match=message):
        recipe_with(corpus=corpus, **training)


@pytest.mark.parametrize("name", ["clm", "mean", "left_out"])
def test_a_text_is_not_called_as_other_scores_are(recipe_with, texts, name):
    """Scores of the text `clm` would stand where those of all texts do."""
    validation = [{"path": str(texts / "validation.txt"), "name": name}]
    with pytest.raises(ValueError, match=f"corpus.validation: the name {name} is reserved"):
        pretrain(recipe_with(corpus={"validation": validation}))


def test_a_text_that_would_be_read_too_often_is_refused_before_anything_is_written(recipe_with):
    recipe = recipe_with(steps=200)
    train = [{"path": text.path, "name": text.name, "epochs": 0.5} for text in recipe.corpus.train]  # pyright: ignore[reportAttributeAccessIssue]
    recipe = recipe_with(steps=200, corpus={"train": train})
    with pytest.raises(
        ValueError, match=r"corpus\.train: wiki would be read [\d.]+ times, and its epochs allow for 0\.5"
    ):
        pretrain(recipe)
    assert not recipe.folder.exists() or not any(recipe.folder.iterdir())
