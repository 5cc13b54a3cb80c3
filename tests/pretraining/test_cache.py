"""Work appears whole or not at all."""

from pathlib import Path

import pytest

from tercet.pretraining.cache import cache_folder, made_once


def test_the_recipe_chooses_before_the_environment(monkeypatch):
    monkeypatch.setenv("TERCET_CACHE", "/from/environment")
    assert cache_folder("/from/recipe") == Path("/from/recipe")
    assert cache_folder() == Path("/from/environment")
    monkeypatch.delenv("TERCET_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "tercet"


def test_work_is_done_once(tmp_path):
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("done")

    for _ in range(2):
        assert (made_once(tmp_path / "deep" / "work", make) / "file").read_text() == "done"
    assert len(calls) == 1


def test_interrupted_work_leaves_nothing(tmp_path):
    def make(folder: Path) -> None:
        (folder / "file").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "work", make)
    assert list(tmp_path.iterdir()) == []


def test_of_two_runs_at_once_the_first_one_wins(tmp_path):
    def make(folder: Path) -> None:
        (folder / "file").write_text("second")
        made_once(tmp_path / "work", lambda other: (other / "file").write_text("first"))  # in the meantime

    assert (made_once(tmp_path / "work", make) / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
