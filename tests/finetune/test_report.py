"""The report of a fine-tuning is true also of runs that end early, few rows and repeated queries."""

import json
from types import SimpleNamespace

import pytest
from datasets import Dataset

import tercet
from tercet.finetune.learning import results_of
from tercet.finetune.run import explain
from tercet.finetune.tasks.ranking import RankingRecipe
from tercet.finetune.tasks.regression import RegressionRecipe
from tercet.finetune.tasks.task import build_task
from tercet.finetune.tasks.texts import ClassificationRecipe
from tercet.reports.blocks import Beside
from tercet.reports.finetune.report import best_and_worst, curve, glance, score_table
from tercet.training.loop import Progress

from ..reported import finetune, read_report, remove_report
from .conftest import write_rows


def test_the_curve_of_a_run_that_ended_early_ends_early(tmp_path, monkeypatch):
    """Half of 100 steps of two epochs is one epoch."""
    drawn = {}
    monkeypatch.setattr(
        "tercet.reports.finetune.report.draw_learning", lambda curves, *_: drawn.update(curves)
    )
    (tmp_path / "seed-0").mkdir()
    records = [{"step": step, "evaluation/accuracy": 0.5} for step in (25, 50)]
    log = "".join(f"{json.dumps(record)}\n" for record in records)
    (tmp_path / "seed-0" / "log.jsonl").write_text(log, encoding="utf-8")
    outcome = SimpleNamespace(progress=Progress(step=50, seconds=1.0))
    summary = {
        "kind": "classification",
        "criterion": "accuracy",
        "split": "test",
        "seeds": {"0": results_of({}, outcome, 100, {})},
        "best_seed": 0,
    }
    list(curve(None, summary, 2, tmp_path))
    assert drawn == {"seed 0": [(0.5, 0.5), (1.0, 0.5)]}


def shown(task, rows, predictions):
    """Return what stands above the lists, and what is in them: of each row its text and its mark."""
    _, about, beside = best_and_worst(task, rows, predictions, task.references(rows))
    assert isinstance(beside, Beside)
    return about.text, {
        name: [(each.lines[0].runs[0].text, each.lines[-1].runs[0].role) for each in own]
        for name, own in beside.lists
    }


def test_a_search_is_shown_once_and_right_only_if_it_is():
    queries = ["a", "b", "a", "c"]
    rows = Dataset.from_dict({"query": queries, "positive": ["x", "y", "z", "w"]})
    task = build_task(RankingRecipe(kind="ranking"), rows)
    ranks = {"a": 1 / 2, "b": 1.0, "c": 1 / 3}
    predictions = [{"ranked": ["y"], "mrr": ranks[query]} for query in queries]
    about, lists = shown(task, rows, predictions)
    assert about.startswith("Of 4 rows (3 distinct queries), by")
    assert lists == {
        "Correct predictions": [("b", "right")],
        "The largest errors": [("c", "wrong"), ("a", "wrong")],
    }


def test_a_wrong_label_is_marked_as_wrong_in_any_list():
    """Eleven rows are wrong, of which the least wrong one is beyond the list of the worst ten."""
    rows = Dataset.from_dict({"text": [str(row) for row in range(12)], "label": ["good", "bad"] * 6})
    task = build_task(ClassificationRecipe(kind="classification"), rows)
    predictions = []
    for row, label in enumerate(rows["label"]):
        other = "bad" if label == "good" else "good"
        scores = {label: 0.4 - row / 100, other: 0.6 + row / 100} if row else {label: 0.9, other: 0.1}
        predictions.append(
            {"label": max(scores, key=scores.get), "score": max(scores.values()), "scores": scores}
        )
    _, lists = shown(task, rows, predictions)
    assert lists["The smallest errors"] == [("0", "right"), ("1", "wrong")]


def test_the_nearest_numbers_are_good_ones():
    rows = Dataset.from_dict(
        {"text": [str(row) for row in range(12)], "score": [float(row) for row in range(12)]}
    )
    task = build_task(RegressionRecipe(kind="regression"), rows)
    _, lists = shown(task, rows, [{"score": row * 1.1} for row in range(12)])
    assert lists["The smallest errors"] == [("0", "right"), ("1", "right")]


def test_the_label_that_f1_is_of_is_named(recipe_of, tmp_path):
    recipe = recipe_of("classification", task={"metric_for_best_model": "f1"})
    pairs = [{"text": f"the cat {n}", "label": "not_" * (n % 2) + "equivalent"} for n in range(12)]
    for split in ("train", "validation"):
        write_rows(tmp_path / f"{split}.jsonl", pairs)
    assert "F1 of 'not_equivalent' of the validation rows" in explain(recipe)
    rows = Dataset.from_dict({"text": ["a", "b"], "label": ["not_equivalent", "equivalent"]})
    for order, second in (((), "not_equivalent"), (("not_equivalent", "equivalent"), "equivalent")):
        task = build_task(
            ClassificationRecipe(kind="classification", metric_for_best_model="f1", label_names=order), rows
        )
        summary = {
            "criterion": "f1",
            "kind": task.recipe.kind,
            "score_names": task.score_names,
            "split": "test",
            "seeds": {"0": {}},
            "baselines": {},
            "compared": {},
            "interval": [0.5, 0.7],
        }
        scores = {"accuracy": 0.7, "f1": 0.6, "f1_macro": 0.5}
        assert glance(summary, scores).title == f"F1 of '{second}'"
        names = [row[0] for row in score_table(summary, scores).rows]
        assert names == ["accuracy", f"F1 of '{second}'", "macro F1"]
    three = Dataset.from_dict({"text": ["a", "b", "c"], "label": ["x", "y", "z"]})
    assert build_task(ClassificationRecipe(kind="classification"), three).score_names == {}


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_reports_are_made_again_from_the_folder(recipe_of, tmp_path, seeds):
    recipe = recipe_of("classification", training={"seeds": seeds, "epochs": 1})
    finetune(recipe)
    made, evaluation = read_report(recipe.folder), (recipe.folder / "evaluation.json").read_bytes()
    assert "scores.json" in made
    remove_report(recipe.folder)
    assert tercet.report(recipe.folder / "model").folder == recipe.folder
    assert read_report(recipe.folder) == made
    assert (recipe.folder / "evaluation.json").read_bytes() == evaluation
    rows = tmp_path / "train.jsonl"
    rows.write_text(rows.read_text().replace("sat", "ran"))
    with pytest.raises(ValueError, match="is not what the run began with"):
        tercet.report(recipe.folder)
    assert read_report(recipe.folder) == made
