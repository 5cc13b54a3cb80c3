"""What is answered is what the model says of all windows, and what is learned is the place in each."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tercet.finetune.evaluation import evaluate_rows, prediction_loop
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prediction import predict
from tercet.finetune.prepared import Prepared, prepare
from tercet.finetune.splits import encoder_of
from tercet.finetune.tasks.question_answering import best_spans
from tercet.reports.finetune.summary import bootstrap
from tercet.training.metrics.bootstrap import percentile_interval

from .conftest import sums_of_step

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
MODEL_INPUTS = ("input_ids", "token_type_ids", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k")
LENGTHS = {"encoder": 9, "decoder": 9, "seq2seq": 24}
STRIDES = {"encoder": 2, "decoder": 2, "seq2seq": 8}
"""Of windows that are shorter than most texts; the last tokenizer cuts words into letters."""

every_member = pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])


@pytest.fixture
def prepared_for(recipe_of):
    """Prepare a tiny model of a member for the task, whose windows hold few tokens."""

    def prepared_for(member: str, **task: Any) -> Prepared:
        return prepare(
            find_inputs(
                recipe_of(
                    "question_answering",
                    member,
                    count=5,
                    model={"overrides": {"dropout": 0.0}},
                    task={"stride": STRIDES[member]} | task,
                    data={"max_length": LENGTHS[member]},
                )
            )
        )

    return prepared_for


def whole_batch(prepared: Prepared) -> dict[str, Any]:
    """Collate all windows of the training rows."""
    examples = prepared.splits["train"].examples
    return prepared.task.objective().collate(examples.pack(np.arange(len(examples))), 0)


@every_member
def test_scores_and_loss_are_those_of_each_window_alone(member, prepared_for):
    prepared = prepared_for(member)
    model, objective, batch = (
        prepared.pretrained.model.eval(),
        prepared.task.objective(),
        whole_batch(prepared),
    )
    outputs = objective.outputs(model, batch)
    examples = prepared.splits["train"].examples
    surprise = []
    for scores, window in zip(outputs, (examples[index] for index in range(len(examples))), strict=True):
        inputs = {name: torch.from_numpy(window[name])[None] for name in window if name in MODEL_INPUTS}
        found = model(**inputs)
        alone = torch.stack((found.start_logits[0], found.end_logits[0]), dim=-1)
        assert_close(scores[: len(alone)], alone, **CLOSE)
        assert (scores[len(alone) :] == -torch.inf).all()
        surprise += [-alone.log_softmax(0)[place, side] / 2 for side, place in enumerate(window["labels"])]
    assert len(examples) > len(prepared.splits["train"].rows)
    assert_close(objective.loss(outputs, batch), torch.stack(surprise).sum(), **CLOSE)


def test_the_loss_is_that_of_the_models_themselves(prepared_for):
    prepared = prepared_for("encoder")
    model, objective, batch = (
        prepared.pretrained.model.eval(),
        prepared.task.objective(),
        whole_batch(prepared),
    )
    inputs = {name: value for name, value in batch.items() if name in MODEL_INPUTS}
    starts, ends = batch["labels"][:, 0].unbind(-1)
    expected = model(**inputs, start_positions=starts, end_positions=ends, reduction="sum").loss
    assert_close(objective.loss(objective.outputs(model, batch), batch), expected, **CLOSE)


def test_micro_batches_have_the_loss_of_the_step(prepared_for):
    prepared = prepared_for("encoder")
    step = prepared.pretrained.model.eval(), prepared.task.objective(), prepared.splits["train"].examples
    *found, count = sums_of_step(*step, limit=30)
    assert count > 1
    assert found == pytest.approx(sums_of_step(*step, limit=10**6)[:2], rel=1e-4)


@pytest.mark.parametrize("longest", [1, 3, 50])
def test_the_best_span_is_the_best_of_all(longest):
    start, end = torch.randn(2, 40, 7, generator=torch.Generator().manual_seed(0))
    start[:, 5] = end[:, 2] = -torch.inf
    found = [column.tolist() for column in best_spans(start, end, longest)]
    for row, (best, first, last) in enumerate(zip(*found, strict=True)):
        spans = [(a, b) for a in range(7) for b in range(a, min(a + longest, 7))]
        expected = max(spans, key=lambda span: float(start[row, span[0]] + end[row, span[1]]))
        assert (first, last) == expected
        assert best == pytest.approx(float(start[row, first] + end[row, last]))


@every_member
@torch.no_grad()
def test_predictions_are_the_best_of_all_windows_of_a_row(member, prepared_for):
    prepared = prepared_for(member, longest_answer=3)
    task, split, model = prepared.task, prepared.splits["train"], prepared.pretrained.model.eval()
    encoder = encoder_of(model, prepared.pretrained.tokenizer, LENGTHS[member])
    found = predict(model, task, split.rows.remove_columns("answers"), encoder, tokens_at_once=40)
    best: dict[int, tuple[float, str]] = {}
    none: dict[int, float] = {}
    for window in (split.examples[index] for index in range(len(split.examples))):
        inputs = {name: torch.from_numpy(window[name])[None] for name in window if name in MODEL_INPUTS}
        outputs, row = model(**inputs), int(window["rows"][0])
        start, end = (scores[0].softmax(0).numpy() for scores in (outputs.start_logits, outputs.end_logits))
        nowhere = int(window["nowhere"][0])
        none[row] = min(none.get(row, 1.0), float(start[nowhere] * end[nowhere]))
        for first in np.flatnonzero(window["begins"] >= 0):
            for last in range(first, min(first + 3, len(start))):
                if window["begins"][last] >= 0:
                    text = split.rows[row]["context"][window["begins"][first] : window["ends"][last]]
                    span = float(start[first] * end[last]), text
                    best[row] = max(best.get(row, span), span)
    assert task.facts["has_unanswerable"]
    for row, prediction in enumerate(found):
        score, text = best[row]
        assert prediction["no_answer_score"] == pytest.approx(none[row], abs=2e-5)
        assert prediction["score"] == pytest.approx(max(score, none[row]), abs=2e-5)
        assert prediction["answer"] == (text if score >= none[row] else "")
        if prediction["answer"]:
            begin = prediction["answer_start"]
            assert split.rows[row]["context"][begin : begin + len(text)] == text
        else:
            assert prediction["answer_start"] is None
    task.facts["has_unanswerable"] = False
    answers, _ = prediction_loop(model, task.objective(), split.examples, 40)
    assert [each["answer"] for each in task.predictions(answers, split.rows)] == [
        best[row][1] for row in range(len(found))
    ]


def test_scores_are_those_of_squad(prepared_for):
    prepared = prepared_for("encoder")
    task, split = prepared.task, prepared.splits["train"]
    judged = evaluate_rows(prepared.pretrained.model.eval(), task, split.rows, split.examples)
    assert set(judged.scores) == set(task.metrics)
    references = task.references(split.rows)
    right = [{"answer": (own or [""])[0], "score": 1.0, "no_answer_score": 0.0} for own in references]
    assert task.score(right, references)["f1"] == task.score(right, references)["exact_match"] == 1
    assert (task.error(right, references) == 0).all()
    assert percentile_interval(bootstrap(task, right, references)) == (1.0, 1.0)
    assert task.guess(split.rows, split.rows)[0]["answer"] == task.facts["most_frequent"]
    assert (
        task.format_prediction({"answer": "a", "score": 0.5}),
        task.format_reference(["a", "b", "a"]),
    ) == ("a (50%)", "a / b")
    assert (task.format_prediction({"answer": "", "score": 0.5}), task.format_reference([])) == (
        "(no answer) (50%)",
        "(no answer)",
    )
