"""Causal language modeling: who predicts whom."""

import numpy as np
import torch
from torch.nn import functional as F

from tercet.pretraining.objectives.causal_language_modeling import CausalLanguageModeling


class Successors(torch.nn.Module):
    """Answers every position with the logits of the token that it reads."""

    def __init__(self, logits: torch.Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, input_ids, logits_to_keep, **inputs):
        assert "labels" not in inputs
        return type("Output", (), {"logits": self.logits[input_ids[0, logits_to_keep]][None]})


def test_labels_are_the_input_and_first_tokens_no_targets():
    objective = CausalLanguageModeling()
    batch = objective.collate([{"input_ids": np.array(ids)} for ids in ([5, 6, 7], [8], [9, 5])], 0)
    assert batch["labels"].tolist() == batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 5]]
    assert batch["labels"].data_ptr() != batch["input_ids"].data_ptr()
    assert objective.targets(batch) == {"clm": torch.tensor(3)}


def test_scores_are_those_of_one_sequence_at_a_time():
    logits = torch.randn(12, 12, generator=torch.Generator().manual_seed(0))
    objective = CausalLanguageModeling()
    sequences = [np.array(ids) for ids in ([5, 6, 7, 11], [8], [9, 5])]
    scores = objective.scores(
        Successors(logits),
        objective.collate([{"input_ids": ids} for ids in sequences], 0),
    )
    expected = sum(
        F.cross_entropy(logits[ids[:-1]], torch.tensor(ids[1:]), reduction="sum") for ids in sequences
    )
    torch.testing.assert_close(scores["clm"]["loss"], expected)
    hits = sum((logits[ids[:-1]].argmax(-1) == torch.tensor(ids[1:])).sum() for ids in sequences)
    assert scores["clm"]["accuracy"] == hits
