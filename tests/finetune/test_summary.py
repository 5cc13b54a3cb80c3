"""The end of a fine-tuning: what is written is read back."""

import json
from types import SimpleNamespace

import pytest
from datasets import Dataset

from tercet.finetune.evaluation import Evaluation
from tercet.finetune.tasks.ranking import Ranking, RankingRecipe
from tercet.finetune.tasks.regression import Regression, RegressionRecipe
from tercet.reports.finetune.report import doubts, glance, interval_for_card
from tercet.reports.finetune.summary import read_predictions, summarize


def test_predictions_may_hold_what_unicode_calls_the_end_of_a_line(tmp_path):
    told = [{"text": f"a{end}b"} for end in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\n\r"]
    file = tmp_path / "predictions.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in told), encoding="utf-8")
    assert read_predictions(file) == told


def test_a_report_of_one_seed_speaks_of_no_deviation_and_names_each_baseline_once():
    summary = {"split": "test", "seeds": {"0": {}}, "baselines": {"majority class": {}, "bag of words": {}}}
    said = doubts(summary)
    assert "deviation" not in said
    assert "deviation" in doubts(summary | {"seeds": {"0": {}, "1": {}}})
    assert said.count("bag of words") == 1
    assert "majority class (guessing the most frequent label)" in said


def prepared_on(task, rows, *, fresh):
    """Stand for a fine-tuning that is learned from rows and measured on them."""
    return SimpleNamespace(
        task=task,
        measured=["test"],
        splits=dict.fromkeys(("train", "test"), SimpleNamespace(rows=rows)),
        pretrained=SimpleNamespace(fresh=fresh),
        shared_rows={},
        bad_rows={},
    )


@pytest.mark.parametrize("number", [1, 9])
def test_rows_of_few_queries_are_too_few(number, monkeypatch):
    """However many rows there are, an interval over one query has no width."""
    rows = Dataset.from_dict(
        {"query": [str(row % number) for row in range(40)], "positive": [str(row) for row in range(40)]}
    )
    task = Ranking(RankingRecipe(kind="ranking"))
    monkeypatch.setattr("tercet.reports.finetune.summary.unknown_in", lambda *_: 0.0)
    prepared = prepared_on(task, rows, fresh=False)
    predictions = [dict.fromkeys(task.metrics, 0.5) for _ in range(40)]
    scores = {
        "test": task.score(predictions, task.references(rows)),
        "seconds": 1.0,
        "steps": 1,
        "trained_on": {},
    }
    summary = summarize(prepared, {0: scores}, 0, predictions, Evaluation(predictions, scores["test"]))
    assert (summary["interval"], summary["compared"]) == (None, {})
    assert glance(summary, scores["test"]).about == "No 95 % interval: fewer than 10 distinct queries."
    assert interval_for_card("ranking", summary) == {}
    assert [each["text"] for each in summary["verdicts"]] == [
        f"Too few distinct queries to compare scores: {number}, where at least 10 are needed."
    ]


@pytest.mark.parametrize(
    ("shift", "said"),
    [(5.0, "Worse than guessing the mean (mean squared error"), (0.1, "Better than guessing the mean")],
)
def test_numbers_far_off_are_worse_than_the_mean_however_correlated(shift, said, monkeypatch):
    rows = Dataset.from_dict({"text": ["a"] * 40, "score": [number / 10 for number in range(40)]})
    task = Regression(RegressionRecipe(kind="regression"))
    monkeypatch.setattr("tercet.reports.finetune.summary.unknown_in", lambda *_: 0.0)
    prepared = prepared_on(task, rows, fresh=["head"])
    found = [{"score": score + shift} for score in rows["score"]]
    scores = {"test": task.score(found, task.references(rows)), "seconds": 1.0}
    summary = summarize(prepared, {0: scores}, 0, found, None)
    (verdict,) = summary["verdicts"]
    assert verdict["text"].startswith(said)
    assert verdict["text"].endswith(", with a Pearson correlation of 1.000.")
