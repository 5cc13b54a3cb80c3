"""Taggers: finished runs are not repeated, and the table has a row for each kind of word vectors."""

import json

import yaml


def test_the_table_has_the_scores_of_finished_runs(module, tmp_path, capsys):
    rows = [{"tokens": ["the", "dog"], "ner_tags": ["O", "O"]}, {"tokens": ["Rex"], "ner_tags": ["B-PER"]}]
    for file, kept in (("train.jsonl", rows[:1]), ("test.jsonl", [*rows, rows[1]])):
        (tmp_path / file).write_text("".join(f"{json.dumps(row)}\n" for row in kept))
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "test")}
    recipe = {
        "model": {"path": "somewhere"},
        "task": {"kind": "tagging", "words": "tokens", "tags": "ner_tags"},
        "data": files | {"validation": files["test"]},
        "output": "somewhere",
    }
    predicted = [["O", "O"], ["B-PER"], ["O"]]
    for number, name in enumerate(("static", "flair-and-static")):
        folder = tmp_path / f"conll2003-{name}"
        folder.mkdir()
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        (folder / "predictions.jsonl").write_text(
            "".join(f"{json.dumps({'ner_tags': tags})}\n" for tags in predicted)
        )
        scores = {
            "criterion": "tag/f1",
            "split": "test",
            "mean": {"test": {"tag/f1": 0.75 + number / 10}},
            "standard_deviation": {"test": {"tag/f1": 0.01}},
            "interval": [0.7, 0.9],
        }
        (folder / "scores.json").write_text(json.dumps(scores))
    arguments = ["--tasks", "conll2003", "--vectors", "static", "FLAIR and static", "--folder", str(tmp_path)]
    assert module("taggers").main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| word vectors | CoNLL-2003, F1 of names | unseen words |",
        "|---|--:|--:|",
        "| static | 75.0 ± 1.0 [70.0, 90.0] | 50.0 |",
        "| FLAIR and static | 85.0 ± 1.0 [70.0, 90.0] | 50.0 |",
    ]
