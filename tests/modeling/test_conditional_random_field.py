"""The linear chain equals what enumerating every sequence of labels says, whatever fills the rows."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

from tercet.modeling.heads.losses import IGNORE
from tercet.modeling.recurrent.tagger import ConditionalRandomField

NUM_LABELS = 3
LENGTHS = torch.tensor([4, 1, 3])
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def crf() -> ConditionalRandomField:
    torch.manual_seed(0)
    crf = ConditionalRandomField(NUM_LABELS)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_()
    return crf


@pytest.fixture
def emissions() -> torch.Tensor:
    return torch.randn(3, 4, NUM_LABELS, generator=torch.Generator().manual_seed(1)).requires_grad_()


def defined_score(crf, emissions, labels) -> torch.Tensor:
    """Add up the score of one sequence of labels of one sentence (W, L). The definition."""
    total = crf.starts[labels[0]] + crf.ends[labels[-1]]
    for place, label in enumerate(labels):
        total = total + emissions[place, label]
        if place:
            total = total + crf.transitions[labels[place - 1], label]
    return total


def all_scores(crf, emissions) -> dict[tuple[int, ...], torch.Tensor]:
    """Score all L^W sequences of labels of one sentence."""
    return {
        labels: defined_score(crf, emissions, labels)
        for labels in product(range(NUM_LABELS), repeat=len(emissions))
    }


def sentences(emissions):
    """Give each sentence's emissions without what fills its row."""
    return [rows[:length] for rows, length in zip(emissions, LENGTHS.tolist(), strict=True)]


def gradients(loss, crf, emissions) -> list[torch.Tensor]:
    return [*torch.autograd.grad(loss, [emissions, *crf.parameters()])]


def test_the_partition_is_the_sum_over_all_sequences(crf, emissions):
    expected = torch.stack(
        [torch.stack([*all_scores(crf, own).values()]).logsumexp(0) for own in sentences(emissions)]
    )
    found = crf.log_partition(emissions, LENGTHS)
    assert_close(found, expected, **CLOSE)
    assert_close(gradients(found.sum(), crf, emissions), gradients(expected.sum(), crf, emissions), **CLOSE)


def test_the_best_sequence_has_the_highest_score(crf, emissions):
    found = crf.decode(emissions, LENGTHS)
    for own, tags, length in zip(sentences(emissions), found.tolist(), LENGTHS.tolist(), strict=True):
        scores = all_scores(crf, own)
        assert tuple(tags[:length]) == max(scores, key=lambda labels: scores[labels].item())
        assert tags[length:] == [IGNORE] * (4 - length)


def test_marginals_are_sums_over_the_sequences_with_a_label(crf, emissions):
    found = crf.log_marginals(emissions, LENGTHS)
    for own, log_probabilities in zip(sentences(emissions), found, strict=True):
        scores = all_scores(crf, own)
        whole = torch.stack([*scores.values()]).logsumexp(0)
        for place, label in product(range(len(own)), range(NUM_LABELS)):
            with_label = [score for labels, score in scores.items() if labels[place] == label]
            expected = torch.stack(with_label).logsumexp(0) - whole
            assert_close(log_probabilities[place, label], expected, **CLOSE)


def test_the_loss_is_that_of_the_labels_that_are_known(crf, emissions):
    known = torch.tensor([[2, 0, 1, 1], [1, IGNORE, IGNORE, IGNORE], [0, 0, 2, IGNORE]])
    partly = torch.tensor([[2, IGNORE, 1, IGNORE], [IGNORE] * 4, [IGNORE, 0, 2, 1]])
    for labels in (known, partly):
        expected = []
        for own, right in zip(sentences(emissions), labels.tolist(), strict=True):
            scores = all_scores(crf, own)
            allowed = [
                score
                for each, score in scores.items()
                if all(given in (IGNORE, label) for given, label in zip(right, each, strict=False))
            ]
            whole = torch.stack([*scores.values()]).logsumexp(0)
            expected.append(whole - torch.stack(allowed).logsumexp(0))
        found = crf.negative_log_likelihood(emissions, LENGTHS, labels)
        assert_close(found, torch.stack(expected), **CLOSE)
        assert_close(
            gradients(found.sum(), crf, emissions),
            gradients(torch.stack(expected).sum(), crf, emissions),
            **CLOSE,
        )


def test_nothing_depends_on_what_fills_a_row(crf, emissions):
    labels = torch.tensor([[2, 0, 1, 1], [1, IGNORE, IGNORE, IGNORE], [0, 0, 2, IGNORE]])
    is_filled = torch.arange(4) >= LENGTHS[:, None]
    other = emissions.masked_fill(is_filled[..., None], 1e4)
    losses = crf.negative_log_likelihood(other, LENGTHS, labels)
    assert_close(losses, crf.negative_log_likelihood(emissions, LENGTHS, labels), rtol=0, atol=0)
    assert_close(crf.decode(other, LENGTHS), crf.decode(emissions, LENGTHS))


def test_a_chain_without_preferences_is_a_softmax_for_each_word(emissions):
    crf = ConditionalRandomField(NUM_LABELS)
    labels = torch.tensor([[2, 0, 1, 1], [1, IGNORE, IGNORE, IGNORE], [0, 0, 2, IGNORE]])
    expected = torch.nn.functional.cross_entropy(emissions.flatten(0, 1), labels.flatten(), reduction="sum")
    assert_close(crf.negative_log_likelihood(emissions, LENGTHS, labels).sum(), expected)
    assert_close(crf.log_marginals(emissions, LENGTHS)[0], emissions.log_softmax(-1)[0])


def test_half_precision_makes_nothing_more_likely_than_certain(crf):
    labels = torch.arange(301)[None] % NUM_LABELS
    with torch.no_grad():
        crf.transitions.copy_(torch.full((3, 3), -9.01))
        crf.transitions[labels[0, :-1], labels[0, 1:]] = 9.01
    emissions = torch.zeros(1, 301, NUM_LABELS)
    loss = crf.bfloat16().negative_log_likelihood(emissions, torch.tensor([301]), labels)
    assert_close(loss, crf.float().negative_log_likelihood(emissions, torch.tensor([301]), labels), **CLOSE)
