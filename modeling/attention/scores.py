"""Attention scores: how a query and a key are compared; and gates, by which the result is passed on.

A score is a small class, chosen by name where the model is built. Most scores prepare queries and keys such
that their dot product, times `scaling`, is the score, so that every kernel serves them. A score that is no
dot product computes those of all pairs instead (`attention/pairs.py`). Positions turn queries and keys before
that (`layers/positions.py`), or add a bias to the score (`attention/relative_bias.py`).

Keys are prepared before they are cached, so that a step of decoding prepares those of its own tokens only.

Parameters begin where no head prefers a channel: matrices as the identity, vectors with a deviation of
1 / sqrt(D), so that scores have about the size of the channels, whatever D is. Vectors of all heads are
stored as one, which optimizers treat as they do those of norms, and not as a matrix.

Additive scores v^T tanh(q + k) of all pairs: their definition, and a computation in little memory.

The hidden layer has D channels for each pair, D times as many numbers as there are scores. It is computed for
a few queries at a time, and again in the backward pass, so that scores are all that remains of it.

With a gate, each position decides how much of what its heads have read is passed on. Qiu et al., 2025, "Gated
attention for large language models", section 2.2: the weighted values Y of the heads become Y * sigmoid(X W),
where X is what the sub-layer reads. This happens after the softmax and before the last projection (their
position G1), so every kernel serves every gate, and caches hold the same. In cross-attention X is the
decoder's state. W is drawn as any other weight: gates are half open at first.

Shapes: B batch, T queries, S keys, C model width, H query heads, G key-value heads, D head width, t queries
of a block, n output positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..compatibility import is_tracing
from .packing import select_positions

BLOCK_BYTES = {"cpu": 2**20}
"""Size of a block's hidden layer, at most, unless it has one query only; by type of device."""

LARGE_BLOCK_BYTES = 2**26
"""The same on other devices."""


def additive_scores(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Score (B, H, T, D) and (B, H, S, D) by the vectors (H, D): (B, H, T, S). The definition."""
    hidden = hidden_layer(query, key)
    return (hidden * vector[:, None, None].to(hidden.dtype)).sum(-1)


def hidden_layer(query: Tensor, key: Tensor) -> Tensor:
    """Compute tanh(q + k) of all pairs: (B, H, T, S, D)."""
    return (query[..., None, :] + key[..., None, :, :]).tanh()


def blocked_additive_scores(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the same in blocks of queries; the hidden layer of a block is all that is in memory of it."""
    return _BlockedScores.apply(query, key, vector)


class _BlockedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, vector)
        weights = vector.to(query.dtype)[..., None]  # (H, D, 1)
        scores = query.new_empty(*query.shape[:-1], key.shape[-2])
        with torch.autocast(query.device.type, enabled=False):
            for block in blocks(query, key):
                hidden = hidden_layer(query[:, :, block], key)
                products = hidden.flatten(2, 3) @ weights
                scores[:, :, block] = products.view(hidden.shape[:-1])
        return scores

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, vector = ctx.saved_tensors
        dtype = torch.promote_types(query.dtype, torch.float32)  # of what blocks add up to
        d_query, d_key = torch.empty_like(query), torch.zeros_like(key, dtype=dtype)
        d_vector = torch.zeros_like(vector, dtype=dtype)
        weights = vector[:, None].to(dtype)  # (H, 1, D)
        for block in blocks(query, key):
            hidden = hidden_layer(query[:, :, block], key)
            d_scores = gradient[:, :, block]
            d_vector += (d_scores.flatten(2)[..., None, :] @ hidden.flatten(2, 3)).sum((0, 2))
            slopes = hidden.square_().neg_().add_(1).mul_(d_scores[..., None])  # the vector follows the sums
            d_query[:, :, block] = (slopes.sum(3, dtype=dtype) * weights).to(query.dtype)
            d_key += slopes.sum(2, dtype=dtype)
        return d_query, (d_key * weights).to(key.dtype), d_vector.to(vector.dtype)


def blocks(query: Tensor, key: Tensor) -> Iterator[slice]:
    """Cut the queries into blocks, each of which has a hidden layer of a limited size, or a single query."""
    limit = BLOCK_BYTES.get(query.device.type, LARGE_BLOCK_BYTES)
    size = max(1, limit // max(1, key.numel() * key.element_size()))
    return (slice(start, start + size) for start in range(0, query.shape[-2], size))


class AttentionScore(nn.Module, ABC):
    """How a query and a key are compared in layers of a `TercetConfig`. Abstract."""

    scaling: float = 1.0
    """Factor of the dot products."""
    is_dot_product: ClassVar[bool] = True
    """Whether the score is `scaling` times the dot product of what is prepared."""
    has_parameters: ClassVar[bool] = False
    """Whether it has parameters: those of all heads, which tensor parallelism then keeps together."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()

    @abstractmethod
    def prepare_query(self, query: Tensor) -> Tensor:
        """Change queries (B, H, T, D), which positions may have turned."""

    @abstractmethod
    def prepare_key(self, key: Tensor) -> Tensor:
        """Change keys (B, G, S, D), which positions may have turned, and which may be cached then."""

    def draw(self) -> None:
        """Set the initial values of the parameters."""


class PairScore(AttentionScore):
    """A score that is no dot product. Abstract."""

    is_dot_product = False

    @abstractmethod
    def define(self, query: Tensor, key: Tensor) -> Tensor:
        """Compute the scores (B, H, T, S) of what is prepared, in the obvious way."""

    @abstractmethod
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """Compute the same in little memory."""


class PlainScore(AttentionScore):
    """Dot products of queries and keys as they are. Abstract: the two below scale them."""

    def prepare_query(self, query: Tensor) -> Tensor:
        return query

    def prepare_key(self, key: Tensor) -> Tensor:
        return key


class ScaledDotProduct(PlainScore):
    """Dot products, over the square root of D (Vaswani et al., 2017, section 3.2.1)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.scaling = config.head_dim**-0.5


class DotProduct(PlainScore):
    """Dot products q^T k (Luong et al., 2015, section 3.1, "dot")."""


class BilinearScore(AttentionScore):
    """q^T W k with a matrix W for each head (Luong et al., 2015, section 3.1, "general").

    Each head has its own because each has its own projections: a channel of one is not that of another. W is
    the identity at first, so that training starts as with `dot_product`. Only positions that turn, or a norm
    of heads, stand between W and the projections: without these, `q_proj`
    could be what it is with W.
    """

    has_parameters = True

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.matrix = nn.Parameter(torch.empty(config.num_attention_heads, config.head_dim, config.head_dim))
        self.draw()

    def prepare_query(self, query: Tensor) -> Tensor:
        return query @ self.matrix

    def prepare_key(self, key: Tensor) -> Tensor:
        return key

    def draw(self) -> None:
        set_to_identity(self.matrix)


class ConcatenatedScore(AttentionScore):
    """v^T [q; k] without a hidden layer: how much a key is worth, whoever asks.

    The query's part of v adds the same to all scores of a query, which a softmax does not feel. So it is left
    out, v has D channels for each head, and all queries become v. Weights depend on keys alone, and on which
    of them a query may attend to.
    """

    has_parameters = True

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.head_dim = config.head_dim
        self.vector = nn.Parameter(torch.empty(config.num_attention_heads * config.head_dim))
        self.draw()

    def prepare_query(self, query: Tensor) -> Tensor:
        vector = self.vector.to(query.dtype).view(query.shape[1], 1, query.shape[-1])
        return vector + 0.0 * query  # a gradient for its projection, for which processes wait

    def prepare_key(self, key: Tensor) -> Tensor:
        return key

    def draw(self) -> None:
        init.normal_(self.vector, std=self.head_dim**-0.5)


class AdditiveScore(PairScore):
    """v^T tanh(W q + U k) in each head (Bahdanau et al., 2015, section A.1.2), with D hidden channels.

    W and v are those of a query head, U is that of a key-value head, whose keys are cached as U k.
    """

    has_parameters = True

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        num_heads, head_dim = config.num_attention_heads, config.head_dim
        self.query_matrix = nn.Parameter(torch.empty(num_heads, head_dim, head_dim))
        self.key_matrix = nn.Parameter(torch.empty(config.num_key_value_heads, head_dim, head_dim))
        self.vector = nn.Parameter(torch.empty(num_heads * head_dim))
        self.draw()

    def prepare_query(self, query: Tensor) -> Tensor:
        return query @ self.query_matrix.mT

    def prepare_key(self, key: Tensor) -> Tensor:
        return key @ self.key_matrix.mT

    def define(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(*self.per_head(query, key))

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        # A compiler joins the operations itself.
        compute = additive_scores if is_tracing() else blocked_additive_scores
        return compute(*self.per_head(query, key))

    def per_head(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Repeat keys that heads share, and give each head its v: (B, H, T, D), (B, H, S, D), (H, D)."""
        groups = query.shape[1] // key.shape[1]
        return query, key.repeat_interleave(groups, dim=1), self.vector.view(-1, query.shape[-1])

    def draw(self) -> None:
        set_to_identity(self.query_matrix)
        set_to_identity(self.key_matrix)
        init.normal_(self.vector, std=self.query_matrix.shape[-1] ** -0.5)


def set_to_identity(matrices: nn.Parameter) -> None:
    """Set the matrix of each head (H, D, D) to the identity."""
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    init.copy_(matrices, identity.expand_as(matrices))


SCORES: dict[str, type[AttentionScore]] = {
    "scaled_dot_product": ScaledDotProduct,
    "dot_product": DotProduct,
    "bilinear": BilinearScore,
    "additive": AdditiveScore,
    "concatenated": ConcatenatedScore,
}
"""By the field `attention_score` of a configuration."""


class AttentionGate(nn.Module, ABC):
    """How much of the weighted values is passed on in layers of a `TercetConfig`. Abstract."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()

    @abstractmethod
    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        """Scale weighted values (B, T, H*D) by what the sub-layer reads, `hidden_states` (B, T, C).

        With `output_positions` (n,) of the flattened batch, the values are those of these alone: (1, n, H*D).
        """


class NoGate(AttentionGate):
    """Everything is passed on (Vaswani et al., 2017)."""

    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        return values


class HeadwiseGate(AttentionGate):
    """One gate for each head: few parameters, C * H a layer."""

    prepacks = True

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.g_proj = nn.Linear(config.hidden_size, config.num_attention_heads, bias=config.attention_bias)

    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        gate = self.g_proj(select_positions(hidden_states, output_positions)).sigmoid()  # (B, T, H)
        return (values.unflatten(-1, (gate.shape[-1], -1)) * gate[..., None]).flatten(start_dim=-2)


class ElementwiseGate(AttentionGate):
    """One gate for each channel of each head, as in Qwen3-Next."""

    prepacks = True

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        width = config.num_attention_heads * config.head_dim
        self.g_proj = nn.Linear(config.hidden_size, width, bias=config.attention_bias)

    def forward(self, values: Tensor, hidden_states: Tensor, output_positions: Tensor | None) -> Tensor:
        return values * self.g_proj(select_positions(hidden_states, output_positions)).sigmoid()


GATES: dict[str, type[AttentionGate]] = {
    "none": NoGate,
    "headwise": HeadwiseGate,
    "elementwise": ElementwiseGate,
}
"""By the field `attention_gate` of a configuration."""
