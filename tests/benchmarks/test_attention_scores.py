"""Recall of attention scores: what is asked stands in the text."""

from types import SimpleNamespace

import torch


def test_values_that_are_asked_stand_behind_their_keys(module):
    benchmark = module("attention_scores")
    texts, answers = benchmark.draw_texts(50, torch.Generator().manual_seed(0))
    num_pairs = benchmark.NUM_PAIRS
    for text, values in zip(texts.tolist(), answers.tolist(), strict=True):
        pairs, asked = text[: 2 * num_pairs], text[2 * num_pairs :]
        assert sorted(asked) == sorted(pairs[::2])
        assert [pairs[pairs.index(key) + 1] for key in asked] == values


def test_joined_values_carry_the_vectors_of_their_keys(module):
    benchmark, read = module("attention_scores"), []

    class Model:
        def get_input_embeddings(self):
            return torch.nn.Embedding.from_pretrained(torch.arange(32.0)[:, None])

        def __call__(self, inputs_embeds, logits_to_keep):
            read.append(inputs_embeds[..., 0])
            return SimpleNamespace(logits=inputs_embeds)

    texts, _ = benchmark.draw_texts(5, torch.Generator().manual_seed(0))
    for is_joined in (False, True):
        benchmark.values_read(Model(), texts, is_joined)
    expected = texts.clone()
    expected[:, 1:16:2] += texts[:, 0:16:2]
    assert read[0].equal(texts.float())
    assert read[1].equal(expected.float())


def test_every_score_is_timed_and_trained(module, capsys, monkeypatch):
    benchmark = module("attention_scores")
    monkeypatch.setattr(benchmark, "seconds", lambda score: [0.001, 0.002])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    assert benchmark.main(["--steps", "2", "--scores", "additive"]) == 0
    assert "| additive | 1.0 ms | 1.5 ms |" in capsys.readouterr().out
