"""Losses on numbers worked out by hand, and beside their papers' definitions in float64."""

import math

import pytest
import torch

from tercet.distill.losses import GeneralizedDivergenceLoss, LogitMSELoss, ReverseKLLoss, SoftTargetLoss
from tercet.distill.model_outputs import ModelOutputs


def soft_targets(temperature):
    return SoftTargetLoss("soft_targets", 1.0, temperature)


def reverse_kl(temperature):
    return ReverseKLLoss("reverse_kl", 1.0, temperature)


def generalized(beta, temperature=1.0):
    return GeneralizedDivergenceLoss("generalized_divergence", 1.0, beta, temperature)


def outputs(logits, tokens=None):
    logits = None if logits is None else torch.as_tensor(logits)
    return ModelOutputs(logits, None if tokens is None else torch.as_tensor(tokens), torch.zeros(0), {}, {})


def loss_of(loss, student, teacher, tokens=None):
    return loss.compute(outputs(student), outputs(teacher, tokens), {})


def logs(*rows):
    return [[math.log(value) for value in row] for row in rows]


def random_logits(*seeds):
    return [torch.randn(5, 11, generator=torch.Generator().manual_seed(seed)).double() * 3 for seed in seeds]


def test_soft_targets_by_hand():
    """Teacher 3/4, 1/4; student 1/2, 1/2: 3/4 log(3/2) + 1/4 log(1/2)."""
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    found = loss_of(soft_targets(1.0), logs([0.5, 0.5]), logs([0.75, 0.25]))
    assert found.item() == pytest.approx(expected)
    twice = loss_of(soft_targets(1.0), logs(*[[0.5, 0.5]] * 2), logs(*[[0.75, 0.25]] * 2))
    assert twice.item() == pytest.approx(2 * expected)


def test_temperature_takes_roots_and_its_square_scales():
    """At T = 2, 9/10 and 1/10 become 3/4 and 1/4; the loss counts four times."""
    expected = 4 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    found = loss_of(soft_targets(2.0), logs([0.5, 0.5]), logs([0.9, 0.1]))
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 8.0])
def test_soft_targets_have_the_gradients_of_hintons_cross_entropy(temperature):
    student, teacher = random_logits(0, 1)
    gradients = []
    for compute in (
        lambda x: loss_of(soft_targets(temperature), x, teacher),
        lambda x: (
            -(temperature**2)
            * ((teacher / temperature).softmax(-1) * (x / temperature).log_softmax(-1)).sum()
        ),
    ):
        x = student.clone().requires_grad_()
        compute(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_gradients_keep_their_size_at_high_temperatures():
    """Hinton et al., 2015, section 2.1: the logits' differences over V, whatever T, once it is large."""
    student, teacher = random_logits(0, 1)
    norms = []
    for temperature in (50.0, 100.0, 200.0):
        x = student.clone().requires_grad_()
        loss_of(soft_targets(temperature), x, teacher).backward()
        norms.append(x.grad.norm().item())
    assert norms == pytest.approx([norms[-1]] * 3, rel=0.05)
    centred = [logits - logits.mean(-1, keepdim=True) for logits in (student, teacher)]
    assert norms[-1] == pytest.approx(((centred[0] - centred[1]) / 11).norm().item(), rel=0.05)


def test_soft_targets_of_the_likeliest_tokens():
    """Of teacher 1/2, 1/8, 3/8 the two likeliest: 4/7 and 3/7 against the student's share among all."""
    student = logs([0.25, 0.5, 0.25])
    found = loss_of(soft_targets(1.0), student, logs([0.5, 0.375]), [[0, 2]])
    expected = 4 / 7 * math.log(4 / 7 / 0.25) + 3 / 7 * math.log(3 / 7 / 0.25)
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("loss", [soft_targets(2.0), reverse_kl(2.0), generalized(0.3, 2.0)])
def test_all_tokens_in_any_order_are_the_live_teacher(loss):
    student, teacher = random_logits(0, 1)
    values, tokens = teacher.log_softmax(-1).sort(dim=-1, descending=True)
    pairs = []
    for arguments in ((teacher, None), (values, tokens)):
        x = student.clone().requires_grad_()
        total = loss_of(loss, x, *arguments)
        total.backward()
        pairs.append((total.detach(), x.grad))
    for live, cached in zip(*pairs, strict=True):
        torch.testing.assert_close(live, cached)


def test_reverse_kl_by_hand_and_definition():
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert loss_of(reverse_kl(1.0), logs([0.5, 0.5]), logs([0.75, 0.25])).item() == pytest.approx(expected)
    student, teacher = random_logits(2, 3)
    q, p = ((logits / 3).softmax(-1) for logits in (student, teacher))
    torch.testing.assert_close(loss_of(reverse_kl(3.0), student, teacher), 9 * (q * (q / p).log()).sum())


def test_generalized_divergence_by_hand_and_definition():
    half = loss_of(generalized(0.5), logs([1.0, 1e-30]), logs([1e-30, 1.0]))
    assert half.item() == pytest.approx(math.log(2))  # of two that share nothing
    student, teacher = random_logits(4, 5)
    q, p, beta = student.softmax(-1), teacher.softmax(-1), 0.2
    m = beta * p + (1 - beta) * q
    expected = beta * (p * (p / m).log()).sum() + (1 - beta) * (q * (q / m).log()).sum()
    torch.testing.assert_close(loss_of(generalized(beta), student, teacher), expected)


def test_generalized_divergence_leans_to_either_side():
    """Over beta or 1 - beta it becomes KL(p || q), and KL(q || p), towards its ends."""
    student, teacher = random_logits(6, 7)
    small = 1e-5
    forward = loss_of(generalized(small), student, teacher) / small
    reverse = loss_of(generalized(1 - small), student, teacher) / small
    torch.testing.assert_close(forward, loss_of(soft_targets(1.0), student, teacher), rtol=0.02, atol=0.01)
    torch.testing.assert_close(reverse, loss_of(reverse_kl(1.0), student, teacher), rtol=0.02, atol=0.01)


def test_the_ends_of_the_generalized_divergence_are_both_divergences():
    student, teacher = random_logits(6, 7)
    for beta, like in ((0.0, soft_targets(1.0)), (1.0, reverse_kl(1.0))):
        found = loss_of(generalized(beta), student, teacher)
        torch.testing.assert_close(found, loss_of(like, student, teacher))


def test_logit_mse_by_hand():
    assert (
        loss_of(LogitMSELoss("logit_mse"), [[1.0, 2.0], [0.0, 0.0]], [[3.0, 2.0], [0.0, 1.0]]).item() == 5.0
    )


def test_half_precision_is_added_up_in_float32():
    student, teacher = (logits.bfloat16() for logits in random_logits(0, 1))
    for loss in (
        soft_targets(2.0),
        reverse_kl(1.0),
        LogitMSELoss("logit_mse"),
    ):
        found = loss_of(loss, student, teacher)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, loss_of(loss, student.float(), teacher.float()))
