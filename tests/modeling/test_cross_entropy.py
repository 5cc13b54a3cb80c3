"""The chunked loss against its definition, in value and gradients."""

import math

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from tercet.modeling.heads import losses as cross_entropy
from tercet.modeling.heads.losses import (
    IGNORE,
    LossChunk,
    cross_entropy_sum,
    linear_cross_entropy,
    lm_head_loss,
    logits_loss,
)

N, C, V = 23, 8, 31


@pytest.fixture
def case():
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(N, C), torch.randn(V, C), torch.randn(V)
    return [x.double().requires_grad_() for x in (hidden, weight, bias)], torch.randint(0, V, (N,))


@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows_per_chunk", [1, 5, N, 100])
def test_chunks_equal_the_definition(case, z_loss, smoothing, has_bias, rows_per_chunk, monkeypatch):
    monkeypatch.setitem(cross_entropy.CHUNK_BYTES, "cpu", rows_per_chunk * V * 8)
    (hidden, weight, bias), labels = case
    bias = bias if has_bias else None
    inputs = [x for x in (hidden, weight, bias) if x is not None]
    fast = linear_cross_entropy(hidden, weight, bias, labels, smoothing, z_loss)
    slow = cross_entropy_sum(F.linear(hidden, weight, bias), labels, smoothing, z_loss)
    assert_close(fast, slow)
    assert_close(torch.autograd.grad(3 * fast, inputs), torch.autograd.grad(3 * slow, inputs))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", [(0.0, 0.0), (0.1, 0.3)])
def test_a_compiled_chunk_equals_the_definition(case, settings, backend, monkeypatch):
    """With gaps, in one graph for chunks of one size."""
    monkeypatch.setitem(cross_entropy.CHUNK_BYTES, "cpu", 8 * V * 8)
    inputs, labels = case[0], torch.cat([case[1], torch.tensor([IGNORE])])
    inputs[0] = torch.cat([inputs[0].detach(), torch.randn(1, C).double()]).requires_grad_()
    labels[::5] = IGNORE
    chunk, frames = LossChunk(), CompileCounterWithBackend(backend)
    chunk.compile(fullgraph=True, dynamic=False, backend=frames)
    fast = linear_cross_entropy(*inputs, labels, *settings, has_gaps=True, chunk=chunk)
    slow = cross_entropy_sum(F.linear(*inputs), labels, *settings)
    assert_close(fast, slow)
    assert_close(torch.autograd.grad(3 * fast, inputs), torch.autograd.grad(3 * slow, inputs))
    assert frames.frame_count == 1


@pytest.mark.parametrize("distance", [60, 90, 1000])
def test_a_word_held_for_impossible_costs_its_distance(distance):
    """However far below the others, and however little of its probability a float32 keeps."""
    weight = torch.cat([torch.zeros(V - 1, 1), torch.full((1, 1), -float(distance))]).requires_grad_()
    hidden, labels = torch.ones(3, 1), torch.tensor([V - 1, 0, V - 1])
    fast = linear_cross_entropy(hidden, weight, None, labels)
    slow = cross_entropy_sum(F.linear(hidden.double(), weight.double()), labels)
    assert_close(fast.double(), slow, rtol=1e-6, atol=0)
    assert_close(*(torch.autograd.grad(x, weight)[0] for x in (fast, slow)))


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_takes_nothing_from_doubt_or_certainty(dtype, smoothing, z_loss):
    """From labels of probability 1e-40 to such that only a millionth is missing: in loss and gradient."""
    torch.manual_seed(0)
    margins = torch.arange(-90, 24, 1.5)
    logits = torch.randn(len(margins), 4000)
    labels = torch.randint(4000, (len(margins),))
    logits[range(len(margins)), labels] = margins
    logits = logits.to(dtype)
    exact = logits.double().requires_grad_()
    losses = F.cross_entropy(exact, labels, reduction="none", label_smoothing=smoothing)
    losses = losses + z_loss * exact.exp().sum(-1).log().square()
    (gradient,) = torch.autograd.grad(losses.sum(), exact)
    for row, label in enumerate(labels):
        one = slice(row, row + 1)
        loss, found = cross_entropy._softmax_gradient(logits[one].clone(), labels[one], smoothing, z_loss)
        assert_close(loss[0].double(), losses[row], rtol=1e-2, atol=1e-6)
        assert_close(found[0, label].double(), gradient[row, label], rtol=2e-2, atol=1e-6)
        assert (found[0].double() - gradient[row]).norm() < 2e-2 * gradient[row].norm() + 1e-6


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_autocast_computes_in_half_precision_and_returns_full(case, z_loss):
    (hidden, weight, bias), labels = case
    hidden, weight, bias = (x.detach().float().requires_grad_() for x in (hidden, weight, bias))
    exact = linear_cross_entropy(hidden, weight, bias, labels, z_loss=z_loss)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = linear_cross_entropy(hidden, weight, bias, labels, z_loss=z_loss)
    assert rounded.dtype == torch.float32
    assert rounded != exact
    assert_close(rounded, exact, rtol=2e-2, atol=0)
    for fast, slow in zip(
        *(torch.autograd.grad(x, (hidden, weight, bias)) for x in (rounded, exact)), strict=True
    ):
        assert fast.dtype == torch.float32
        assert (fast - slow).norm() / slow.norm() < 2e-2


def test_a_counter_of_operations_reads_the_loss():
    """As a run does in its first step; the counter asks what each module reads for its gradient."""
    hidden, weight = torch.randn(5, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        linear_cross_entropy(hidden, weight, None, torch.arange(5)).backward()
    assert counter.get_total_flops() == 3 * 2 * 5 * 8 * 11


def test_smoothed_targets_sum_to_one():
    """With six words and 0.1 to spread, the true word keeps 0.9 + 0.1/6: the mass is one, not more."""
    logits = torch.randn(1, 6, dtype=torch.float64)
    target = torch.full((6,), 0.1 / 6, dtype=torch.float64)
    target[2] += 0.9
    assert target.sum() == pytest.approx(1)
    assert target[2] == pytest.approx(0.9167, abs=1e-4)
    expected = -(target * logits.log_softmax(-1)).sum()
    assert_close(cross_entropy_sum(logits, torch.tensor([2]), 0.1), expected)


def test_a_z_loss_by_hand():
    """Logits ln 1, ln 2 and ln 5 have Z = 8, so that the loss of the second is ln 8 - ln 2 + 0.5 (ln 8)^2."""
    logits = torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64).log().requires_grad_()
    loss = cross_entropy_sum(logits, torch.tensor([1]), z_loss=0.5)
    log_z = math.log(8)
    assert loss.item() == pytest.approx(math.log(4) + 0.5 * log_z**2)
    (gradient,) = torch.autograd.grad(loss, logits)
    probabilities = torch.tensor([[1, 2, 5]], dtype=torch.float64) / 8
    assert_close(gradient, (1 + log_z) * probabilities - torch.tensor([[0, 1, 0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_takes_nothing_from_a_small_z_loss(dtype):
    """1e-4 of PaLM raises all gradients by 2e-3, which is half a digit of a probability in 16 bits."""
    torch.manual_seed(0)
    logits, labels = torch.randn(8, 4000).to(dtype), torch.arange(8)
    found = cross_entropy._softmax_gradient(logits.clone(), labels, 0.0, 1e-4)[1].double()
    probabilities, log_z = logits.double().softmax(-1), logits.double().logsumexp(-1)
    for gradients in (found, probabilities):
        gradients[range(8), labels] = 0
    raised = found.sum(-1) / probabilities.sum(-1) - 1
    assert_close(raised, 2e-4 * log_z, rtol=0.05, atol=0)


def test_no_z_loss_is_exactly_none(case):
    (hidden, weight, bias), labels = case
    logits = F.linear(hidden, weight, bias)
    usual, none = (
        F.cross_entropy(logits, labels, reduction="sum"),
        cross_entropy_sum(logits, labels, z_loss=0.0),
    )
    assert torch.equal(usual, none)
    assert usual.grad_fn is not None
    assert type(usual.grad_fn) is type(none.grad_fn)


def test_only_targets_count(case):
    (hidden, weight, bias), labels = case
    head = nn.Linear(C, V).double()
    head.weight.data, head.bias.data = weight.data, bias.data
    labels[::3] = IGNORE
    chosen = labels != IGNORE
    mean = lm_head_loss(hidden, labels, nn.Identity(), head)
    assert_close(mean, F.cross_entropy(head(hidden[chosen]), labels[chosen]))
    assert_close(lm_head_loss(hidden, labels, nn.Identity(), head, reduction="sum"), mean * chosen.sum())
    assert_close(
        lm_head_loss(hidden, labels, nn.Identity(), head, num_items_in_batch=7), mean * chosen.sum() / 7
    )
    assert_close(logits_loss(head(hidden), labels), mean)
    log_z = head(hidden[chosen]).logsumexp(-1)
    assert_close(
        lm_head_loss(hidden, labels, nn.Identity(), head, z_loss=0.2), mean + 0.2 * log_z.square().mean()
    )
    assert_close(logits_loss(head(hidden), labels, z_loss=0.2), mean + 0.2 * log_z.square().mean())


def test_a_head_that_is_not_plain_is_called(case):
    (hidden, _, _), labels = case

    class Doubled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    head = Doubled(C, V).double()
    expected = F.cross_entropy(head(hidden), labels)
    assert_close(lm_head_loss(hidden, labels, nn.Identity(), head), expected)
    expected += 0.2 * head(hidden).logsumexp(-1).square().mean()
    assert_close(lm_head_loss(hidden, labels, nn.Identity(), head, z_loss=0.2), expected)


def test_a_batch_without_targets_costs_nothing(case):
    (hidden, _, _), labels = case
    nothing = torch.full_like(labels, IGNORE)
    loss = lm_head_loss(hidden, nothing, nn.Identity(), nn.Linear(C, V).double(), z_loss=0.2)
    loss.backward()
    assert loss == 0
    assert hidden.grad.abs().max() == 0


@pytest.mark.parametrize("z_loss", [0.0, 0.05])
def test_training_with_labels_equals_the_full_head(member, z_loss, builder, batch):
    model = builder(member, "bert")
    ids, mask = batch.padded()
    labels = ids.masked_fill((mask == 0) | (ids % 2 == 0), IGNORE)
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels, "z_loss": z_loss}
    results = []
    for training in (True, False):
        outputs = model.train(training)(**inputs)
        outputs.loss.backward()
        results.append((outputs.loss, [p.grad.clone() for p in model.parameters()]))
        assert (outputs.logits is None) == training
        model.zero_grad()
    assert_close(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    assert_close(results[0][1], results[1][1], rtol=1e-3, atol=1e-5)
