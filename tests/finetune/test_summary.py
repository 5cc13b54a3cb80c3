"""The end of a fine-tuning: what is written is read back."""

import json

from tercet.finetune.report import doubts
from tercet.finetune.summary import read_predictions


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
