"""Teacher forcing: what the decoder reads, what it must say, and how that is counted."""

import numpy as np
import torch
from torch.nn import functional as F

from tercet.pretraining.objectives.translation import Translation

START, END = 0, 1
PAIRS = [([5, 6, 7, END], [8, 9, END]), ([5, END], [9, 8, 7, END])]


def make_batch(objective: Translation) -> dict:
    examples = [{"input_ids": np.array(source), "labels": np.array(target)} for source, target in PAIRS]
    return objective.collate(examples, 0)


class Echo(torch.nn.Module):
    """Answers every decoder position with the logits of the token that it reads; knows what it was asked."""

    def __init__(self):
        super().__init__()
        self.logits = torch.randn(12, 12, generator=torch.Generator().manual_seed(0))
        self.asked = {}

    def forward(self, decoder_input_ids, logits_to_keep=None, **asked):
        self.asked = asked
        logits = self.logits[decoder_input_ids[0]]
        if logits_to_keep is not None:
            return type("Output", (), {"logits": logits[logits_to_keep][None]})
        loss = F.cross_entropy(
            logits, asked["labels"][0], label_smoothing=asked["label_smoothing"], reduction=asked["reduction"]
        )
        return type("Output", (), {"loss": loss})


def test_decoder_reads_each_target_one_step_late():
    batch = make_batch(Translation(START))
    assert batch["input_ids"].tolist() == [[5, 6, 7, END, 5, END]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1]]
    assert batch["labels"].tolist() == [[8, 9, END, 9, 8, 7, END]]
    assert batch["decoder_input_ids"].tolist() == [[START, 8, 9, START, 9, 8, 7]]
    assert batch["decoder_position_ids"].tolist() == [[0, 1, 2, 0, 1, 2, 3]]
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 7]
    assert batch["max_length_q"] == 4
    assert batch["cu_seq_lens_k"].tolist() == [0, 4, 6]
    assert batch["max_length_k"] == 4


def test_training_smooths_and_evaluation_does_not():
    smoothed, plain, model = Translation(START, 0.1), Translation(START, 0.0), Echo()
    batch = make_batch(smoothed)
    loss, likelihood = smoothed.losses(model, batch)["translation"], plain.losses(model, batch)["translation"]
    assert loss > likelihood
    score = smoothed.scores(model, batch)["translation"]
    assert "labels" not in model.asked
    torch.testing.assert_close(score["loss"], likelihood)
    answers = model.logits[batch["decoder_input_ids"][0]].argmax(-1)
    assert score["accuracy"] == (answers == batch["labels"][0]).sum()
    assert smoothed.targets(batch) == {"translation": torch.tensor(7)}
