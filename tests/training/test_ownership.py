"""Nothing that is read is written; an earlier run is renamed whole, and only what a command of ours wrote."""

import os
import shutil
import stat

import pytest

from tercet.training.ownership import (
    earlier_models,
    is_ours,
    mark,
    require_apart,
    require_movable,
    set_aside,
    share_weights,
)


def leave(folder, text):
    """Leave a run, and a user's notes in it."""
    folder.mkdir()
    mark(folder, {"model.path": text})
    (folder / "notes.txt").write_text(text)


@pytest.mark.parametrize("name", ["run", "run.previous"])
def test_a_folder_without_the_mark_is_not_renamed_nor_replaced(name, tmp_path):
    for each in ("run", "run.previous"):
        leave(tmp_path / each, "years of work")
    (tmp_path / name / ".tercet.json").unlink()
    with pytest.raises(ValueError, match=rf"{name} was not written by tercet"):
        require_movable(tmp_path / "run")


@pytest.mark.parametrize("case", ["current folder", "mounted disk", "no permission"])
def test_what_the_system_does_not_rename_is_told_of(case, tmp_path, monkeypatch):
    leave(tmp_path / "run", "one")
    if case == "current folder":
        (tmp_path / "run" / "model").mkdir()
        monkeypatch.chdir(tmp_path / "run" / "model")
    elif case == "mounted disk":
        monkeypatch.setattr(type(tmp_path), "is_mount", lambda path: path.name == "run")
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(ValueError, match="run cannot be renamed"):
        require_movable(tmp_path / "run")


@pytest.mark.parametrize("call", ["rmtree", "rename"])
def test_a_kill_on_the_way_leaves_the_earlier_folder_whole(call, tmp_path, monkeypatch):
    """Before and after the one of before that goes; the next attempt finds nothing in its way."""
    for text in ("one", "two"):
        leave(tmp_path / "run", text)
        if text == "one":
            set_aside(tmp_path / "run")

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*((shutil, "rmtree") if call == "rmtree" else (os, "rename")), killed)
        with pytest.raises(KeyboardInterrupt):
            set_aside(tmp_path / "run")
    assert (tmp_path / "run" / "notes.txt").read_text() == "two"
    set_aside(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run.previous"]
    assert (tmp_path / "run.previous" / "notes.txt").read_text() == "two"


def test_weights_may_be_read_by_whoever_may_read_the_rest(tmp_path):
    leave(tmp_path / "run", "one")
    (tmp_path / "run" / ".tercet.json").chmod(0o644)
    (tmp_path / "run" / "model").mkdir()
    weights = tmp_path / "run" / "model" / "model.safetensors"
    weights.write_bytes(b"")
    weights.chmod(0o600)
    share_weights(tmp_path / "run")
    assert stat.S_IMODE(weights.stat().st_mode) == 0o644


@pytest.mark.parametrize("text", ["", "[]", '{"files": []}'])
def test_a_damaged_mark_knows_no_models(text, tmp_path):
    (tmp_path / ".tercet.json").write_text(text)
    assert is_ours(tmp_path)
    assert earlier_models(tmp_path) == {}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Leave a run, and links to it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "o1"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("text")
    (tmp_path / "chain").symlink_to("runs/o1/model")
    (tmp_path / "runs2").symlink_to("runs")
    return folder


@pytest.mark.parametrize(
    "name",
    ["runs/o1", "runs/o1/model", "runs/../runs/o1/./model/", "chain", "chain/config.json", "runs2/o1/model"],
)
@pytest.mark.parametrize("is_absolute", [False, True])
def test_what_lies_in_the_folder_is_found(name, is_absolute, run, tmp_path):
    given = str(tmp_path / name) if is_absolute else name
    folder = run if not is_absolute else run.relative_to(tmp_path)
    with pytest.raises(ValueError, match=r"corpus\.train is .*, which lies in the folder"):
        require_apart([tmp_path / "other", folder], {"corpus.train": ["data/a.txt", given]})


@pytest.mark.parametrize("name", [None, "data/a.txt", "runs", "me/model", "runs/o2/model", "\0", 9000 * "x"])
def test_what_lies_elsewhere_is_not(name, run):
    require_apart([run], {"model.path": name, "corpus.train": name})


def test_a_name_on_the_hub_lies_in_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    require_apart([tmp_path], {"model.path": "me/model"})
    (tmp_path / "me" / "model").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"^model\.path is me/model, which lies in"):
        require_apart([tmp_path], {"model.path": "me/model"})


def test_a_cache_lies_in_the_folder_before_it_is_made(tmp_path):
    with pytest.raises(ValueError, match="which lies in"):
        require_apart([tmp_path / "run"], {"corpus.cache": str(tmp_path / "run" / "cache")})
