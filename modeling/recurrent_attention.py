"""Attention of a recurrent decoder to the states of its encoder (Luong et al., 2015, section 3.1).

    h~ = tanh(W [context; h])        with the context a weighted mean of the encoder's states

The decoder's state h of a step asks, the encoder's states answer. In Bahdanau et al. (2015) the state before
the step asks, and the context enters the step. As what attention has found here enters no later step (Luong
calls that input feeding, section 3.3), the states of all steps are known before attention begins, and it is
one batched product.

Shapes: B batch, T target positions, S source positions, C width, H heads, D width of a head; N and M tokens
of packed targets and sources; b, t and s of a group of them.
"""

import torch
from torch import Tensor, nn

from .attention_scores import SCORES
from .configuration_recurrent import TercetRecurrentSeq2SeqConfig
from .dot_product import additive, scaled_dot_product
from .pair_attention import blocked_attention
from .sequence_groups import group_sequences


class StateAttention(nn.Module):
    """Attention to an encoder, and what is made of its context and the decoder's state."""

    is_causal = False

    def __init__(self, config: TercetRecurrentSeq2SeqConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.score = SCORES[config.attention_score](config)
        self.kernel = scaled_dot_product if self.score.is_dot_product else blocked_attention
        self.dropout = config.attention_dropout
        self.combine = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def prepare_keys(self, source: Tensor) -> Tensor:
        """Give the encoder's states (B, S, C) the form in which they are compared, (B, H, S, D)."""
        return self.score.prepare_key(self.parted(source))

    def forward(
        self, states: Tensor, source: Tensor, keys: Tensor, is_real: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Let states (B, T, C) attend to a source (B, S, C) with prepared keys.

        Args:
            states: Of the decoder.
            source: The encoder's states.
            keys: What `prepare_keys` makes of them.
            is_real: Which positions of the source are no pads, broadcasting to (B, H, T, S); `None`: all.

        Returns:
            What the vocabulary reads (B, T, C), and the attention weights (B, H, T, S).
        """
        query = self.score.prepare_query(self.parted(states))
        mask = None if is_real is None else additive(is_real, False, keys.shape[2], like=query)
        dropout = self.dropout if self.training else 0.0
        values, scaling = self.parted(source), self.score.scaling
        context, weights = self.kernel(self, query, keys, values, mask, scaling=scaling, dropout=dropout)
        return self.combine(torch.cat((context.flatten(2), states), dim=-1)).tanh(), weights

    def attend_packed(self, states: Tensor, source: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Let packed states (1, N, C) attend to a packed source (1, M, C), sequence by sequence.

        Sequences of similar length are computed together. `bounds` are the cumulative lengths (S+1,) of
        targets and sources.
        """
        groups = group_sequences(*bounds)
        attended = []
        pairs = zip(groups.queries.split(states[0]), groups.keys.split(source[0]), strict=True)
        for number, (queries, keys) in enumerate(pairs):
            is_real = groups.keys.key_mask(number)
            attended.append(self(queries, keys, self.prepare_keys(keys), is_real)[0])
        return groups.queries.join(attended)[None]

    def parted(self, x: Tensor) -> Tensor:
        """Part the channels of states among the heads: (B, T, C) -> (B, H, T, D)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
