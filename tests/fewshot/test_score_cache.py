"""What was said is kept, and given to whoever asks the same of the same model in the same way."""

import json
import re
import shutil
import signal
from dataclasses import replace

import pytest
import torch

from tercet.configs.recipe import recipe_data
from tercet.fewshot.run import fewshot
from tercet.fewshot.subject import load_subject

from .conftest import read


@pytest.mark.parametrize("kind", ["classification", "generation"])
def test_interrupted_evaluation_goes_on_where_it_was(kind, recipe_of, saved, monkeypatch):
    recipe = recipe_of(kind, [saved("decoder")])
    expected = read(fewshot(recipe))
    (answers,) = (recipe.folder / "answers").iterdir()
    lines = answers.read_bytes().splitlines(keepends=True)
    for name in ("results.json", "items.jsonl"):
        (recipe.folder / name).unlink()
    answers.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:9])  # the last one was being written
    with pytest.raises(ValueError, match="--resume"):
        fewshot(recipe)
    found = read(fewshot(recipe, resume=True))
    assert_close(found, expected)
    assert len(answers.read_bytes().splitlines()) == len(lines)
    monkeypatch.setattr(torch.nn.Embedding, "forward", fail)
    assert read(fewshot(recipe, resume=True)) == found


def assert_close(found, expected):
    """Compare plain data, whose numbers may differ by rounding: other batches add up in another order."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    else:
        assert found == (pytest.approx(expected, abs=1e-5) if isinstance(expected, float) else expected)


def test_other_weights_are_asked_anew(recipe_of, saved, tmp_path):
    copied = shutil.copytree(saved("decoder"), tmp_path / "changed")
    first = read(fewshot(recipe_of("completion", [copied])))[0]
    model = load_subject(str(copied)).model
    model.get_parameter("model.norm.weight").data += 0.5
    model.save_pretrained(copied)
    second = read(fewshot(recipe_of("completion", [copied]), resume=True))[0]
    hashes = [results["models"][0]["weights_sha256"] for results in (first, second)]
    assert hashes[0] != hashes[1]
    scores = [results["models"][0]["shots"]["0"]["scores"]["perplexity"] for results in (first, second)]
    assert scores[0] != scores[1]


def test_an_evaluation_that_is_replaced_gives_no_answers_to_the_new_one(recipe_of, saved):
    recipe = recipe_of("completion", [saved("decoder")])
    expected = read(fewshot(recipe))
    (answers,) = (recipe.folder / "answers").iterdir()
    lines = answers.read_text().splitlines()
    answers.write_text("".join(re.sub(r"-\d+\.", "-77.", line) + "\n" for line in lines))
    assert_close(read(fewshot(recipe, overwrite=True)), expected)
    assert len(answers.read_text().splitlines()) == len(lines)


@pytest.mark.parametrize(
    ("file", "kind", "changes"),
    [
        ("config.json", "completion", {"rope_theta": 7.0}),
        ("generation_config.json", "generation", {"bad_words_ids": [[5]]}),
    ],
)
def test_other_settings_are_asked_anew(file, kind, changes, recipe_of, saved, tmp_path):
    copied = shutil.copytree(saved("decoder"), tmp_path / "changed")
    fewshot(recipe_of(kind, [copied]))
    settings = json.loads((copied / file).read_text())
    for key, changed in (("transformers_version", {"transformers_version": "0"}), (file, changes)):
        (copied / file).write_text(json.dumps(settings | changed))
        folder = fewshot(recipe_of(kind, [copied]), resume=True)
        assert len(list((folder / "answers").iterdir())) == (2 if key == file else 1)


KILLED = """
import json, os, signal, sys
from tercet.configs.recipe import parse_recipe
from tercet.fewshot import run
from tercet.fewshot.recipe import FewShotRecipe
run.summarize_model = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
run.fewshot(parse_recipe(FewShotRecipe, json.loads(sys.argv[1])))
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_evaluation_goes_on_or_is_replaced(
    overwrite, recipe_of, saved, tmp_path, monkeypatch, fork_server
):
    recipe = recipe_of("classification", [saved("decoder")])
    expected = read(fewshot(replace(recipe, output=str(tmp_path / "straight"))))
    killed = fork_server.start(KILLED, json.dumps(recipe_data(recipe)))
    assert fork_server.wait(killed) == -signal.SIGKILL
    assert (recipe.folder / ".items.jsonl.partial").exists()
    with pytest.raises(ValueError, match=r"holds an earlier run .*--resume"):
        fewshot(recipe)
    if not overwrite:
        monkeypatch.setattr(torch.nn.Embedding, "forward", fail)
    assert read(fewshot(recipe, resume=not overwrite, overwrite=overwrite)) == expected
    assert not (recipe.folder / ".items.jsonl.partial").exists()


def fail(*arguments, **keywords):
    raise AssertionError("everything has been answered")
