"""What a student learns from the states inside a teacher, a class for each loss.

Their targets are tokens that are read: a loss is a sum over these of means over channels, heads or keys,
which are properties of a single sequence. So it does not matter what a sequence is batched with.

Shapes: N tokens of a packed stream, S sequences, T tokens of the longest, C width, H heads, D their width, R
heads of relations.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ..modeling.heads.losses import at_least_float32
from ..objectives.task_objectives import in_rows
from ..training.objective import Batch, has_example
from .layers import paired_layers
from .losses import DistillationLoss
from .model_outputs import Heads, ModelOutputs, RequiredOutputs


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


class HiddenStateLoss(DistillationLoss):
    """The squared distance of hidden states, mean over channels and pairs of layers, at every token.

        mean over pairs of  mean over channels of  (W h_student - h_teacher)^2

    (Jiao et al., 2020, "TinyBERT", section 3.1, equations 8 and 9.) W is learned where the student is
    narrower, and absent where it is not. Of a sequence-to-sequence model, both stacks are compared.
    """

    name = "hidden_states"
    needs = RequiredOutputs(hidden=True)

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count the tokens of all streams."""
        return count_all_tokens(batch)

    def compute(self, student: ModelOutputs, teacher: ModelOutputs, batch: Batch) -> Tensor:
        """Sum over the tokens."""
        return torch.stack(
            [
                mean_of([squared_distance(own[i], theirs[j]) for i, j in pairs_of(own, theirs)])
                for own, theirs in stack_pairs(student.hidden, teacher.hidden)
            ]
        ).sum()


class AttentionMapLoss(DistillationLoss):
    """The squared distance of the scores of self-attention, before the softmax, at every token.

        mean over pairs of layers, heads and keys of  (s_student - s_teacher)^2,    s = q k / sqrt(d)

    (Jiao et al., 2020, section 3.1, equation 7, who fit the scores and not their softmax.) Keys are those
    that a token may read: its own sequence's, and in a decoder none behind it. A learned bias of distances
    (T5) is no product of both, and left out, and so is cross-attention.
    """

    name = "attention_maps"
    needs = RequiredOutputs(heads=True)

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count the tokens of all streams."""
        return count_all_tokens(batch)

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


class RelationLoss(DistillationLoss):
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

    def count(self, batch: Batch, num_predicted: Tensor) -> Tensor:
        """Count the tokens of all streams."""
        return count_all_tokens(batch)

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


def count_all_tokens(batch: Batch) -> Tensor:
    """Count what encoder and decoder read."""
    names = [name for name in ("input_ids", "decoder_input_ids") if name in batch]
    return torch.stack([count_tokens(batch, name) for name in names]).sum()


def count_tokens(batch: Batch, name: str) -> Tensor:
    """Count the tokens of a stream."""
    return torch.tensor(batch[name].numel(), device=batch[name].device)
