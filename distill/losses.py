"""What a student learns from its teacher: the losses of a recipe (`general.losses`), a dataclass for each.

kind                    loss                                              narrower student  cached teacher
soft_targets            KL divergence at each target, at a temperature    yes               yes
reverse_kl              KL divergence in the reverse direction            yes               with all tokens
generalized_divergence  generalized Jensen-Shannon divergence             yes               with all tokens
logit_mse               squared error of logits at each target            yes               no
cosine                  cosine of the last hidden states                  no                yes
hidden_states           squared error of hidden states, of all or of one  projected         the last
attention_maps          squared error of scores before the softmax        with equal heads  no
relations               relations among queries, keys and values          yes               no

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from ..data.steps.objective import Batch, has_example
from ..data.steps.streams import in_rows
from ..modeling import TercetConfig, TercetSeq2SeqConfig
from ..modeling.heads.losses import at_least_float32
from ..pretraining.objectives.recipes import Share
from .layers import paired_layers
from .model_outputs import Heads, ModelOutputs, RequiredOutputs

Weight = Annotated[float, Field(gt=0)]
"""Weight of a term in the loss; leave a loss out instead of setting its weight to 0."""

Temperature = Annotated[float, Field(gt=0)]
"""Divisor of the logits before the softmax: above 1, unlikely tokens have more weight."""


class DistillationLoss(ABC):
    """One thing that a student learns from its teacher. Abstract: each adds its keys in recipes.

    Logs call its term by its kind.
    """

    kind: str
    weight: Weight
    needs: ClassVar[RequiredOutputs]
    """What it compares."""

    def for_models(self, student: TercetConfig, teacher: TercetConfig) -> "DistillationLoss":
        """Return the loss for two models."""
        return self

    @abstractmethod
    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count its targets in a batch, of which `num_predicted` are tokens to predict."""

    @abstractmethod
    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum it over the targets."""

    def refusal(self, *, is_complete: bool) -> str | None:
        """Return why a cached teacher cannot give it, which keeps all tokens' probabilities or only some."""
        return f"{self.kind} compares what a cache does not hold"


class VocabularyLoss(DistillationLoss):
    """Something about the distribution over the vocabulary. Abstract: each adds what parts two of them."""

    needs = RequiredOutputs(logits=True)

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        return num_predicted

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        assert student.logits is not None
        assert teacher.logits is not None
        return self.divergence(student.logits, teacher.logits, teacher.tokens)

    @abstractmethod
    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        """Sum over the targets what parts the student's logits (n, V) from the teacher's of tokens (n, k)."""


@dataclass(frozen=True)
class SoftTargetLoss(VocabularyLoss):
    """Match the teacher's distribution (Hinton et al., 2015; Sanh et al., 2019).

    KL divergence at temperature T, times T squared; its gradients are the cross-entropy's:

        T^2 * sum over tokens of  p (log p - log q),    p = softmax(z / T) of the teacher, q of the student

    (Hinton et al., 2015, section 2; Sanh et al., 2019, section 3.) T squared keeps gradients as large as
    those of the true labels, whatever T. Like DistilBERT's code, this leaves out the entropy of p, which is
    no function of the student: 0 means agreement. Of a teacher that is known for its k likeliest tokens only,
    p is their distribution.
    """

    kind: Literal["soft_targets"]
    weight: Weight = 5.0
    temperature: Temperature = 2.0
    """Temperature of both distributions."""

    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        right = at_temperature(right, self.temperature)
        found = at_temperature(found, self.temperature)
        if tokens is not None:
            found = found.gather(1, tokens)
        return self.temperature**2 * F.kl_div(found, right, log_target=True, reduction="sum")

    def refusal(self, *, is_complete: bool) -> str | None:
        return None


class FullVocabularyLoss(VocabularyLoss):
    """A divergence that needs the teacher's probability of every token. Abstract.

    It is multiplied by the square of the temperature.
    """

    temperature: Temperature

    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        right = at_temperature(in_order(right, tokens), self.temperature)
        found = at_temperature(found, self.temperature)
        return self.temperature**2 * self.between(found, right)

    @abstractmethod
    def between(self, found: Tensor, right: Tensor) -> Tensor:
        """Sum over the targets what parts the student's log-probabilities from the teacher's, (n, V)."""

    def refusal(self, *, is_complete: bool) -> str | None:
        if is_complete:
            return None
        return f"{self.kind} needs the probability of every token: cache.top_k=null keeps them all"


@dataclass(frozen=True)
class ReverseKLLoss(FullVocabularyLoss):
    """Reverse KL divergence: mode-seeking instead of mode-covering (Gu et al., 2024).

    The sum of q (log q - log p). The student is led to say what the teacher would say, and not to cover all
    that it might ("MiniLLM", section 2.1, on given text instead of the student's own).
    """

    kind: Literal["reverse_kl"]
    weight: Weight = 1.0
    temperature: Temperature = 1.0
    """Temperature of both distributions."""

    def between(self, found: Tensor, right: Tensor) -> Tensor:
        return (found.exp() * (found - right)).sum()


@dataclass(frozen=True)
class GeneralizedDivergenceLoss(FullVocabularyLoss):
    """Generalized Jensen-Shannon divergence, between forward and reverse KL (Agarwal et al., 2024).

    (Section 2, equation 1.)

        beta KL(p || m) + (1 - beta) KL(q || m),    m = beta p + (1 - beta) q

    At its ends, where this is 0 for all, it is what it becomes next to them over beta and over 1 - beta:
    KL(p || q) at 0 and KL(q || p) at 1.
    """

    kind: Literal["generalized_divergence"]
    weight: Weight = 1.0
    beta: Share = 0.5
    """Share of the teacher in the mixture; at 0 it is the divergence of soft targets, at 1 reverse KL."""
    temperature: Temperature = 1.0
    """Temperature of both distributions."""

    def between(self, found: Tensor, right: Tensor) -> Tensor:
        if self.beta in (0, 1):
            pair = (found, right) if self.beta == 0 else (right, found)
            return F.kl_div(*pair, log_target=True, reduction="sum")
        mixture = torch.logaddexp(right + math.log(self.beta), found + math.log(1 - self.beta))
        of_teacher = F.kl_div(mixture, right, log_target=True, reduction="sum")
        of_student = F.kl_div(mixture, found, log_target=True, reduction="sum")
        return self.beta * of_teacher + (1 - self.beta) * of_student


@dataclass(frozen=True)
class LogitMSELoss(VocabularyLoss):
    """Match logits (Ba and Caruana, 2014).

    The squared distance: sum over the vocabulary of (z_student - z_teacher)^2. (Section 2.1, without their
    factor 1/2; the `mse` of DistilBERT's code.)
    """

    kind: Literal["logit_mse"]
    weight: Weight = 1.0

    def divergence(self, found: Tensor, right: Tensor, tokens: Tensor | None) -> Tensor:
        return (at_least_float32(found) - at_least_float32(right)).square().sum()

    def refusal(self, *, is_complete: bool) -> str | None:
        # a cache keeps probabilities, from which the height of logits cannot be told
        return f"{self.kind} compares logits, but a cache holds probabilities"


def at_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities of logits (n, k), or of log-probabilities, at a temperature, in float32."""
    return (at_least_float32(logits) / temperature).log_softmax(dim=-1)


def in_order(values: Tensor, tokens: Tensor | None) -> Tensor:
    """Sort values (n, V) of tokens into the order of the vocabulary, if they are in another one."""
    return values if tokens is None else torch.empty_like(values).scatter_(1, tokens, values)


class LastStateLoss(DistillationLoss):
    """Something about the last hidden states. Abstract: each adds what parts two of them.

    Of a sequence-to-sequence model, the states are the decoder's.
    """

    needs = RequiredOutputs()

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        return count_tokens(batch, "decoder_input_ids" if "decoder_input_ids" in batch else "input_ids")

    def refusal(self, *, is_complete: bool) -> str | None:
        return None


@dataclass(frozen=True)
class CosineLoss(LastStateLoss):
    """Match the directions of the last hidden states (Sanh et al., 2019).

    One minus their cosine, at every token (section 3).
    """

    kind: Literal["cosine"]
    weight: Weight = 1.0

    def for_models(self, student: TercetConfig, teacher: TercetConfig) -> "CosineLoss":
        require_one_width(self.kind, student, teacher)
        return self

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        pair = (at_least_float32(outputs.states) for outputs in (student, teacher))
        return (1 - F.cosine_similarity(*pair, dim=-1)).sum()


@dataclass(frozen=True)
class LastHiddenStateLoss(LastStateLoss):
    """The squared distance of the last hidden states, as `HiddenStateLoss` has it of every layer."""

    kind: str
    weight: Weight

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        return squared_distance(student.states, teacher.states)


class StateLoss(DistillationLoss):
    """Something about the states of all layers. Abstract: each adds which, and what parts two of them."""

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        # of all streams: what encoder and decoder read
        names = [name for name in ("input_ids", "decoder_input_ids") if name in batch]
        return torch.stack([count_tokens(batch, name) for name in names]).sum()


@dataclass(frozen=True)
class HiddenStateLoss(StateLoss):
    """Match hidden states, of a narrower student through a learned projection (Jiao et al., 2020).

    Their squared distance at every token:

        mean over pairs of  mean over channels of  (W h_student - h_teacher)^2

    ("TinyBERT", section 3.1, equations 8 and 9.) W is learned where the student is narrower, and absent where
    it is not. Of a sequence-to-sequence model, both stacks are compared.
    """

    kind: Literal["hidden_states"]
    weight: Weight = 1.0
    layers: Literal["all", "last"] = "all"
    """`all`: the embeddings and the output of every layer; `last`: the output of the last layer."""
    needs = RequiredOutputs(hidden=True)

    def for_models(self, student: TercetConfig, teacher: TercetConfig) -> DistillationLoss:
        if self.layers == "all":
            return self
        require_one_width(f"{self.kind} of the last layer alone", student, teacher)
        return LastHiddenStateLoss(self.kind, self.weight)

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        totals = []
        for stack, own in student.hidden.items():
            theirs = teacher.hidden[stack]
            pairs = paired_layers(len(own) - 1, len(theirs) - 1)
            totals.append(mean_of([squared_distance(own[i], theirs[j]) for i, j in pairs]))
        return torch.stack(totals).sum()


@dataclass(frozen=True)
class AttentionMapLoss(StateLoss):
    """Match the attention scores of all layers (Jiao et al., 2020).

    Their squared distance before the softmax, at every token:

        mean over pairs of layers, heads and keys of  (s_student - s_teacher)^2,    s = q k / sqrt(d)

    (Section 3.1, equation 7, of the scores and not of their softmax.) Keys are those that a token may read:
    its own sequence's, and in a decoder none behind it. A learned bias of distances (T5) is no product of
    both, and left out, and so is cross-attention.
    """

    kind: Literal["attention_maps"]
    weight: Weight = 1.0
    needs = RequiredOutputs(heads=True)

    def for_models(self, student: TercetConfig, teacher: TercetConfig) -> DistillationLoss:
        for own, theirs in zip(stack_configs(student), stack_configs(teacher), strict=True):
            others = {*(own.layer_types or []), *(theirs.layer_types or [])} - {"full_attention"}
            if others:
                raise ValueError(
                    f"attention_maps needs full attention, but there are layers of "
                    f"{', '.join(sorted(others))}: choose hidden_states"
                )
            if own.num_attention_heads != theirs.num_attention_heads:
                raise ValueError(
                    f"attention_maps needs equal numbers of heads, but the student has "
                    f"{own.num_attention_heads} and the teacher {theirs.num_attention_heads}: choose "
                    f"relations, which does not need equal numbers of heads"
                )
        return self

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
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


@dataclass(frozen=True)
class RelationLoss(StateLoss):
    """Match the self-attention relations of queries, keys and values in one layer (Wang et al., 2021).

    How queries relate to queries, keys to keys and values to values:

        sum over queries, keys and values a of  mean over R heads of  KL(r_teacher || r_student),
        r = softmax(a a / sqrt(d))

    (MiniLMv2, section 3.1, equations 4 to 6; all three weigh the same.) Vectors of all heads are joined and
    cut into R parts anew, so that student and teacher may differ in width and in heads. Of a
    sequence-to-sequence model, it is the last layer of both stacks.
    """

    kind: Literal["relations"]
    weight: Weight = 1.0
    heads: PositiveInt | None = None
    """Number of relation heads that the vectors are split into; the teacher's attention heads by default."""
    teacher_layer: int = -1
    """Index of the teacher's layer, from the end if negative; the student's layer is its last."""
    needs = RequiredOutputs(heads=True)

    def for_models(self, student: TercetConfig, teacher: TercetConfig) -> "RelationLoss":
        heads = self.heads or teacher.num_attention_heads
        for role, config in (("student", student), ("teacher", teacher)):
            for width in widths_of_vectors(config):
                if width % heads:
                    raise ValueError(
                        f"relations.heads is {heads}, but the {role}'s vectors of {width} numbers cannot be "
                        f"split into this many equal parts: choose a divisor"
                    )
        layer, depth = self.teacher_layer, min(stack.num_hidden_layers for stack in stack_configs(teacher))
        if not -depth <= layer < depth:
            raise ValueError(
                f"relations.teacher_layer is {layer}, but the teacher has {depth} layers: choose 0 to "
                f"{depth - 1}"
            )
        return replace(self, heads=heads)

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
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
        assert self.heads is not None  # `for_models` has chosen it
        found, right = (relation(vectors, self.heads, bounds, allowed) for vectors in (own, theirs))
        is_read = allowed[:, None]
        terms = torch.where(is_read, right.exp() * (right - found), 0.0)  # (S, R, T, T)
        return terms.sum() / self.heads


Loss = Annotated[
    SoftTargetLoss
    | ReverseKLLoss
    | GeneralizedDivergenceLoss
    | LogitMSELoss
    | CosineLoss
    | HiddenStateLoss
    | AttentionMapLoss
    | RelationLoss,
    Field(discriminator="kind"),
]
"""Any of them; `kind` says which."""

PUBLISHED: tuple[Loss, ...] = (
    SoftTargetLoss("soft_targets", weight=5.0, temperature=2.0),
    CosineLoss("cosine", weight=1.0),
)
"""DistilBERT's, beside its masked language modeling of weight 2 (Sanh et al., 2019, section 3, and their
code)."""


def losses_for(
    losses: Sequence[DistillationLoss], student: TercetConfig, teacher: TercetConfig
) -> list[DistillationLoss]:
    """Return losses for two models."""
    kinds = sorted(loss.kind for loss in losses)
    if twice := [kind for kind, other in pairwise(kinds) if kind == other]:
        raise ValueError(f"losses has {twice[0]} twice: list each kind once")
    return [loss.for_models(student, teacher) for loss in losses]


def required_projections(
    losses: Sequence[DistillationLoss], student: TercetConfig, teacher: TercetConfig
) -> list[str]:
    """Name the projections that losses need to compare states of different widths."""
    compares = any(loss.needs.hidden for loss in losses)
    return ["layers", "embeddings"] if compares and student.hidden_size != teacher.hidden_size else []


def scores_of(heads: Heads, bounds: Tensor, longest: int) -> Tensor:
    """Return the scaled products of queries and keys of each sequence, (S, H, T, T)."""
    groups = len(heads.query) // len(heads.key)
    key = heads.key.repeat_interleave(groups, dim=0)
    query, key = (
        in_rows(at_least_float32(x).transpose(0, 1), bounds, longest, 0.0).transpose(1, 2)
        for x in (heads.query, key)
    )
    return query @ key.mT / query.shape[-1] ** 0.5


def relation(vectors: Tensor, heads: int, bounds: Tensor, allowed: Tensor) -> Tensor:
    """Return the log-probabilities with which tokens relate to each other, (S, R, T, T)."""
    stream = at_least_float32(vectors).transpose(0, 1).flatten(1)  # (N, H D)
    rows = in_rows(stream, bounds, allowed.shape[-1], 0.0)
    parts = rows.unflatten(-1, (heads, -1)).transpose(1, 2)  # (S, R, T, d)
    scores = parts @ parts.mT / parts.shape[-1] ** 0.5
    # Rows that are pads relate to themselves alone: their softmax has to be finite.
    itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    kept = allowed | (itself & ~allowed.any(-1, keepdim=True))
    scores = scores.masked_fill(~kept[:, None], -torch.inf).log_softmax(-1)
    return scores.masked_fill(~kept[:, None], 0.0)


def may_read(batch: Batch, stack: str) -> Tensor:
    """Return which keys of its sequence each query may read, (S, T, T); pads and filling ask nothing."""
    lengths = bounds_of(batch, stack).diff().long() * has_example(batch)
    places = torch.arange(batch[f"max_length_{side_of(stack)}"], device=lengths.device)
    is_real = places < lengths[:, None]
    allowed = is_real[:, :, None] & is_real[:, None]
    return allowed & (places[:, None] >= places) if stack == "decoder" else allowed


def bounds_of(batch: Batch, stack: str) -> Tensor:
    return batch[f"cu_seq_lens_{side_of(stack)}"]


def side_of(stack: str) -> str:
    """Return which bounds a stack's stream has."""
    return "q" if stack == "decoder" else "k"


def squared_distance(own: Tensor, theirs: Tensor) -> Tensor:
    """Sum over the tokens the mean over the channels of squared differences, (N, C) each."""
    difference = at_least_float32(own) - at_least_float32(theirs)
    return difference.square().mean(-1).sum()


def mean_of(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).mean()


def count_tokens(batch: Batch, name: str) -> Tensor:
    return torch.tensor(batch[name].numel(), device=batch[name].device)


def require_one_width(name: str, student: TercetConfig, teacher: TercetConfig) -> None:
    """Raise a `ValueError` if two models differ in width."""
    if student.hidden_size != teacher.hidden_size:
        raise ValueError(
            f"{name} compares states of one width, but the student's have {student.hidden_size} numbers "
            f"and the teacher's {teacher.hidden_size}: choose hidden_states of all layers, which has a "
            f"learned projection"
        )


def widths_of_vectors(config: TercetConfig) -> list[int]:
    """Count the numbers in a token's joined queries, and in its joined keys and values, in each stack."""
    return [
        (stack.head_dim or 0) * heads
        for stack in stack_configs(config)
        for heads in (stack.num_attention_heads, stack.num_key_value_heads or stack.num_attention_heads)
    ]


def stack_configs(config: TercetConfig) -> list[TercetConfig]:
    if isinstance(config, TercetSeq2SeqConfig):
        return [config.encoder_config(), config.decoder_config()]
    return [config]
