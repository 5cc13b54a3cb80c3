"""The data pipeline's benchmark: equal examples on both sides, and honest counts."""

import numpy as np
import pytest

from lab.benchmarks import data_pipeline
from tercet.data.steps.batches import endless_steps
from tercet.data.steps.workers import DataCursor


@pytest.fixture
def flow(request):
    return data_pipeline.FLOWS[request.param].shrunk()


@pytest.mark.parametrize("flow", data_pipeline.FLOWS, indirect=True)
def test_both_sides_make_batches_of_the_same_tokens(flow, tmp_path):
    """Text and targets restored; the stock collators also keep every example once an epoch."""
    steps = flow.steps(tmp_path / "corpus")
    examples, is_translation = steps.source.epoch(0), "translation" in flow.name
    found = [
        restored(part.batch["input_ids"], part.batch["labels"], is_translation)
        for number in range(len(steps.plan(0)[1]))
        for part in steps[DataCursor(0, number)].parts
    ]
    expected = [
        restored(batch["input_ids"], batch["labels"], is_translation)
        for batch in flow.stock(examples, tmp_path / "table")
    ]
    first = len(data_pipeline.SIGNS)
    ours, theirs = (np.bincount(np.concatenate(tokens))[first:] for tokens in (found, expected))
    assert ours.tolist() == theirs.tolist()
    streams = [name for name in ("input_ids", "labels") if name in examples[0]]
    tokens = sum(len(examples[idx][name]) for idx in range(len(examples)) for name in streams)
    number = len(steps.plan(0)[1])
    taken = data_pipeline.take(endless_steps(steps, DataCursor(0, 0)), number)
    assert taken == tokens == examples.lengths.sum()


def restored(ids, labels, is_translation: bool) -> np.ndarray:
    ids, labels = ids.numpy().ravel(), labels.numpy().ravel()
    if is_translation:
        return np.concatenate([ids, labels[labels >= 0]])
    return np.where(labels >= 0, labels, ids)


def test_text_fills_58_percent_of_a_padded_batch(tmp_path):
    flow = data_pipeline.FLOWS["encoder"]
    lengths = flow.steps(tmp_path).source.epoch(0).lengths
    assert lengths.max() == flow.sequence_length
    assert 0.56 < lengths.mean() / flow.sequence_length < 0.6


def test_the_time_of_a_pass_is_shared_by_its_tokens(monkeypatch):
    clock = iter([10.0, 14.0])
    monkeypatch.setattr(data_pipeline.time, "process_time", lambda: next(clock))
    assert data_pipeline.seconds_per_token(lambda: 100) == 0.04
