"""The races: models of one size, one judgement for both, data that both can read, and the program."""

import json

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
    return module("contests").CONTESTS[request.param]


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
    contestants = module("time_to_loss")
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


CURVE = [
    {"step": 1, "seconds": 60.0, "tokens": 10, "loss": 6.0},
    {"step": 2, "seconds": 120.0, "tokens": 20, "loss": 4.0},
]


def test_the_target_is_reached_by_the_first_judgement_that_is_as_good(module):
    time_to = module("time_to_loss").time_to
    assert [time_to(target, CURVE) for target in (7.0, 6.0, 5.9, 3.9)] == [60.0, 60.0, 120.0, None]


@pytest.mark.parametrize(("seconds", "end"), [(120.0, "2.0 min | 10.0x |"), (None, "not reached |  |")])
def test_the_table_has_times_and_their_ratio_or_that_a_side_fails(module, seconds, end, tmp_path):
    machine = {"processor": "P", "instructions": "I", "python": "3", "versions": {}, "load_average": 0.1}
    slow = [point | {"seconds": 10 * point["seconds"]} for point in CURVE]
    sides = {
        "stock, rate 0.001": {"parameters": 100, "curve": slow, "seconds": 1200.0},
        "tercet, fast": {"parameters": 101, "curve": CURVE, "seconds": seconds},
    }
    race = {"target": 4.0, "sides": sides, "pilot_minutes": 1.0, "pilots": {"0.001": slow[0]}}
    result = {"date": "", "machine": machine, "conditions": {"threads": 2}, "is_noisy": False}
    text = module("time_to_loss").render(result | {"cases": {"encoder": race}})
    assert "target is 4.000 nats; the stock side's rates after 1 minute: 0.001: 6.000." in text
    assert text.endswith(f"| encoder | tercet, fast | 101 | 2 | 20 | 2.0 min | 4.000 | {end}")
    module("time_to_loss").draw({"cases": {"encoder": race}}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_program_races_both_sides_and_keeps_finished_runs(text, tmp_path, program):
    output = tmp_path / "result.json"
    overrides = ["training.steps=6", "training.stages=[]", "training.evaluate_every=2"]
    options = ["--cases", "encoder", "--data", text, "--rates", "1e-4", "1e-3"]
    options += ["--minutes", "0.05", "--pilot-minutes", "0.03"]
    options += ["--threads", "1", "--common-scheduler-group", "--override", *overrides]
    options += ["--folder", tmp_path / "runs", "--output", output, "--any-load"]
    printed = program("speed.py", "time_to_loss", *options)
    race = json.loads(output.read_text())["cases"]["encoder"]
    stock, tercet = race["sides"].values()
    assert stock["curve"][-1]["loss"] == race["target"]
    assert [point["step"] for point in tercet["curve"]] == [2, 4, 6]
    assert set(race["pilots"]) == {"0.0001", "0.001"}
    (log,) = (tmp_path / "runs" / "encoder").glob("tercet-*/log.jsonl")
    time = log.stat().st_mtime_ns
    assert program("speed.py", "time_to_loss", *options).splitlines()[-2:] == printed.splitlines()[-2:]
    assert log.stat().st_mtime_ns == time
