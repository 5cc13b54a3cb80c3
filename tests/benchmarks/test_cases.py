"""What is measured: equal parameters, the promised filling, equal tokens on all sides."""

import numpy as np
import pytest

from tercet.training.packing import sequence_lengths


def test_both_models_have_equally_many_parameters(case):
    ours, stock = (sum(p.numel() for p in model.parameters()) for model in (case.tercet(), case.stock()))
    assert ours == stock


@pytest.mark.parametrize("name", ["encoder", "seq2seq"])
def test_text_fills_58_percent_of_a_padded_batch(module, name):
    case = module("cases").CASES[name]
    lengths = np.concatenate([case.lengths(np.random.default_rng(seed)) for seed in range(50)])
    assert lengths.max() == case.sequence_length
    assert 0.56 < lengths.mean() / case.sequence_length < 0.6


def test_grouping_changes_the_company_but_not_the_sequences(case):
    def sequences(batches):
        return sorted(tokens for batch in batches for tokens in sequence_lengths(batch))

    plain, grouped = case.batches(), case.grouped_batches()
    assert len(plain) == len(grouped) == case.num_batches
    assert sequences(plain) == sequences(grouped)
    assert sum(max(sequence_lengths(b)) for b in grouped) <= sum(max(sequence_lengths(b)) for b in plain)
