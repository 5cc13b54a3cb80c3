"""What a student learns from its teacher, a class for each loss: of what it expects, and of its states.

A loss is a sum over targets of what its paper defines for one of them, so that the loop can divide by the
targets of the whole step. Softmaxes and sums are computed in float32. What the teacher says is a constant.

Of what is expected, the targets are the tokens to predict. Of the states inside, they are the tokens that are
read: such a loss is a sum over these of means over channels, heads or keys, which are properties of a single
sequence. So it does not matter what a sequence is batched with.

Shapes: n targets, V vocabulary, k tokens that a teacher's outputs hold (all of them, unless it is cached); N
tokens of a packed stream, S sequences, T tokens of the longest, C width, H heads, D their width, R heads of
relations.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.steps.objective import Batch, has_example
from ..finetune.tasks.objectives import in_rows
from ..modeling.heads.losses import at_least_float32
from .layers import paired_layers
from .model_outputs import Heads, ModelOutputs, RequiredOutputs


class DistillationLoss(ABC):
    """One thing that a student learns from its teacher. Abstract.

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


class CosineLoss(DistillationLoss):
    """One minus the cosine of the last hidden states, at every token (Sanh et al., 2019, section 3).

    Of a sequence-to-sequence model, the states are the decoder's.
    """

    name = "cosine"
    needs = RequiredOutputs()

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count the tokens of the stream that is predicted."""
        return count_tokens(batch, "decoder_input_ids" if "decoder_input_ids" in batch else "input_ids")

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum over the tokens."""
        pair = (at_least_float32(outputs.states) for outputs in (student, teacher))
        return (1 - F.cosine_similarity(*pair, dim=-1)).sum()

    def refusal(self, *, is_complete: bool) -> str | None:
        """A cache is enough."""
        return None


class LastHiddenStateLoss(CosineLoss):
    """The squared distance of the last hidden states, as `HiddenStateLoss` has it of every layer."""

    name = "hidden_states"

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum over the tokens."""
        return squared_distance(student.states, teacher.states)


class StateLoss(DistillationLoss):
    """Something about the states of all layers. Abstract: each adds which, and what parts two of them."""

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count the tokens of all streams: what encoder and decoder read."""
        names = [name for name in ("input_ids", "decoder_input_ids") if name in batch]
        return torch.stack([count_tokens(batch, name) for name in names]).sum()


class HiddenStateLoss(StateLoss):
    """The squared distance of hidden states, mean over channels and pairs of layers, at every token.

        mean over pairs of  mean over channels of  (W h_student - h_teacher)^2

    (Jiao et al., 2020, "TinyBERT", section 3.1, equations 8 and 9.) W is learned where the student is
    narrower, and absent where it is not. Of a sequence-to-sequence model, both stacks are compared.
    """

    name = "hidden_states"
    needs = RequiredOutputs(hidden=True)

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum over the tokens."""
        return torch.stack(
            [
                mean_of([squared_distance(own[i], theirs[j]) for i, j in pairs_of(own, theirs)])
                for own, theirs in stack_pairs(student.hidden, teacher.hidden)
            ]
        ).sum()


class AttentionMapLoss(StateLoss):
    """The squared distance of the scores of self-attention, before the softmax, at every token.

        mean over pairs of layers, heads and keys of  (s_student - s_teacher)^2,    s = q k / sqrt(d)

    (Jiao et al., 2020, section 3.1, equation 7, who fit the scores and not their softmax.) Keys are those
    that a token may read: its own sequence's, and in a decoder none behind it. A learned bias of distances
    (T5) is no product of both, and left out, and so is cross-attention.
    """

    name = "attention_maps"
    needs = RequiredOutputs(heads=True)

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum over the tokens."""
        totals = []
        for stack, own in student.heads.items():
            theirs, bounds = teacher.heads[stack], bounds_of(batch, stack)
            pairs = paired_layers(len(own), len(theirs))[1:]
            allowed = may_read(batch, stack)
            totals.append(
                mean_of([self.distance(own[i - 1], theirs[j - 1], bounds, allowed) for i, j in pairs])
            )
        return torch.stack(totals).sum()

    def distance(self, own: Heads, theirs: Heads, bounds: Tensor, allowed: Tensor) -> Tensor:
        """Sum over the tokens the squared distances of two layers' scores, as means over heads and keys."""
        sizes = bounds, allowed.shape[-1]
        difference = scores_of(own, *sizes) - scores_of(theirs, *sizes)  # (S, H, T, T)
        squares = difference.square().masked_fill(~allowed[:, None], 0.0).mean(1)  # (S, T, T)
        return (squares.sum(-1) / allowed.sum(-1).clamp(min=1)).sum()


class RelationLoss(StateLoss):
    """How queries relate to queries, keys to keys and values to values, in one layer (Wang et al., 2021).

        sum over queries, keys and values a of  mean over R heads of  KL(r_teacher || r_student),
        r = softmax(a a / sqrt(d))

    (MiniLMv2, section 3.1, equations 4 to 6; all three weigh the same.) Vectors of all heads are joined and
    cut into R parts anew, so that student and teacher may differ in width and in heads. Of a
    sequence-to-sequence model, it is the last layer of both stacks.

    Args:
        weight: What it counts in the loss.
        heads: R.
        teacher_layer: Which layer of the teacher.
    """

    name = "relations"
    needs = RequiredOutputs(heads=True)

    def __init__(self, weight: float, heads: int, teacher_layer: int = -1):
        super().__init__(weight)
        self.heads = heads
        self.teacher_layer = teacher_layer

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum over the tokens."""
        totals = []
        for stack, own in student.heads.items():
            bounds = bounds_of(batch, stack)
            allowed = may_read(batch, stack)
            theirs = teacher.heads[stack][self.teacher_layer]
            for ours, right in zip(own[-1], theirs, strict=True):
                totals.append(self.divergence(ours, right, bounds, allowed))
        return torch.stack(totals).sum()

    def divergence(self, own: Tensor, theirs: Tensor, bounds: Tensor, allowed: Tensor) -> Tensor:
        """Sum over the tokens what parts the relations of vectors (H, N, D), as means over R heads."""
        found, right = (self.relation(vectors, bounds, allowed) for vectors in (own, theirs))
        is_read = allowed[:, None]
        terms = torch.where(is_read, right.exp() * (right - found), 0.0)  # (S, R, T, T)
        return terms.sum() / self.heads

    def relation(self, vectors: Tensor, bounds: Tensor, allowed: Tensor) -> Tensor:
        """Return the log-probabilities with which tokens relate to each other, (S, R, T, T)."""
        stream = at_least_float32(vectors).transpose(0, 1).flatten(1)  # (N, H D)
        rows = in_rows(stream, bounds, allowed.shape[-1], 0.0)
        parts = rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (S, R, T, d)
        scores = parts @ parts.mT / parts.shape[-1] ** 0.5
        # Rows that are pads relate to themselves alone: their softmax has to be finite.
        itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
        kept = allowed | (itself & ~allowed.any(-1, keepdim=True))
        scores = scores.masked_fill(~kept[:, None], -torch.inf).log_softmax(-1)
        return scores.masked_fill(~kept[:, None], 0.0)


def scores_of(heads: Heads, bounds: Tensor, longest: int) -> Tensor:
    """Return the scaled products of queries and keys of each sequence, (S, H, T, T)."""
    groups = len(heads.query) // len(heads.key)
    key = heads.key.repeat_interleave(groups, dim=0)
    query, key = (
        in_rows(at_least_float32(x).transpose(0, 1), bounds, longest, 0.0).transpose(1, 2)
        for x in (heads.query, key)
    )
    return query @ key.mT / query.shape[-1] ** 0.5


def may_read(batch: Batch, stack: str) -> Tensor:
    """Return which keys of its sequence each query may read, (S, T, T); pads and filling ask nothing."""
    lengths = bounds_of(batch, stack).diff().long() * has_example(batch)
    places = torch.arange(batch[f"max_length_{side_of(stack)}"], device=lengths.device)
    is_real = places < lengths[:, None]
    allowed = is_real[:, :, None] & is_real[:, None]
    return allowed & (places[:, None] >= places) if stack == "decoder" else allowed


def bounds_of(batch: Batch, stack: str) -> Tensor:
    """Find where the sequences of a stack's stream begin and end."""
    return batch[f"cu_seq_lens_{side_of(stack)}"]


def side_of(stack: str) -> str:
    """Return which bounds a stack's stream has."""
    return "q" if stack == "decoder" else "k"


def stack_pairs(
    own: dict[str, tuple[Tensor, ...]], theirs: dict[str, tuple[Tensor, ...]]
) -> list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """Pair the stacks of two models of one member."""
    return [(own[stack], theirs[stack]) for stack in own]


def pairs_of(own: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> list[tuple[int, int]]:
    """Pair the states of two stacks, each one more than it has layers."""
    return paired_layers(len(own) - 1, len(theirs) - 1)


def squared_distance(own: Tensor, theirs: Tensor) -> Tensor:
    """Sum over the tokens the mean over the channels of squared differences, (N, C) each."""
    difference = at_least_float32(own) - at_least_float32(theirs)
    return difference.square().mean(-1).sum()


def mean_of(terms: list[Tensor]) -> Tensor:
    """Return the mean of numbers."""
    return torch.stack(terms).mean()


def count_tokens(batch: Batch, name: str) -> Tensor:
    """Count the tokens of a stream."""
    return torch.tensor(batch[name].numel(), device=batch[name].device)
