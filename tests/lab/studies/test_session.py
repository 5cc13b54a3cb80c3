"""The command `tercet study`."""

import io
import json

import pytest

from lab.studies.session import ask
from lab.studies.study import all_studies, find_study
from tercet.__main__ import main


def test_studies_are_listed_one_in_a_line(capsys):
    assert main(["study"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*all_studies()]
    assert all(study.title in line for study, line in zip(all_studies().values(), lines, strict=True))


def test_a_study_prints_its_verdict_and_writes_its_page(tmp_path, capsys):
    assert main(["study", "noam", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "The claim is confirmed: 4 of 4 values lie where it has them. Predicted: confirmed." in printed
    assert printed.splitlines()[-1] == str(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<li class="confirmed">' in page
    assert "<svg" in page
    assert json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))["seeds"] == 2
    assert {"noam.png", "report.md"} <= {path.name for path in tmp_path.iterdir()}


def test_only_an_earlier_study_is_replaced(tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "page"
    run.mkdir()
    (run / "report.html").write_text("of a run")
    for folder, said in (
        (run, "run is not empty and holds no study.json"),
        (run / "report.html", "report.html, which is a file: name a folder"),
        (run / "report.html" / "page", "cannot be made (Not a directory)"),
        ("~nobody-is-called-so/page", "is not a valid path"),
    ):
        assert main(["study", "noam", "--output", str(folder)]) == 2
        printed = capsys.readouterr().err
        assert said in printed
        assert "seed 1" not in printed
    assert (run / "report.html").read_text() == "of a run"
    assert [path.name for path in run.iterdir()] == ["report.html"]
    page.mkdir()
    (page / "study.json").write_text("{}")
    assert main(["study", "noam", "--output", str(page)]) == 0
    assert json.loads((page / "study.json").read_text())["seeds"] == 2


def test_a_reader_predicts_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("x\nr\n-0.5\n\nmuch\n1\n4\n"))
    assert main(["study", "noam", "--predict", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "write c, r or u" in printed.err
    assert "You said: refuted, which is not what was measured." in printed.out
    assert "you said" in printed.out
    said = [printed.err.index(words) for words in ("Method: Read the rate", "Will it be", "seed 1 of 2")]
    assert said == sorted(said)


def test_answers_are_kept_by_their_value():
    said, numbers = ask(find_study("noam"), io.StringIO("confirmed\n-0.5\n\n1\n"), lambda line: None)
    assert said == "confirmed"
    assert [*numbers.values()] == [-0.5, 1.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["noan"], "unknown study 'noan'; did you mean noam?"),
        (["noam", "--break", "scale"], "noam has no switch 'scale'; choose one of: exponential"),
        (["noam", "--seeds", "1"], "--seeds is 1, but an interval needs two or more: choose 2 or more"),
        (["noam", "--predict"], "--predict reads your answers, but there are none"),
    ],
)
def test_mistakes_are_named(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["study", *arguments, "--output", str(tmp_path / "page")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "page").exists()
