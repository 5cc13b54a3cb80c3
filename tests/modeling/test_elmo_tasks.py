"""The heads of tasks on an ELMo: what they read, and what they learn."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from tercet import TercetElmoForSequenceClassification, TercetElmoForTokenClassification
from tercet.modeling.recurrent.words import encode_words
from tercet.text.tokenizer import train_tokenizer

from ..small_elmo import SENTENCES, TEXTS, small_config

TASKS = {
    TercetElmoForSequenceClassification: AutoModelForSequenceClassification,
    TercetElmoForTokenClassification: AutoModelForTokenClassification,
}


@pytest.fixture(scope="module")
def batch():
    tokenizer = train_tokenizer(TEXTS, "words", 540)
    texts = [" ".join(words) for words in SENTENCES]
    return tokenizer, tokenizer(texts, padding=True, return_tensors="pt")


@pytest.fixture
def build(batch):
    def build(task, **fields):
        torch.manual_seed(0)
        model = task(small_config(num_labels=3, **fields)).eval()
        model.learn_spelling(batch[0])
        torch.nn.init.normal_(model.mix.weights)
        return model

    return build


def labels_of(task, batch):
    is_of_tokens = task is TercetElmoForTokenClassification
    return torch.randint(3, batch["input_ids"].shape if is_of_tokens else (len(SENTENCES),))


def test_sequences_are_read_from_the_mean_of_the_mix(build, batch):
    model = build(TercetElmoForSequenceClassification)
    output = model(**batch[1], output_hidden_states=True)
    states = model.mix(output.hidden_states)
    is_token = batch[1]["attention_mask"] == 1
    means = torch.stack([row[own].mean(0) for row, own in zip(states, is_token, strict=True)])
    assert_close(output.logits, model.classifier.out_proj(means))


@pytest.mark.parametrize("task", TASKS)
def test_losses_are_those_of_the_labels_and_of_the_mix(build, batch, task):
    model, labels = build(task, mix_penalty=0.3), labels_of(task, batch[1])
    output = model(**batch[1], labels=labels)
    if task is TercetElmoForTokenClassification:
        labels = labels.masked_fill(batch[1]["attention_mask"] == 0, -100)
    penalty = 0.3 * model.mix.weights.pow(2).sum()
    assert_close(output.loss, F.cross_entropy(output.logits.flatten(0, -2), labels.flatten()) + penalty)
    output.loss.backward()
    learned = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not learned


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("reads", ["input_ids", "character_ids"])
@pytest.mark.parametrize("task", TASKS)
def test_pads_are_found_without_a_mask(build, batch, task, reads, mode):
    model = build(task)
    getattr(model, mode)()
    inputs = encode_words(SENTENCES) if reads == "character_ids" else dict(batch[1])
    given, mask = inputs[reads], inputs["attention_mask"]
    labels = labels_of(task, {"input_ids": mask})  # pads have some, too
    masked = model(**{reads: given}, attention_mask=mask, labels=labels, output_hidden_states=True)
    bare = model(**{reads: given}, labels=labels, output_hidden_states=True)
    assert_close(bare, masked, rtol=0, atol=0)
    if task is TercetElmoForTokenClassification:
        alone = F.cross_entropy(bare.logits[mask == 1], labels[mask == 1])
        assert_close(bare.loss, alone)


@pytest.mark.parametrize("task", TASKS)
def test_packed_words_are_told_by_positions_that_restart(build, task):
    model = build(task)
    rows = [encode_words([words])["character_ids"] for words in SENTENCES]
    positions = torch.cat([torch.arange(row.shape[1]) for row in rows])[None]
    packed = model(character_ids=torch.cat(rows, dim=1), position_ids=positions).logits
    alone = [model(character_ids=row).logits for row in rows]
    assert_close(packed, torch.cat(alone, dim=1 if task is TercetElmoForTokenClassification else 0))


@pytest.mark.parametrize("task", TASKS)
def test_packed_texts_have_the_labels_of_texts_alone(build, batch, task):
    model = build(task)
    is_token = batch[1]["attention_mask"] == 1
    rows = [ids[own] for ids, own in zip(batch[1]["input_ids"], is_token, strict=True)]
    bounds = torch.tensor([0, *map(len, rows)]).cumsum(0).int()
    packed = model(torch.cat(rows)[None], cu_seq_lens_q=bounds).logits
    alone = [model(row[None]).logits for row in rows]
    is_of_tokens = task is TercetElmoForTokenClassification
    assert_close(packed, torch.cat(alone, dim=1 if is_of_tokens else 0))


@pytest.mark.parametrize("task", TASKS)
def test_auto_classes_load_what_was_saved(build, batch, task, tmp_path):
    model = build(task)
    model.save_pretrained(tmp_path)
    loaded = TASKS[task].from_pretrained(tmp_path)
    assert type(loaded) is task
    assert_close(loaded(**batch[1]).logits, model(**batch[1]).logits)
