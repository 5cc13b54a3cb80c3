"""From states to labels: the heads of tasks, and the losses of what they predict.

Shapes: B batch, T positions, S sequences, C model width, L labels. Packed input is (1, N) instead of (B, T).
"""

from collections.abc import Callable
from typing import Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..configuration_neural import NeuralConfig
from ..configuration_tercet import TercetConfig
from ..layers.position_wise import FEED_FORWARD, Dropout, build_activation, build_norm
from ..sequences import Sequences
from .losses import (
    IGNORE,
    LossArguments,
    at_least_float32,
    checked_labels,
    checked_shares,
    cross_entropy_sum,
    logits_loss,
    reduce_loss,
    require_plain_loss,
    require_size,
)


def pool_first(states: Tensor, sequences: Sequences) -> Tensor:
    return states[sequences.first]


def pool_last(states: Tensor, sequences: Sequences) -> Tensor:
    return states[sequences.last]


def pool_mean(states: Tensor, sequences: Sequences) -> Tensor:
    """Average the states of each sequence's tokens, in float32: their sum may exceed what float16 holds."""
    with torch.autocast(states.device.type, enabled=False):
        total = sequences.total(at_least_float32(states))
    return (total / sequences.lengths.clamp(min=1)[:, None]).to(states.dtype)


# Functions with names, since whole models are pickled, too.
POOLING: dict[str, Callable[[Tensor, Sequences], Tensor]] = {
    "first": pool_first,
    "last": pool_last,
    "mean": pool_mean,
}
"""One vector for each sequence, (S, C), of states (B, T, C), by `classifier_pooling`."""


class SequenceClassificationHead(nn.Module):
    """Labels of whole sequences: a vector for each, perhaps a dense layer, and a linear one.

    With the fields of `TercetConfig` it is the head of BERT (Devlin et al., 2019, section 3.2), RoBERTa,
    DistilBERT, ELECTRA, BART, GPT-2 or ModernBERT.
    """

    def __init__(self, config: NeuralConfig, num_labels: int):
        super().__init__()
        has_transform = config.classifier_act is not None
        self.pool = POOLING[config.classifier_pooling]
        self.input_dropout = Dropout(config.classifier_input_dropout if has_transform else 0.0)
        self.transform = ClassifierTransform(config) if has_transform else nn.Identity()
        self.dropout = Dropout(config.dropout_of("classifier_dropout"))
        self.out_proj = nn.Linear(
            config.hidden_size, num_labels, bias=has_transform or config.classifier_bias
        )

    def forward(self, states: Tensor, sequences: Sequences) -> Tensor:
        """Score the labels (S, L) of sequences in states (B, T, C)."""
        pooled = self.input_dropout(self.pool(states, sequences))
        return self.out_proj(self.dropout(self.transform(pooled)))


class TokenClassificationHead(nn.Module):
    """Labels of single tokens: a linear layer, behind a transform only if that ends in a norm."""

    def __init__(self, config: NeuralConfig, num_labels: int):
        super().__init__()
        self.transform = ClassifierTransform(config) if config.classifier_norm else nn.Identity()
        self.dropout = Dropout(config.dropout_of("classifier_dropout"))
        self.out_proj = nn.Linear(config.hidden_size, num_labels)

    def forward(self, states: Tensor) -> Tensor:
        """Scores of the labels: (B, T, C) -> (B, T, L)."""
        return self.out_proj(self.dropout(self.transform(states)))


class ClassifierTransform(nn.Module):
    """norm(act(W x + b)): without the norm the "pooler" of BERT, with it the "head" of ModernBERT."""

    def __init__(self, config: NeuralConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.classifier_bias)
        self.act_fn = build_activation(str(config.classifier_act))
        self.norm = build_norm(config) if config.classifier_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Transform each vector: (..., C) -> (..., C)."""
        return self.norm(self.act_fn(self.dense(x)))


def count_labels(config: NeuralConfig) -> int:
    return len(config.id2label or ())


def classification_loss(
    logits: Tensor,
    labels: Tensor,
    config: NeuralConfig,
    **loss_arguments: Unpack[LossArguments],
) -> Tensor:
    """Loss of the labels of sequences under logits (S, L), by `config.problem_type`.

    Where the configuration names no problem, the first labels do, and it is written down there, as in
    transformers, whose pipelines read it. Labels are integers (S,) in single-label classification, and
    numbers (S, L), or (S,) if L is 1, in the others, whose mean is over all of them.
    `checked_labels` and `checked_shares` say which are refused.
    """
    if config.problem_type is None:
        config.problem_type = problem_of(labels, count_labels(config))
    rows = torch.atleast_1d(labels)[:, None].flatten(1)
    if config.problem_type == "single_label_classification":
        require_size(rows, logits[:, :1].shape, f", or floats {(*logits.shape,)} for sets of labels")
        return logits_loss(logits, labels.view(-1), **loss_arguments)
    require_plain_loss(config.problem_type, loss_arguments)
    require_size(rows, logits.shape)
    if config.problem_type == "multi_label_classification":
        labels = checked_shares(labels)
    logits = at_least_float32(logits).flatten()
    total = LOSSES_OF_NUMBERS[config.problem_type](logits, labels.flatten().to(logits.dtype), reduction="sum")
    num_targets = torch.full((), logits.numel(), device=logits.device)
    return reduce_loss(total, num_targets, loss_arguments)


LOSSES_OF_NUMBERS: dict[str, Callable[..., Tensor]] = {
    "regression": F.mse_loss,
    "multi_label_classification": F.binary_cross_entropy_with_logits,
}
"""Loss of labels that are numbers, not one of several, by `problem_type`."""


def problem_of(
    labels: Tensor, num_labels: int
) -> Literal["regression", "single_label_classification", "multi_label_classification"]:
    """Find the problem type by the labels: one number, one of several, or each or not.

    The rule is transformers', where integers of other widths in one row are numbers of labels, too.
    """
    if num_labels == 1:
        return "regression"
    is_index = labels.dim() == 1 and not (labels.is_floating_point() or labels.dtype == torch.bool)
    is_choice = is_index or labels.dtype in (torch.long, torch.int)
    return "single_label_classification" if is_choice else "multi_label_classification"


def span_loss(
    start_logits: Tensor,
    end_logits: Tensor,
    start_positions: Tensor | None,
    end_positions: Tensor | None,
    sequences: Sequences,
    **loss_arguments: Unpack[LossArguments],
) -> Tensor | None:
    """Mean of the losses of where answers start and where they end, if both are known.

    Each is the cross-entropy of one position (S,) or (S, 1) among the tokens of its sequence, under logits
    (B, T). A position beyond them is ignored, as in transformers, where pads are candidates, too: here they
    are not, so that padding changes no loss. Nor does `IGNORE`; another one below 0 is a `ValueError`, where
    transformers takes it for the first token.
    """
    if start_positions is None or end_positions is None:
        return None
    start = position_loss(start_logits, start_positions, sequences, **loss_arguments)
    return (start + position_loss(end_logits, end_positions, sequences, **loss_arguments)) / 2


def position_loss(
    logits: Tensor, positions: Tensor, sequences: Sequences, **loss_arguments: Unpack[LossArguments]
) -> Tensor:
    """Cross-entropy of one position (S,) of each sequence, in its row, or from its first packed token."""
    require_plain_loss("a position", loss_arguments)
    is_own = sequences.is_own
    positions = checked_labels(positions, None, "positions").view(-1)
    columns = (sequences.origins + positions).where(positions >= 0, IGNORE)
    is_target = is_own & (columns[:, None] == torch.arange(is_own.shape[1], device=is_own.device))
    labels = columns.masked_fill(~is_target.any(-1), IGNORE)
    candidates = torch.where(is_own, at_least_float32(logits), -torch.inf)  # (S, T)
    return reduce_loss(cross_entropy_sum(candidates, labels), is_target.sum(), loss_arguments)


class LinearAnswerHead(TokenClassificationHead):
    """A linear layer (Devlin et al., 2019, section 4.2), behind what labels of tokens have before it."""

    def __init__(self, config: TercetConfig):
        super().__init__(config, num_labels=2)


class FeedForwardAnswerHead(nn.Module):
    """norm(x + f(x)) with a feed-forward network f, then a linear layer, as in transformers' BigBird."""

    def __init__(self, config: TercetConfig):
        super().__init__()
        self.feed_forward = FEED_FORWARD[config.feed_forward_type](config)
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout_of("classifier_dropout"))
        self.out_proj = nn.Linear(config.hidden_size, 2)

    def forward(self, states: Tensor) -> Tensor:
        """Score each token as the first and as the last of an answer: (B, T, C) -> (B, T, 2)."""
        transformed = self.dropout(self.feed_forward(self.dropout(states)))
        return self.out_proj(self.norm(states + transformed))


ANSWER_HEADS: dict[str, type[nn.Module]] = {"linear": LinearAnswerHead, "feed_forward": FeedForwardAnswerHead}
"""By the `answer_head` of a configuration."""
