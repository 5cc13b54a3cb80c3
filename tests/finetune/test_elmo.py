"""ELMo learns labels of texts and of words, whole or frozen, and has no other heads."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.optim import AdamW

from tercet import TercetElmoModel
from tercet.data.steps.examples import pick
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.finetune.evaluation import evaluate_rows
from tercet.finetune.inputs import find_inputs
from tercet.finetune.model import freeze
from tercet.finetune.prepared import prepare

from ..small_elmo import small_config
from .conftest import WORDS


@pytest.fixture(scope="module")
def elmo(tmp_path_factory) -> Path:
    """Write a small untrained model with its tokenizer."""
    folder = tmp_path_factory.mktemp("elmo")
    tokenizer = train_tokenizer([" ".join(WORDS)] * 20, "words", 540)
    torch.manual_seed(0)
    model = TercetElmoModel(small_config(hidden_size=32, lstm_cell_size=48))
    model.learn_spelling(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def learned_scores(prepared, steps: int) -> float:
    """Learn sixteen rows, and tell the task's score on them."""
    task, train, model = prepared.task, prepared.splits["train"], prepared.pretrained.model.train()
    batch = task.objective().collate(pick(train.examples, np.arange(16)), 0)
    optimizer = AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(task.objective().losses(model, batch).values()).backward()
        optimizer.step()
    scores = evaluate_rows(model.eval(), task, train.rows, train.examples).scores
    return scores[task.metric_for_best_model]


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_sixteen_rows_are_learned_by_heart(kind, elmo, recipe_of):
    assert learned_scores(prepare(find_inputs(recipe_of(kind, model={"path": str(elmo)}))), 80) > 0.95


def test_a_frozen_language_model_stays_as_it_is(elmo, recipe_of):
    prepared = prepare(find_inputs(recipe_of("classification", model={"path": str(elmo)})))
    model = prepared.pretrained.model
    freeze(model, -1)
    learning = {name.partition(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {"mix", "classifier"}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learned_scores(prepared, 2)
    changed = {
        name.partition(".")[0] for name, value in model.state_dict().items() if (value != before[name]).any()
    }
    assert changed == {"mix", "classifier"}
    with pytest.raises(ValueError, match="has no layers to freeze one by one: use -1"):
        freeze(model, 1)


def test_other_heads_are_refused(elmo, recipe_of):
    with pytest.raises(
        ValueError, match=r"is an ELMo \(tercet_elmo\), but task.kind question_answering needs"
    ):
        prepare(find_inputs(recipe_of("question_answering", model={"path": str(elmo)})))
