"""What a student learns from what a teacher expects at the targets, a class for each loss.

A loss is a sum over targets of what its paper defines for one of them, so that the loop can divide by the
targets of the whole step. Softmaxes and sums are computed in float32. What the teacher says is a constant.

Shapes: n targets, V vocabulary, k tokens that a teacher's outputs hold (all of them, unless it is cached).
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from ..modeling.cross_entropy import at_least_float32
from ..training.objective import Batch
from .model_outputs import ModelOutputs, RequiredOutputs


class DistillationLoss(ABC):
    """One thing that a student learns from its teacher. Abstract: see `state_losses`, too.

    Args:
        weight: What it counts in the loss.
    """

    name: str
    """The term's, as logs call it."""
    needs: RequiredOutputs
    """What it compares."""

    def __init__(self, weight: float):
        self.weight = weight

    @abstractmethod
    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count its targets in a batch, of which `num_predicted` are tokens to predict."""

    @abstractmethod
    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum it over the targets."""

    def refusal(self, *, is_complete: bool) -> str | None:
        """Return why a cached teacher cannot give it, which keeps all tokens' probabilities or only some."""
        return f"{self.name} compares what a cache does not hold"


class VocabularyLoss(DistillationLoss):
    """Something about the distribution over the vocabulary. Abstract: each adds what parts two of them."""

    needs = RequiredOutputs(logits=True)

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count the tokens to predict."""
        return num_predicted

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum over the targets."""
        assert student.logits is not None
        assert teacher.logits is not None
        return self.divergence(student.logits, teacher.logits, teacher.tokens)

    @abstractmethod
    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        """Sum over the targets what parts the student's logits (n, V) from the teacher's of tokens (n, k)."""


class SoftTargetLoss(VocabularyLoss):
    """Cross-entropy with the teacher's distribution at a temperature T, times T squared.

        T^2 * sum over tokens of  p (log p - log q),    p = softmax(z / T) of the teacher, q of the student

    (Hinton et al., 2015, section 2; Sanh et al., 2019, section 3.) T squared keeps gradients as large as
    those of the true labels, whatever T. Like DistilBERT's code, this leaves out the entropy of p, which is
    no function of the student: gradients are those of the papers' cross-entropy, and 0 means agreement. Of a
    teacher that is known for its k likeliest tokens only, p is their distribution.
    """

    name = "soft_targets"

    def __init__(self, weight: float, temperature: float):
        super().__init__(weight)
        self.temperature = temperature

    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        """Sum over the targets."""
        right = at_temperature(right, self.temperature)
        found = at_temperature(found, self.temperature)
        if tokens is not None:
            found = found.gather(1, tokens)
        return self.temperature**2 * F.kl_div(found, right, log_target=True, reduction="sum")

    def refusal(self, *, is_complete: bool) -> str | None:
        """A cache is enough."""
        return None


class FullVocabularyLoss(VocabularyLoss):
    """A divergence that needs the teacher's probability of every token. Abstract.

    Args:
        weight: What it counts in the loss.
        temperature: Of both distributions; the loss is multiplied by its square.
    """

    def __init__(self, weight: float, temperature: float):
        super().__init__(weight)
        self.temperature = temperature

    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        """Sum over the targets."""
        right = at_temperature(in_order(right, tokens), self.temperature)
        found = at_temperature(found, self.temperature)
        return self.temperature**2 * self.between(found, right)

    @abstractmethod
    def between(self, found: Tensor, right: Tensor) -> Tensor:
        """Sum over the targets what parts the student's log-probabilities from the teacher's, (n, V)."""

    def refusal(self, *, is_complete: bool) -> str | None:
        """A cache of all tokens is enough."""
        if is_complete:
            return None
        return f"{self.name} needs the probability of every token: cache.top_k=null keeps them all"


class ReverseKLLoss(FullVocabularyLoss):
    """The Kullback-Leibler divergence from the student's side: sum of q (log q - log p).

    The student is led to say what the teacher would say, and not to cover all that it might (Gu et al., 2024,
    "MiniLLM", section 2.1, on given text instead of the student's own).
    """

    name = "reverse_kl"

    def between(self, found: Tensor, right: Tensor) -> Tensor:
        """Sum over the targets."""
        return (found.exp() * (found - right)).sum()


class GeneralizedDivergenceLoss(FullVocabularyLoss):
    """The generalized Jensen-Shannon divergence (Agarwal et al., 2024, section 2, equation 1).

        beta KL(p || m) + (1 - beta) KL(q || m),    m = beta p + (1 - beta) q

    At its ends, where this is 0 for all, it is what it becomes next to them over beta and over 1 - beta:
    KL(p || q) at 0 and KL(q || p) at 1.

    Args:
        weight: What it counts in the loss.
        temperature: Of both distributions.
        beta: The teacher's share.
    """

    name = "generalized_divergence"

    def __init__(self, weight: float, temperature: float, beta: float):
        super().__init__(weight, temperature)
        self.beta = beta

    def between(self, found: Tensor, right: Tensor) -> Tensor:
        """Sum over the targets."""
        if self.beta in (0, 1):
            pair = (found, right) if self.beta == 0 else (right, found)
            return F.kl_div(*pair, log_target=True, reduction="sum")
        mixture = torch.logaddexp(right + math.log(self.beta), found + math.log(1 - self.beta))
        of_teacher = F.kl_div(mixture, right, log_target=True, reduction="sum")
        of_student = F.kl_div(mixture, found, log_target=True, reduction="sum")
        return self.beta * of_teacher + (1 - self.beta) * of_student


class LogitMSELoss(VocabularyLoss):
    """The squared distance of the logits: sum over the vocabulary of (z_student - z_teacher)^2.

    (Ba and Caruana, 2014, section 2.1, without their factor 1/2; the `mse` of DistilBERT's code.)
    """

    name = "logit_mse"

    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        """Sum over the targets."""
        return (at_least_float32(found) - at_least_float32(right)).square().sum()

    def refusal(self, *, is_complete: bool) -> str | None:
        """A cache keeps probabilities, from which the height of logits cannot be told."""
        return f"{self.name} compares logits, but a cache holds probabilities"


def at_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities of logits (n, k), or of log-probabilities, at a temperature, in float32."""
    return (at_least_float32(logits) / temperature).log_softmax(dim=-1)


def in_order(values: Tensor, tokens: Tensor | None) -> Tensor:
    """Sort values (n, V) of tokens into the order of the vocabulary, if they are in another one."""
    return values if tokens is None else torch.empty_like(values).scatter_(1, tokens, values)
