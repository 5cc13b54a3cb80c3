"""The model's operations and the machine's peak."""

import pytest
import torch

from tercet.data.steps.batches import Part, Step, StepDataset
from tercet.data.steps.objective import IGNORE
from tercet.data.steps.workers import DataCursor
from tercet.training.devices.utilization import count_flops_per_token, measure_peak

from ..modeling.conftest import build


def test_operations_are_six_per_token_and_weight_of_a_product(toys, objective, source):
    model = toys.Model(dropout=0.5)
    step = StepDataset(source, objective, tokens_per_step=200, tokens_per_micro_batch=80, seed=0)[0, 0]
    assert count_flops_per_token(model, step) == pytest.approx(6 * (16 * 16 + 16 * 23 + 16 * 2))


@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_attention_and_a_vocabulary_that_meets_targets_alone_are_added(member):
    model = build(member, "modern")
    ids, lengths = torch.zeros(1, 24, dtype=torch.long), torch.tensor([0, 4, 24])
    labels = torch.full((1, 24), IGNORE).index_fill(1, torch.arange(6), 1)
    batch = {"input_ids": ids, "labels": labels, "cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths}
    found = count_flops_per_token(model, Step(DataCursor(0, 0), (Part(batch, [0, 2]),), {}, 2, 24))
    head = model.get_output_embeddings().weight
    tables = {id(each.weight) for each in model.modules() if isinstance(each, torch.nn.Embedding)} | {
        id(head)
    }
    inner = sum(each.numel() for each in model.parameters() if each.dim() > 1 and id(each) not in tables)
    config = model.config
    assert config.head_dim is not None
    channels = config.num_hidden_layers * config.num_attention_heads * config.head_dim
    attention = 12 * channels * (4**2 + 20**2) / 24
    assert found == pytest.approx(6 * (inner + head.numel() / 4) + attention)


def test_a_machine_has_a_peak():
    assert measure_peak(torch.device("cpu"), "no") > 1e8
