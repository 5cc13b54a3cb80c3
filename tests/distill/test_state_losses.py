"""Losses of inner states on numbers worked out by hand, and beside loops over all there is."""

import pytest
import torch

from tercet.distill.losses import (
    AttentionMapLoss,
    CosineLoss,
    HiddenStateLoss,
    LastHiddenStateLoss,
    RelationLoss,
)
from tercet.distill.model_outputs import Heads, ModelOutputs, RequiredOutputs, compute_outputs
from tercet.modeling import TercetEncoderConfig, TercetEncoderForMaskedLM

BOUNDS = torch.tensor([0, 3, 4, 8], dtype=torch.int32)
BATCH = {
    "input_ids": torch.zeros(1, 8),
    "cu_seq_lens_q": BOUNDS,
    "cu_seq_lens_k": BOUNDS,
    "max_length_q": 4,
    "max_length_k": 4,
    "index": torch.arange(3),
}
SEQUENCES = [(0, 3), (3, 4), (4, 8)]


def draw(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def states(values):
    return ModelOutputs(None, None, torch.as_tensor(values), {}, {})


@pytest.mark.parametrize("hidden", [True, False])
def test_layers_note_their_states_only_for_a_loss_that_reads_them(hidden):
    config = TercetEncoderConfig(vocab_size=10, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    model, given = TercetEncoderForMaskedLM(config), []
    model.model.register_forward_pre_hook(lambda _, __, named: given.append(named), with_kwargs=True)
    batch = BATCH | {"input_ids": BATCH["input_ids"].long()}
    found = compute_outputs(model, batch, torch.tensor([0]), RequiredOutputs(hidden=hidden))
    assert (given[0]["layer_states"] is not None) == hidden
    assert [len(layers) for layers in found.hidden.values()] == [3] * hidden


def heads(seed, layers, query_heads=2, key_heads=2, width=4, stack="encoder"):
    made = [
        Heads(*(draw(count, 8, width, seed=seed + 10 * layer + side)
                for side, count in enumerate((query_heads, key_heads, key_heads))))
        for layer in range(layers)
    ]  # fmt: skip
    return ModelOutputs(None, None, torch.zeros(0), {}, {stack: tuple(made)})


def test_cosine_by_hand():
    """Equal, at right angles, opposite: 0 + 1 + 2."""
    found = CosineLoss("cosine").compute(
        states([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), states([[5.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]), BATCH
    )
    assert found.item() == pytest.approx(3.0)


def test_last_states_by_hand():
    found = LastHiddenStateLoss("hidden_states", 1.0).compute(
        states([[1.0, 3.0], [0.0, 0.0]]), states([[0.0, 1.0], [0.0, 4.0]]), BATCH
    )
    assert found.item() == (1 + 4) / 2 + 16 / 2


def test_hidden_states_are_compared_at_the_same_height():
    own = ModelOutputs(
        None, None, torch.zeros(0), {"encoder": tuple(draw(8, 6, seed=i) for i in range(3))}, {}
    )
    theirs = ModelOutputs(
        None, None, torch.zeros(0), {"encoder": tuple(draw(8, 6, seed=9 + i) for i in range(5))}, {}
    )
    ours, right = own.hidden["encoder"], theirs.hidden["encoder"]
    expected = sum(
        (ours[i][token] - right[j][token]).square().mean() / 3
        for i, j in ((0, 0), (1, 2), (2, 4))
        for token in range(8)
    )
    torch.testing.assert_close(HiddenStateLoss("hidden_states").compute(own, theirs, BATCH), expected)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_attention_maps_are_those_of_a_loop(stack):
    """Student of two layers, teacher of four with one key for two queries."""
    own, theirs = heads(1, 2, stack=stack), heads(2, 4, key_heads=1, stack=stack)
    expected = torch.zeros((), dtype=torch.float64)
    for i, j in ((0, 1), (1, 3)):
        left, right = own.heads[stack][i], theirs.heads[stack][j]
        for first, last in SEQUENCES:
            for token in range(first, last):
                keys = range(first, token + 1 if stack == "decoder" else last)
                row = [
                    (left.query[h, token] @ left.key[h, k] / 2 - right.query[h, token] @ right.key[0, k] / 2)
                    ** 2
                    for h in range(2)
                    for k in keys
                ]
                expected += torch.stack(row).mean() / 2
    torch.testing.assert_close(AttentionMapLoss("attention_maps").compute(own, theirs, BATCH), expected)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_relations_are_those_of_a_loop(stack):
    """Vectors of 8 numbers against 12, in two heads against three, both cut into four parts."""
    own, theirs = heads(1, 2, stack=stack), heads(5, 3, query_heads=3, key_heads=3, stack=stack)
    expected = torch.zeros((), dtype=torch.float64)
    for ours, right in zip(own.heads[stack][-1], theirs.heads[stack][-2], strict=True):
        parts = [
            vectors.transpose(0, 1).reshape(8, 4, -1).transpose(0, 1) for vectors in (ours, right)
        ]  # (4, 8, d)
        for first, last in SEQUENCES:
            for token in range(first, last):
                keys = slice(first, token + 1 if stack == "decoder" else last)
                q, p = (
                    (each[:, token, None] * each[:, keys]).sum(-1).div(each.shape[-1] ** 0.5).softmax(-1)
                    for each in parts
                )
                expected += (p * (p / q).log()).sum() / 4
    found = RelationLoss("relations", 1.0, 4, teacher_layer=-2).compute(own, theirs, BATCH)
    torch.testing.assert_close(found, expected)


def test_relations_have_finite_gradients():
    own, theirs = heads(1, 1), heads(2, 1)
    query = own.heads["encoder"][0].query.requires_grad_()
    RelationLoss("relations", 1.0, 2).compute(own, theirs, BATCH).backward()
    assert query.grad.isfinite().all()
    assert query.grad.abs().sum() > 0


def test_targets_are_tokens_that_are_read():
    predicted = torch.tensor(5)
    both = BATCH | {"decoder_input_ids": torch.zeros(1, 3)}
    assert CosineLoss("cosine").count(BATCH, predicted) == 8
    assert CosineLoss("cosine").count(both, predicted) == 3
    for loss in (
        HiddenStateLoss("hidden_states"),
        AttentionMapLoss("attention_maps"),
        RelationLoss("relations", 1.0, 2),
    ):
        assert loss.count(BATCH, predicted) == 8
        assert loss.count(both, predicted) == 11
