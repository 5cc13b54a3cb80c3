"""Choices are scored one by one and compared within their row, however rows are packed and cut."""

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import Tensor
from torch.testing import assert_close

from tercet.finetune.encoding import LabelledExamples, TextEncoder
from tercet.finetune.evaluation import evaluate_rows
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prediction import predict
from tercet.finetune.prepared import Prepared, prepare
from tercet.finetune.splits import encoder_of
from tercet.finetune.tasks.multiple_choice import MultipleChoice, MultipleChoiceRecipe

from .conftest import sums_of_step

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ROWS = [
    {"query": "the cat sat", "choices": ["under the tree", "over"], "gold": 1},
    {"query": "a dog", "choices": ["ran", "ate the big fish", "saw a tree", "sat"], "gold": 3},
    {"query": "the small fish saw the cat", "choices": ["a", "a big dog", "the"], "gold": 0},
    {"query": "a tree", "choices": ["ran", "sat"], "gold": 0},
]
"""As many choices as one likes."""

every_member = pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])


@pytest.fixture
def prepared_for(recipe_of):
    """Prepare a tiny model of a member for the task."""

    def prepared_for(member: str) -> Prepared:
        return prepare(
            find_inputs(recipe_of("multiple_choice", member, model={"overrides": {"dropout": 0.0}}))
        )

    return prepared_for


def encode(prepared: Prepared, rows: list[dict[str, Any]]) -> tuple[TextEncoder, LabelledExamples]:
    encoder = encoder_of(prepared.pretrained.model, prepared.pretrained.tokenizer, None)
    return encoder, prepared.task.examples(Dataset.from_list(rows), encoder)


def scores_alone(prepared: Prepared, encoder: TextEncoder, row: dict[str, Any]) -> Tensor:
    """Score the choices of a row, each in a batch of its own (K,)."""
    found = []
    for choice in row["choices"]:
        fields = encoder.encode([row["query"]], [choice])
        inputs = {name: torch.from_numpy(field.values)[None, None] for name, field in fields.items()}
        found.append(prepared.pretrained.model(**inputs).logits[0, 0])
    return torch.stack(found)


@every_member
def test_scores_and_loss_are_those_of_each_choice_alone(member, prepared_for):
    prepared = prepared_for(member)
    model, objective = prepared.pretrained.model.eval(), prepared.task.objective()
    encoder, examples = encode(prepared, ROWS)
    batch = objective.collate(examples.pack(np.arange(len(ROWS))), 0)
    outputs = objective.outputs(model, batch)
    loss = objective.loss(outputs, batch)
    loss.backward()
    gradients = {
        name: weight.grad.clone() for name, weight in model.named_parameters() if weight.requires_grad
    }
    model.zero_grad()
    expected = [scores_alone(prepared, encoder, row) for row in ROWS]
    for found, own in zip(objective.answers(outputs.detach(), batch), expected, strict=True):
        assert_close(torch.from_numpy(found), own.detach(), **CLOSE)
    surprise = [-own.log_softmax(0)[row["gold"]] for own, row in zip(expected, ROWS, strict=True)]
    torch.stack(surprise).sum().backward()
    assert_close(loss, torch.stack(surprise).sum(), **CLOSE)
    for name, weight in model.named_parameters():
        assert_close(weight.grad, gradients[name], rtol=1e-3, atol=1e-5)


@every_member
def test_micro_batches_have_the_loss_of_the_step_and_cut_no_row(member, prepared_for):
    prepared = prepared_for(member)
    _, examples = encode(prepared, ROWS)
    step = prepared.pretrained.model.eval(), prepared.task.objective(), examples
    whole = sums_of_step(*step, limit=10**6)
    *found, count = sums_of_step(*step, limit=int(examples.lengths.max()))
    assert count > 1
    assert whole[1] == len(ROWS)
    assert found == pytest.approx(whole[:2], rel=1e-4)


def test_predictions_stand_in_the_order_of_rows_and_sum_to_one(prepared_for):
    prepared = prepared_for("encoder")
    model, task, rows = prepared.pretrained.model.eval(), prepared.task, Dataset.from_list(ROWS)
    encoder, examples = encode(prepared, ROWS)
    found = predict(model, task, rows.remove_columns("gold"), encoder, tokens_at_once=8)
    for prediction, row in zip(found, ROWS, strict=True):
        expected = scores_alone(prepared, encoder, row).softmax(0)
        assert_close(torch.tensor(prediction["scores"]), expected, rtol=0, atol=1e-5)
        assert prediction["choice"] == expected.argmax()
        assert sum(prediction["scores"]) == pytest.approx(1, abs=1e-5)
    judged = evaluate_rows(model, task, rows, examples)
    right = [each["choice"] == row["gold"] for each, row in zip(found, ROWS, strict=True)]
    assert judged.scores["accuracy"] == pytest.approx(np.mean(right))
    surprise = [-np.log(each["scores"][row["gold"]]) for each, row in zip(found, ROWS, strict=True)]
    assert judged.scores["loss"] == pytest.approx(np.mean(surprise), rel=1e-4)
    error = task.error(found, task.references(rows))
    assert [float(value) == 0 for value in error] == right


@every_member
def test_a_long_text_leaves_every_choice_its_place(member, prepared_for):
    prepared = prepared_for(member)
    tokenizer = prepared.pretrained.tokenizer
    encoder = TextEncoder(tokenizer, 16, has_token_types=member == "encoder")
    with pytest.warns(UserWarning, match="they are truncated"):
        ids = encoder.encode(["the cat sat " * 9], ["over"])["input_ids"][0].tolist()
    between = "" if encoder.frames else tokenizer.eos_token
    own = tokenizer(f"{between}over", add_special_tokens=False)["input_ids"]
    closing = [tokenizer.sep_token_id] if encoder.frames else []
    assert len(ids) == 16
    assert ids[-len(own + closing) :] == own + closing


def task_of(rows: list[dict[str, Any]]) -> MultipleChoice:
    recipe = MultipleChoiceRecipe(kind="multiple_choice")
    return MultipleChoice(recipe, MultipleChoice(recipe).find(Dataset.from_list(rows)))


def test_the_guess_without_reading_is_what_is_right_most_often():
    rows = Dataset.from_list(ROWS)
    assert [each["choice"] for each in task_of(ROWS).guess(rows, rows)] == [0, 0, 0, 0]
    task = task_of([ROWS[1]])
    guesses = task.guess(rows, rows)
    assert [each["choice"] for each in guesses] == [1, 3, 2, 1]  # the last one where there is no fourth
    assert guesses[0]["scores"] == [0, 1]
    assert task.score(guesses, task.references(rows)) == {"accuracy": 0.5}


def test_predictions_are_told_in_words():
    task, prediction = task_of(ROWS), {"choice": 1, "scores": [0.25, 0.75]}
    assert (task.format_prediction(prediction), task.format_reference(0)) == ("1 (75%)", "0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"choices": ["over"]},
            r"row 2 has no list of two or more in column 'choices' \(\['over'\]\): correct",
        ),
        ({"choices": ["over", " "]}, "row 2 has ' ' in column 'choices', which is no text: correct it"),
        ({"gold": 2}, "row 2 has 2 in column 'gold', but choices 0 to 1: correct it"),
        ({"gold": -1}, "row 2 has -1 in column 'gold', but choices 0 to 1: correct it"),
        ({"query": ""}, "row 2 has no text in column 'query'"),
    ],
)
def test_rows_that_cannot_be_used_are_named(change, message, prepared_for):
    good = {"query": "the cat", "choices": ["sat", "ran"], "gold": 0}
    with pytest.raises(ValueError, match=message):
        encode(prepared_for("encoder"), [good, good | change])


def test_that_the_first_choice_is_never_right_is_told():
    """Numbers from 1 to 3 of four choices are possible ones, and shifted by one."""
    rows = [{"query": "q", "choices": list("abcd"), "gold": 1 + row % 3} for row in range(30)]
    with pytest.warns(UserWarning, match="none of 30 rows has 0: if it counts from 1, subtract 1 from each"):
        task_of(ROWS).require_consistent(Dataset.from_list(rows))
