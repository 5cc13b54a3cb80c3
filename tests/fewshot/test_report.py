"""The report of an evaluation is made of its folder alone; it can be made again, and may fail."""

import shutil

import pytest

import tercet
from tercet.__main__ import main
from tercet.reports.fewshot import report

from ..reported import read_report, remove_report


def test_reports_are_made_again_from_the_folder_alone(recipe_of, saved, tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("the cat sat under the tree\n")
    shutil.copytree(saved("decoder"), model := tmp_path / "decoder")
    recipe = recipe_of("classification", [model], contamination={"corpus": str(tmp_path / "corpus.txt")})
    made = read_report(tercet.fewshot(recipe).folder)
    for gone in (model, tmp_path / "data"):
        shutil.rmtree(gone)
    remove_report(recipe.folder)
    assert main(["report", str(recipe.folder)]) == 0
    assert read_report(recipe.folder) == made
    told = capsys.readouterr()
    assert told.out == f"{recipe.folder / 'report.html'}\n"
    assert "K = 2: accuracy" in told.err


def test_an_evaluation_whose_report_fails_is_whole_and_says_how_to_make_it(
    recipe_of, saved, tmp_path, monkeypatch, capsys
):
    recipe = recipe_of("completion", [saved("decoder")])
    with monkeypatch.context() as patch:
        patch.setattr(report, "build_report", lambda *arguments: 1 / 0)
        with pytest.raises(
            RuntimeError, match=r"the run has ended, .*division by zero.*tercet report"
        ) as told:
            tercet.fewshot(recipe)
    command = str(told.value).partition("make it with tercet ")[2].split()
    assert main(command) == 0
    assert read_report(recipe.folder)


@pytest.mark.parametrize(("name", "message"), [("", "no recipe.yaml"), ("recipe.yaml", "has not ended")])
def test_only_finished_runs_are_reported(name, message, tmp_path):
    if name:
        (tmp_path / name).write_text("task: {}\n")
    with pytest.raises(ValueError, match=message):
        tercet.report(tmp_path)
