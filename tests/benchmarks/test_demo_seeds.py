"""The table of several demonstrations: every task, every answer, and how far runs differ."""

import json

import pytest


def test_finished_runs_are_read_and_joined(module, tmp_path, capsys, monkeypatch):
    demo = module("demo_seeds")
    monkeypatch.setattr(demo, "run_demo", lambda *arguments, **options: pytest.fail("a run began"))
    for seed, score in enumerate((0.5, 0.7)):
        folder = tmp_path / f"seed-{seed}"
        folder.mkdir()
        answers = {"this model": {"score": score}, "chance": {"score": 0.25}}
        scores = {"scores": dict.fromkeys(demo.TASKS, answers), "verdicts": []}
        (folder / "scores.json").write_text(json.dumps(scores))
    page = tmp_path / "page.md"
    page.write_text("<!-- benchmarks/demo_seeds.py: begin -->\n<!-- benchmarks/demo_seeds.py: end -->\n")
    assert demo.main(["--seeds", "2", "--folder", str(tmp_path), "--page", str(page)]) == 0
    rows = page.read_text().splitlines()
    assert "| places a paragraph in its package | this model | 60.0 | 50.0, 70.0 |" in rows
    assert rows.count("|  | chance | 25.0 |  |") == len(demo.TASKS)
    assert capsys.readouterr().out
