"""Taggers: finished runs are not repeated, and the table has a row for each kind of word vectors."""

import json


def test_the_table_has_the_scores_of_finished_runs(module, tmp_path, capsys):
    for number, name in enumerate(("static", "flair-and-static")):
        (tmp_path / f"conll2003-{name}").mkdir()
        scores = {
            "criterion": "tag/f1",
            "split": "test",
            "mean": {"test": {"tag/f1": 0.75 + number / 10}},
            "standard_deviation": {"test": {"tag/f1": 0.01}},
            "interval": [0.7, 0.9],
        }
        (tmp_path / f"conll2003-{name}" / "scores.json").write_text(json.dumps(scores))
    arguments = ["--tasks", "conll2003", "--vectors", "static", "FLAIR and static", "--folder", str(tmp_path)]
    assert module("taggers").main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| word vectors | CoNLL-2003, F1 of names |",
        "|---|--:|",
        "| static | 75.0 ± 1.0 [70.0, 90.0] |",
        "| FLAIR and static | 85.0 ± 1.0 [70.0, 90.0] |",
    ]
