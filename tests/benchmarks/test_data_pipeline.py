"""The data pipeline's benchmark: equal examples on both sides, honest counts, and the whole program."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tercet.training.workers import DataCursor

ROOT = Path(__file__).parents[2]
PEERS = ["encoder", "encoder, pairs", "decoder", "seq2seq, translation"]


@pytest.fixture
def flow(request, module):
    return module("data_pipeline_sides").FLOWS[request.param].shrunk()


@pytest.mark.parametrize("flow", PEERS, indirect=True)
def test_both_sides_make_batches_of_the_same_tokens(flow, module, tmp_path):
    """Text and targets restored; the stock collators also keep every example once an epoch."""
    pipeline, steps = module("data_pipeline"), flow.steps(tmp_path / "corpus")
    examples = steps.source.epoch(0)
    found = [
        restored(part.batch["input_ids"], part.batch["labels"], "translation" in flow.name)
        for number in range(len(steps.plan(0)[1]))
        for part in steps[DataCursor(0, number)].parts
    ]
    expected = [
        restored(batch["input_ids"], batch["labels"], "translation" in flow.name)
        for batch in flow.stock(examples, tmp_path / "table")
    ]
    first = len(module("data_pipeline_sides").SIGNS)
    ours, theirs = (np.bincount(np.concatenate(tokens))[first:] for tokens in (found, expected))
    assert ours.tolist() == theirs.tolist()
    tokens = sum(
        len(examples[idx][name]) for idx in range(len(examples)) for name in pipeline.streams(examples)
    )
    assert pipeline.Pass(steps)() == pipeline.EPOCHS * tokens or "pairs" in flow.name, "pairs are drawn anew"


def restored(ids, labels, is_translation: bool) -> np.ndarray:
    ids, labels = ids.numpy().ravel(), labels.numpy().ravel()
    return (
        np.concatenate([ids, labels[labels >= 0]]) if is_translation else np.where(labels >= 0, labels, ids)
    )


def test_text_fills_58_percent_of_a_padded_batch(module, tmp_path):
    flow = module("data_pipeline_sides").FLOWS["encoder"]
    lengths = flow.steps(tmp_path).source.epoch(0).lengths
    assert lengths.max() == flow.sequence_length
    assert 0.56 < lengths.mean() / flow.sequence_length < 0.6


def test_speed_is_tokens_by_seconds(module):
    clock = iter([10.0, 14.0])
    assert module("data_pipeline").speed(lambda: 100, lambda: next(clock)) == 25


def test_table_relates_medians(module):
    flow = {"speeds": {"stock": [1.0, 2.0, 9.0], "tercet": [90.0, 100.0, 80.0]}, "speed_with_workers": 70.0}
    row = module("data_pipeline").row("encoder", flow)
    assert row == "| encoder | 2 | 1 to 9 | 90 | 80 to 100 | 45x | 70 |"
    alone = {"speeds": {"tercet": [90.0]}, "speed_with_workers": 70.0}
    assert module("data_pipeline").row("other", alone) == "| other | none | - | 90 | 90 to 90 | - | 70 |"


@pytest.mark.slow
def test_program_measures_both_sides_and_writes_them_down(tmp_path, module):
    begin, end = module("publishing").marks_of("data_pipeline.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    options = ["--smoke", "--flows", "encoder", "--rounds", "1", "--common-scheduler-group"]
    options += ["--output", output, "--page", page, "--any-load"]
    command = [sys.executable, ROOT / "benchmarks" / "data_pipeline.py", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    flow = json.loads(output.read_text())["flows"]["encoder"]
    assert list(flow["speeds"]) == ["stock", "tercet"]
    assert page.read_text() == f"before\n{begin}\n{printed}{end}\nafter\n"
