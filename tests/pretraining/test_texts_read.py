"""Whoever resumes a run with another text is told, and both stay on record."""

import json
import os
import shutil

import pytest

from tercet.data.identities import contents_of, keep_texts, warn_of_copies
from tercet.pretraining.run import pretrain

from .conftest import changed


def entry(name, contents):
    return {"name": name, "bytes": 5, "sha256": contents * 16}


def read(file):
    return json.loads(file.read_text())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("goes_on", "name"), [(False, "a.txt"), (True, "a.txt"), (True, "renamed.txt")])
def test_the_same_text_is_one_entry(tmp_path, goes_on, name):
    keep_texts(tmp_path / "texts.json", {"train": [entry("a.txt", "abcd")]}, goes_on=False)
    keep_texts(tmp_path / "texts.json", {"train": [entry(name, "abcd")]}, goes_on=goes_on)
    assert read(tmp_path / "texts.json") == {"train": [entry("a.txt", "abcd")]}


def test_another_text_of_a_run_that_goes_on_is_told_and_kept_beside_the_first(tmp_path):
    first, other = ({"train": [entry("a.txt", contents)]} for contents in ("abcd", "1234"))
    keep_texts(tmp_path / "texts.json", first, goes_on=False)
    with pytest.warns(UserWarning, match=r"train: a.txt \(123412341234\) is not what .* \(abcdabcdabcd\)"):
        keep_texts(tmp_path / "texts.json", other, goes_on=True)
    assert read(tmp_path / "texts.json") == {"train": [*first["train"], *other["train"]]}


def test_data_sets_are_told_apart_by_their_fingerprints():
    assert contents_of({"name": "x", "dataset": "x", "fingerprint": "f"}) == "f"
    assert contents_of({"name": "x", "dataset": "x", "fingerprint": None}) == "x"


def test_a_corpus_of_equal_size_that_was_swapped_is_told(texts, recipe_of, tmp_path):
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    file = shutil.copy(texts / "train.txt", tmp_path / "train.txt")
    recipe = changed(recipe, train=str(file))
    pretrain(recipe)
    before = read(recipe.folder / "texts.json")["train"]
    contents = file.read_bytes()
    file.write_bytes(contents.replace(b"cat", b"cow"))
    os.utime(file, (1, 1))
    with pytest.warns(UserWarning, match=r"train: train.txt .* is not what the run began with"):
        pretrain(changed(recipe, "training", steps=4), resume=True)
    after = read(recipe.folder / "texts.json")["train"]
    assert after[:-1] == before
    assert [entry["bytes"] for entry in after] == [len(contents)] * 2


def test_copies_of_a_file_are_told_of(texts, recipe_of, tmp_path):
    copies = [shutil.copy(texts / "train.txt", tmp_path / name) for name in ("a.txt", "b.txt")]
    recipe = recipe_of("causal_language_modeling", texts, tmp_path / "run")
    told = r"^corpus.train: a.txt and b.txt have the same contents, so that their text counts 2 times"
    with pytest.warns(UserWarning, match=told):
        pretrain(changed(recipe, train=list(map(str, copies))))


@pytest.mark.filterwarnings("error")
def test_no_other_files_are_taken_for_copies():
    hub, empty = {"name": "x", "fingerprint": "f"}, entry("a", "0123") | {"bytes": 0}
    warn_of_copies("corpus.train", [hub, hub, empty, empty, entry("a", "abcd"), entry("a", "bcda")])
