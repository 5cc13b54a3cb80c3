"""What a run reads does not lie in the folder that it writes, however it is written."""

import pytest

from tercet.training.inputs import require_apart


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
