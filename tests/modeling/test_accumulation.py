"""ELMo's heads learn from micro-batches what they learn from whole batches, the penalty included."""

import pytest
import torch
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments

from tercet import TercetElmoForSequenceClassification, TercetElmoForTokenClassification
from tercet.text.tokenizer import train_tokenizer

from ..small_elmo import TEXTS, small_config

LENGTHS = [3, 9, 5, 1, 7, 2, 8, 4]
NUM_LABELS, PAD = 4, 0


def elmo(task):
    model = task(small_config(vocab_size=540, num_labels=NUM_LABELS, mix_penalty=0.5))
    model.learn_spelling(train_tokenizer(TEXTS, "words", 540))
    torch.nn.init.normal_(model.mix.weights)
    return model


def rows(task) -> list[dict]:
    """Make rows of different lengths, with labels of the head's kind."""
    is_of_words = task is TercetElmoForTokenClassification
    return [
        {
            "input_ids": torch.randint(40, 120, (length,)),
            "labels": torch.randint(NUM_LABELS, (length,) if is_of_words else ()),
        }
        for length in LENGTHS
    ]


def collate(batch: list[dict]) -> dict[str, torch.Tensor]:
    """Pad rows on the right."""
    pad = torch.nn.utils.rnn.pad_sequence
    ids, labels = ([row[name] for row in batch] for name in ("input_ids", "labels"))
    are_of_words = labels[0].dim() == 1
    return {
        "input_ids": pad(ids, batch_first=True, padding_value=PAD),
        "attention_mask": pad([torch.ones_like(each) for each in ids], batch_first=True),
        "labels": pad(labels, True, -100) if are_of_words else torch.stack(labels),
    }


@pytest.mark.parametrize("task", [TercetElmoForSequenceClassification, TercetElmoForTokenClassification])
def test_trainer_accumulates_to_the_step_of_the_whole_batch(task, tmp_path):
    ends, starts = [], []
    for accumulation in (1, 4):
        torch.manual_seed(0)
        model, data = elmo(task), rows(task)
        starts.append({name: each.detach().clone() for name, each in model.named_parameters()})
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=len(data) // accumulation,
            gradient_accumulation_steps=accumulation, optim="sgd", learning_rate=1.0, max_grad_norm=0.0,
            lr_scheduler_type="constant", save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        Trainer(model, arguments, collate, train_dataset=data).train()
        ends.append({name: each.detach() for name, each in model.named_parameters()})
    assert any((ends[0][name] != starts[0][name]).any() for name in starts[0])
    assert_close(*ends, rtol=1e-4, atol=1e-6)
