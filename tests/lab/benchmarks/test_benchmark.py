"""Benchmarks: sides do the same work, figures are what they are called, and the program runs."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import EvalPrediction

from lab import publishing
from lab.benchmarks import benchmark, cases, distillation, fewshot, finetuning, generation, pretraining
from lab.benchmarks.__main__ import NAMES, load
from lab.benchmarks.benchmark import main
from tercet.data.steps.packing import sequence_lengths

SMOKES = {
    "pretraining": ["--cases", "encoder"],
    "generation": ["--cases", "4x256"],
    "distillation": [],
    "data_pipeline": ["--cases", "encoder"],
    "fewshot": ["--cases", "4x256"],
}
"""Options with which each benchmark takes little time."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOKES)
def test_program_measures_all_sides_and_writes_them_down(name, tmp_path, program, capsys):
    if name == "fewshot":
        pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    begin, end = publishing.marks_of(name)
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    common = ["--smoke", "--rounds", "1", "--threads", "1"]
    printed = program("benchmarks", name, *SMOKES[name], *common, "--output", output, "--page", page)
    assert page.read_text() == f"before\n{begin}\n{printed}{end}\nafter\n"
    for case in json.loads(output.read_text())["cases"].values():
        for side in case["sides"].values():
            assert min(side["seconds"]) > 0
    assert main([name, "--render", "--output", str(output)], NAMES, load) == 0
    assert capsys.readouterr().out == printed


def test_a_result_that_is_not_there_is_asked_for(tmp_path, capsys):
    assert main(["finetuning", "--render", "--output", str(tmp_path / "none.json")], NAMES, load) == 2
    assert "none.json does not exist: measure something first" in capsys.readouterr().err


def test_a_table_of_fine_tuning_needs_no_model_but_a_measurement_does(capsys):
    assert main(["finetuning", "--render"], NAMES, load) == 0
    assert "| tercet |" in capsys.readouterr().out
    assert main(["finetuning"], NAMES, load) == 2
    assert "--model is missing: name the folder of a stock BERT" in capsys.readouterr().err


def test_shares_of_the_peak_count_what_a_token_needs(monkeypatch):
    sides = {"stock": {"seconds": [4.0]}, "tercet": {"seconds": [1.0]}}
    monkeypatch.setattr(benchmark, "measure", lambda *_: sides)
    monkeypatch.setattr(benchmark, "in_fresh_process", lambda *_: {"flops_per_token": 2.0})
    monkeypatch.setitem(pretraining.PEERS, "best_stock", ("stock",))
    options = SimpleNamespace(rounds=1)
    case, result = cases.CASES["encoder"].shrunk(), {"peaks": {"fp32": 100.0, "bf16": 400.0}}
    tercet = pretraining.BENCHMARK.measure(case, options, None, result)["sides"]["tercet"]
    tokens = sequence_lengths(case.pool()).sum()
    assert tercet["utilization"] == tokens * 2 / result["peaks"][tercet["precision"]]
    assert tercet["ratio_to_stock"] == 4


@pytest.fixture(params=["4x256", "12x768-batch-8"])
def writing(request):
    return generation.WRITING_CASES[request.param].shrunk()


def test_texts_in_float32_are_the_same(writing):
    texts = generation.compare_texts(writing)
    assert texts["num_new_tokens"] == 13
    assert texts["same_tokens"]["stock"] == texts["same_tokens"]["tercet"] == 1
    assert texts["same_tokens"].keys() == generation.WRITERS.keys()


def test_a_fifth_of_a_text_is_given():
    case = generation.WRITING_CASES["4x256-batch-8"]
    assert case.prompts().shape == (8, 32)
    assert case.num_new_tokens == 128


@pytest.mark.parametrize("name", ["stock", "stock-bf16", "tercet", "tercet-bf16"])
def test_every_side_writes(writing, name):
    text = generation.WRITERS[name].prepare(writing, torch.device("cpu"))()
    assert text.shape == (4, 13)


def test_both_ways_to_distil_compute_one_loss():
    told = distillation.compare(distillation.CASE.shrunk())
    assert told["difference"] < 1e-5
    assert told["stock"] > 1


def test_all_sides_score_choices_alike():
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    found = fewshot.compare_scores(fewshot.CASE.shrunk())
    for name, difference in found["difference"].items():
        assert difference < (0.5 if name.endswith("bf16") else 1e-4)
    assert found["same_picks"]["prefix-cache"] == found["same_picks"]["tercet"] == 1


@pytest.mark.parametrize(
    ("logits", "labels", "expected"),
    [
        ([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [1, 2], {"accuracy": 0.5}),
        (
            [[[9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0]] * 3],
            [[-100, 1, 2], [0, -100, -100]],
            {"span_f1": 2 / 3, "span_precision": 0.5, "span_recall": 1.0, "accuracy": 2 / 3},
        ),
    ],
)
def test_logits_of_trainer_are_scored_at_rows_or_at_words(logits, labels, expected):
    prediction = EvalPrediction(np.array(logits), np.array(labels))
    assert finetuning.scores(prediction, {0: "O", 1: "B-PER", 2: "I-PER"}) == pytest.approx(expected)


def test_finetuning_takes_turns_with_one_seed_after_another(monkeypatch, tmp_path):
    runs = []

    def side(contest, seed, folder, *, name):
        runs.append((name, seed))
        return {"score": 0.5 + seed / 10, "seconds": {"stock": 8.0, "stock-tuned": 6.0, "tercet": 2.0}[name]}

    monkeypatch.setattr(finetuning, "SIDES", {name: partial(side, name=name) for name in finetuning.SIDES})
    monkeypatch.setattr(finetuning, "in_fresh_process", lambda conditions, function, *given: function(*given))
    options = SimpleNamespace(model=tmp_path, data=tmp_path, rounds=2)
    found = finetuning.measure_task(finetuning.BENCHMARK.cases["sst2"], options, None, {})
    assert runs == [("stock", 0), ("stock-tuned", 0), ("tercet", 0), ("tercet", 1), ("stock-tuned", 1)]
    lines = publishing.table(
        finetuning.BENCHMARK.columns, [{"case": "sst2", "side": "tercet"} | found["sides"]["tercet"]], "lllr"
    )
    assert lines[-1] == "| sst2 (2,500 rows) | accuracy | tercet | 0.55 ± 0.071 | 2 | 3.00x | 4.00x |"
