"""The races: models of one size, one judgement for both, and data that both can read."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from tercet.pretraining.model import build_model
from tercet.pretraining.prepared import find_inputs, load_or_train_tokenizer
from tercet.training.objective import IGNORE


@pytest.fixture(params=["encoder", "decoder"])
def contest(request, module):
    return module("time_to_loss_contests").CONTESTS[request.param]


@pytest.fixture
def recipe(contest, text, tmp_path):
    return contest.our_recipe(text, tmp_path)


@pytest.fixture
def tokenizer(recipe):
    return load_or_train_tokenizer(recipe, find_inputs(recipe), None)


def test_the_models_have_equally_many_parameters_within_3_percent(contest, recipe, tokenizer):
    tokenizer.add_tokens([f"<{number}>" for number in range(8192 - len(tokenizer))])
    stock, ours = contest.stock(recipe, tokenizer), build_model(recipe, tokenizer)
    assert stock.num_parameters() == pytest.approx(ours.num_parameters(), rel=0.03)


def test_what_judges_is_always_the_same(contest, recipe, tokenizer):
    first, again = (contest.judges(recipe, tokenizer) for _ in range(2))
    for left, right in zip(first, again, strict=True):
        assert torch.equal(left["input_ids"], right["input_ids"])
        assert torch.equal(left["labels"], right["labels"])
    share = np.mean([float((batch["labels"] != IGNORE).float().mean()) for batch in first])
    assert share == pytest.approx(0.15 if contest.name == "encoder" else 1.0, abs=0.03)


def test_both_sides_are_judged_by_the_same_targets(contest, recipe, tokenizer, module):
    """A model that always gives the same answer has one loss on either side."""
    contestants = module("time_to_loss_contestants")
    scores = torch.randn(len(tokenizer), generator=torch.Generator().manual_seed(0))
    stock, ours = contest.stock(recipe, tokenizer), build_model(recipe, tokenizer)
    judges, objective = contest.judges(recipe, tokenizer), contest.objective(recipe, tokenizer)
    for model in (stock, ours):
        answer_always(model, scores)
    found = contestants.mean_loss(
        judges, objective, lambda b: contestants.our_loss(ours.eval(), objective, b)
    )
    assert contestants.stock_judge(contest, recipe, tokenizer)(stock) == pytest.approx(found, rel=1e-5)


def answer_always(model: PreTrainedModel, scores: torch.Tensor) -> None:
    """Put a head on the model that gives the same scores everywhere."""
    head = nn.Linear(model.config.hidden_size, len(scores))
    nn.init.zeros_(head.weight)
    head.bias = nn.Parameter(scores)
    model.set_output_embeddings(head)


def test_the_collator_pads_and_hides_as_transformers_does(contest, recipe, tokenizer):
    rows = [{"input_ids": list(range(5, 5 + size))} for size in (60, 90)]
    batch = contest.collator(tokenizer)(rows)
    assert batch["input_ids"].shape == (2, 90)
    assert batch["attention_mask"].sum(dim=1).tolist() == [60, 90]
    assert batch["attention_mask"][0, :60].all(), "on the right"
    targets = (batch["labels"] != IGNORE).sum()
    assert 5 < targets < 50 if contest.name == "encoder" else targets == 150
