"""Every kind of task can be learned by every member: sixteen rows, by heart."""

import numpy as np
import pytest
import torch
from torch.optim import AdamW

from tercet.data.steps.examples import pick
from tercet.finetune.evaluation import evaluate_rows
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prepared import prepare
from tercet.finetune.splits import MEASURED

from .conftest import ROWS

MEMBERS = ("encoder", "decoder", "seq2seq")
CAN = {"ranking": ("encoder", "decoder")}
"""Kinds of tasks that not every member has a head for."""

STEPS = 120
LOOKS = 15
"""Steps between two looks at whether all is learned."""

LEARNED = 0.95


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        pytest.param(
            kind, member, marks=pytest.mark.slow if member == "seq2seq" and kind != "classification" else ()
        )
        for kind in ROWS
        for member in CAN.get(kind, MEMBERS)
    ],
)
def test_sixteen_rows_are_learned_by_heart(kind, member, recipe_of):
    prepared = prepare(find_inputs(recipe_of(kind, member, model={"overrides": {"dropout": 0.0}})))
    task, train, model = prepared.task, prepared.splits["train"], prepared.pretrained.model.train()
    batch = task.objective().collate(pick(train.examples, np.arange(16)), 0)
    optimizer = AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    untrained = evaluate_rows(model.eval(), task, train.rows, train.examples).scores
    learned = untrained
    for step in range(1, STEPS + 1):
        total = sum(task.objective().losses(model, batch).values())
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % LOOKS == 0:
            learned = evaluate_rows(model.eval(), task, train.rows, train.examples).scores
            if learned[task.metric_for_best_model] > LEARNED:
                break
    assert task.minimized_metric(learned) < task.minimized_metric(untrained)
    assert learned[task.metric_for_best_model] > LEARNED
    assert [name for name in prepared.splits if name in MEASURED] == prepared.measured
