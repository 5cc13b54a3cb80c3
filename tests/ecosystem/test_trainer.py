"""The stock `Trainer`: its steps are those of a plain loop over whole batches, and of ours."""

from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.optim import SGD
from torch.optim.lr_scheduler import ConstantLR
from torch.testing import assert_close
from transformers import DataCollatorWithFlattening, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

from tercet.data.steps.batches import StepDataset, endless_steps
from tercet.pretraining.objectives.causal_language_modeling import CausalLanguageModeling
from tercet.training.loop import Progress, Training, train

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def step_plainly(model, batch, steps=2):
    """Train on the whole batch at once."""
    optimizer = SGD(model.train().parameters(), lr=0.5)
    for _ in range(steps):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model


def assert_same_weights(model, expected):
    assert_close(dict(model.named_parameters()), dict(expected.named_parameters()), **CLOSE)


@pytest.mark.ecosystem("transformers", "`Trainer`, `gradient_accumulation_steps=...`")
@pytest.mark.parametrize("accumulation", [1, 4])
def test_trainer_steps_as_a_plain_loop(member, accumulation, build, rows, arguments, pad):
    model, expected = build(member), build(member)
    Trainer(model, arguments(accumulation), pad(model), train_dataset=rows).train()
    assert_same_weights(model, step_plainly(expected, pad(expected)(rows)))


@pytest.mark.ecosystem("transformers", "`Trainer` with `DataCollatorWithFlattening`")
@pytest.mark.parametrize("bounds", ["positions", "lengths"])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_flattened_batches_train_as_padded_ones(member, accumulation, bounds, build, rows, arguments, pad):
    model, expected = build(member), build(member)
    flatten = DataCollatorWithFlattening(return_flash_attn_kwargs=bounds == "lengths")
    Trainer(model, arguments(accumulation), flatten, train_dataset=rows).train()
    assert_same_weights(model, step_plainly(expected, pad(expected)(rows)))


class Rows:
    """The rows as our loop reads them."""

    def __init__(self, rows):
        self.rows = rows
        self.lengths = np.array([len(row["input_ids"]) for row in rows])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": np.array(self.rows[index]["input_ids"]), "index": index}

    def epoch(self, number):
        return self


@pytest.mark.ecosystem("transformers", "`Trainer` accumulates as our own loop does", member="decoder")
@pytest.mark.parametrize("collator", ["flattened", "padded"])
def test_trainer_accumulates_as_our_loop(collator, build, rows, arguments, pad):
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows]
    theirs, ours = build("decoder"), build("decoder").train()
    collate = DataCollatorWithFlattening() if collator == "flattened" else pad(theirs)
    Trainer(theirs, arguments(accumulation=4), collate, train_dataset=rows).train()

    objective, progress, optimizer = CausalLanguageModeling(), Progress(), SGD(ours.parameters(), lr=0.5)
    everything = sum(len(row["input_ids"]) for row in rows)
    sizes = {"tokens_per_step": everything, "tokens_per_micro_batch": 40}
    data = StepDataset(Rows(rows), objective, **sizes, seed=0)
    steps, schedule = endless_steps(data, progress.cursor), ConstantLR(optimizer, 1.0)
    train(Training(ours, objective, optimizer, schedule, Accelerator(cpu=True), 2, progress=progress), steps)
    assert progress.examples == 2 * len(rows)
    assert_same_weights(theirs, ours)


@pytest.mark.ecosystem("transformers", "`Trainer(label_smoothing_factor=...)`")
def test_smoothed_labels_are_the_right_ones(member, build, rows, arguments, pad):
    model = build(member)
    options = arguments(max_steps=1, learning_rate=0.0, label_smoothing_factor=0.1)
    trainer = Trainer(model, options, pad(model), train_dataset=rows)
    trainer.train()
    batch = pad(model)(rows)
    scores, labels = model.eval()(**batch).logits.log_softmax(-1), batch["labels"]
    if member == "decoder":
        scores, labels = scores[:, :-1], labels[:, 1:]
    scores, labels = scores[labels != -100], labels[labels != -100]
    expected = -(0.9 * scores.gather(-1, labels[:, None]).mean() + 0.1 * scores.mean())
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.ecosystem("transformers", "`Trainer(resume_from_checkpoint=...)`")
def test_resumed_training_ends_as_an_uninterrupted_one(member, build, rows, arguments, pad):
    ends = []
    for steps, resumes in ((4, False), (2, False), (4, True)):
        model = build(member)
        options = {"optim": "adamw_torch", "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 2}
        Trainer(
            model, arguments(accumulation=2, max_steps=steps, **options), pad(model), train_dataset=rows
        ).train(resume_from_checkpoint=resumes)
        ends.append(model)
    assert_same_weights(ends[2], ends[0])


@pytest.mark.ecosystem("transformers", "`Trainer.evaluate`, `Trainer.predict`")
def test_predictions_are_the_logits_of_each_row(member, build, rows, arguments, pad):
    model = build(member)
    found: Any = Trainer(model, arguments(per_device_eval_batch_size=3), pad(model)).predict(rows)
    # Beside an encoder, its states are predictions, too.
    logits = found.predictions[0] if member == "seq2seq" else found.predictions
    for row, theirs in zip(rows, torch.from_numpy(logits), strict=True):
        assert_close(theirs[: len(row["input_ids"])], model(**pad(model)([row])).logits[0], **CLOSE)
    losses = [model(**pad(model)(part)).loss.item() for part in (rows[:3], rows[3:6], rows[6:])]
    assert found.metrics["test_loss"] == pytest.approx(np.average(losses, weights=[3, 3, 2]), rel=1e-4)


@pytest.mark.ecosystem("transformers", "`Seq2SeqTrainer(predict_with_generate=True)`", member="seq2seq")
def test_predicted_texts_are_generated(build, rows, arguments, pad):
    model = build("seq2seq", eos_token_id=None)
    options = arguments(
        kind=Seq2SeqTrainingArguments,
        predict_with_generate=True,
        generation_max_length=9,
        per_device_eval_batch_size=8,
    )
    predicted = Seq2SeqTrainer(model, options, pad(model)).predict(rows).predictions
    for row, text in zip(rows, predicted, strict=True):
        expected = model.generate(torch.tensor([row["input_ids"]]), max_length=9, do_sample=False)
        assert text[:9].tolist() == expected[0].tolist()
