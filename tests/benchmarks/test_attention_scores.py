"""Recall of attention scores: what is asked stands in the text."""

import torch


def test_the_value_that_is_asked_stands_behind_its_key(module):
    texts, answers = module("attention_scores").draw_texts(50, torch.Generator().manual_seed(0))
    for text, answer in zip(texts.tolist(), answers.tolist(), strict=True):
        *pairs, key = text
        assert pairs.count(key) == 1
        assert pairs[pairs.index(key) + 1] == answer


def test_every_score_is_timed_and_trained(module, capsys, monkeypatch):
    benchmark = module("attention_scores")
    monkeypatch.setattr(benchmark, "seconds", lambda score: [0.001, 0.002])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    assert benchmark.main(["--steps", "2", "--scores", "additive"]) == 0
    assert "| additive | 1.0 ms | 1.5 ms |" in capsys.readouterr().out
