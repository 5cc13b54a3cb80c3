"""The report of a fine-tuning says what is true also of runs that end early, few rows and repeated queries."""

import json
from types import SimpleNamespace

from tercet.finetune.learning import results_of
from tercet.finetune.report import curve


def test_the_curve_of_a_run_that_ended_early_ends_early(tmp_path, monkeypatch):
    """Half of 100 steps of two epochs is one epoch."""
    drawn = {}
    monkeypatch.setattr("tercet.finetune.report.draw_learning", lambda curves, *_: drawn.update(curves))
    (tmp_path / "seed-0").mkdir()
    records = [{"step": step, "evaluation/accuracy": 0.5} for step in (25, 50)]
    log = "".join(f"{json.dumps(record)}\n" for record in records)
    (tmp_path / "seed-0" / "log.jsonl").write_text(log, encoding="utf-8")
    outcome = SimpleNamespace(progress=SimpleNamespace(step=50, seconds=1.0))
    summary = {
        "criterion": "accuracy",
        "split": "test",
        "seeds": {"0": results_of({}, outcome, 100, {})},
        "best_seed": 0,
    }
    list(curve(None, summary, 2, tmp_path))
    assert drawn == {"seed 0": [(0.5, 0.5), (1.0, 0.5)]}
