"""The folder of a demonstration: what it may replace, and what it never deletes."""

import pytest

from tercet.tools.demo import run as demo
from tercet.tools.demo.run import claim_folder, run_demo


def test_folder_that_no_demo_wrote_is_never_deleted(tmp_path):
    (tmp_path / "thesis.txt").write_text("two years of work")
    with pytest.raises(ValueError, match=r"was not written by tercet \(it has no \.tercet\.json\)"):
        claim_folder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("name", ["", " ", "~nobody-of-that-name/demo"])
def test_a_name_that_means_no_folder_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "carry_out", lambda folder, *others: folder)
    with pytest.raises(ValueError, match=r"^--output is '"):
        run_demo(name)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_demo_does_not_speak_of_resuming(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt("stopped by SIGTERM; continue with --resume")

    monkeypatch.setattr(demo, "carry_out", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped; a demo begins anew: add --overwrite$"):
        run_demo(tmp_path / "demo")


def test_an_earlier_demo_is_renamed_whole(tmp_path):
    folder = tmp_path / "demo"
    claim_folder(folder, overwrite=False)
    (folder / "encoder").mkdir()
    with pytest.raises(ValueError, match="holds an earlier demo: add --overwrite"):
        claim_folder(folder, overwrite=False)
    claim_folder(folder, overwrite=True)
    assert [path.name for path in folder.iterdir()] == [".tercet.json"]
    assert (tmp_path / "demo.previous" / "encoder").exists()
