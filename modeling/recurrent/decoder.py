"""The recurrent decoder: layers that begin where the encoder ended, and attention to its states.

What attention finds enters no later step. So in training the layers read a whole target at once, and all of
its steps attend at once. `RecurrentDecoder.define` computes the same token by token.

Attention to the states of the encoder is that of Luong et al., 2015, section 3.1:

    h~ = tanh(W [context; h])        with the context a weighted mean of the encoder's states

The decoder's state h of a step asks, the encoder's states answer. In Bahdanau et al. (2015) the state before
the step asks, and the context enters the step. As what attention has found here enters no later step (Luong
calls that input feeding, section 3.3), the states of all steps are known before attention begins, and it is
one batched product.

Shapes: B batch, T target positions, S source positions, N packed tokens, C width, L layers, P parts of a
state, H heads, D width of a head, M tokens of packed targets and sources, b, t and s of a group of them.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from ..attention.dot_product import additive, scaled_dot_product
from ..attention.packing import group_sequences
from ..attention.pairs import blocked_attention
from ..attention.scores import SCORES
from ..layers.position_wise import Dropout
from ..sequences import PackedStream, Sequences
from .configurations import TercetRecurrentSeq2SeqConfig
from .encoder import TimeSteps
from .layers import RecurrentLayer, build_layers


class RecurrentCache(Cache):
    """What a decoder remembers between steps; to transformers, a cache that can be reordered for beams.

    Args:
        state: State of all layers behind the last token, (B, L, P, C).
        keys: Prepared states of the encoder (B, H, S, D), if the decoder attends to them.
        num_tokens: How many tokens the decoder has read, pads included.
    """

    def __init__(self, state: Tensor, keys: Tensor | None, num_tokens: int):
        super().__init__(layers=[])
        self.state, self.keys, self.num_tokens = state, keys, num_tokens

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.num_tokens

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    @property
    def batch_size(self) -> int:
        return len(self.state)

    @property
    def is_croppable(self) -> bool:
        return False

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove:
            raise ValueError(
                f"crop({tokens_to_remove}) of the cache of a recurrent decoder: its state holds no single "
                "tokens, so read the tokens anew, and generate without an assistant"
            )

    def reset(self) -> None:
        raise ValueError("reset() of the cache of a recurrent decoder: pass cache=None to start anew")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx.to(self.state.device))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.state = self.state[indices]
        self.keys = None if self.keys is None else self.keys[indices]

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.state = self.state.repeat_interleave(repeats, dim=0)
        self.keys = None if self.keys is None else self.keys.repeat_interleave(repeats, dim=0)


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
        """Return the encoder's states (B, S, C) in the form in which they are compared, (B, H, S, D)."""
        return self.score.prepare_key(self.parted(source))

    def forward(
        self, states: Tensor, source: Tensor, keys: Tensor, is_real: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Let states (B, T, C) attend to a source (B, S, C) with prepared keys.

        Return what the vocabulary reads (B, T, C), and the attention weights (B, H, T, S). `is_real`
        broadcasts to these, false at pads of the source; `None`: there are none.
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


class Source(NamedTuple):
    """What a decoder reads of an encoder.

    Args:
        states: (B, S, C), or packed (1, M, C).
        sequences: Where they lie.
    """

    states: Tensor
    sequences: Sequences


class Decoded(NamedTuple):
    """What a decoder has made of its tokens.

    Args:
        states: What the vocabulary reads, (B, T, C), or packed (1, N, C).
        cache: To go on with.
        hidden_states: Token vectors and outputs of each layer, (B, T, C) each.
        attentions: Attention weights (B, H, T, S), of padded batches and if there is attention.
    """

    states: Tensor
    cache: RecurrentCache
    hidden_states: tuple[Tensor, ...]
    attentions: Tensor | None


class RecurrentDecoder(nn.Module):
    """Layers in reading direction, and attention, if the configuration has it."""

    def __init__(self, config: TercetRecurrentSeq2SeqConfig):
        super().__init__()
        self.layers: Iterable[RecurrentLayer] = build_layers(
            config.cell_type, config.hidden_size, config.num_hidden_layers, is_bidirectional=False
        )
        self.attention = StateAttention(config) if config.has_attention else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        sequences: Sequences,
        source: Source,
        state: Tensor,
        cache: RecurrentCache | None = None,
    ) -> Decoded:
        """Read target vectors (B, T, C), or packed (1, N, C), behind a state.

        Args:
            x: Vectors of the target's tokens.
            sequences: Where the targets lie.
            source: What is attended to.
            state: Before the first token, (B, L, P, C); a cache has its own.
            cache: What the decoder has read before.
        """
        state = state if cache is None else cache.state
        hidden_states, state = self.read(x, sequences, state)
        keys = self.keys_of(source, cache)
        attended, weights = self.attend(hidden_states[-1], sequences, source, keys)
        num_tokens = x.shape[1] + (0 if cache is None else cache.num_tokens)
        return Decoded(
            self.dropout(attended), RecurrentCache(state, keys, num_tokens), hidden_states, weights
        )

    def read(self, x: Tensor, sequences: Sequences, state: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Let the layers read vectors (B, T, C): those and each layer's outputs, and the state at the end."""
        is_packed = isinstance(sequences, PackedStream)
        is_step = x.shape[1] == 1 and sequences.is_pad is None and not is_packed
        steps = None if is_step else TimeSteps(sequences)
        states, finals = [x], []
        for number, layer in enumerate(self.layers):
            x = self.dropout(x) if number else x
            outputs, final = layer.read(x if steps is None else steps.gather(x), state[:, number])
            x = outputs if steps is None else steps.scatter(outputs)
            states.append(x)
            finals.append(final)
        return tuple(states), torch.stack(finals, dim=1)

    def keys_of(self, source: Source, cache: RecurrentCache | None) -> Tensor | None:
        """Prepare the keys of a padded source, unless a cache has them: (B, H, S, D)."""
        if cache is not None:
            return cache.keys
        if self.attention is None or isinstance(source.sequences, PackedStream):
            return None
        return self.attention.prepare_keys(source.states)

    def attend(
        self, states: Tensor, sequences: Sequences | None, source: Source, keys: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Let states attend to the source: what the vocabulary reads, and the weights of a padded batch."""
        if self.attention is None:
            return states, None
        if isinstance(sequences, PackedStream) and isinstance(source.sequences, PackedStream):
            bounds = sequences.cu_seq_lens, source.sequences.cu_seq_lens
            return self.attention.attend_packed(states, source.states, bounds), None
        assert keys is not None
        is_real = None if (is_pad := source.sequences.is_pad) is None else ~is_pad[:, None, None]
        return self.attention(states, source.states, keys, is_real)

    def define(self, x: Tensor, source: Source, state: Tensor) -> Tensor:
        """Read vectors (B, T, C) without pads, one after another, by equations alone. The definition."""
        result = []
        for vectors in x.split(1, dim=1):
            finals = []
            for number, layer in enumerate(self.layers):
                vectors, final = layer.define(vectors, state[:, number])
                finals.append(final)
            state = torch.stack(finals, dim=1)
            keys = self.keys_of(source, None)
            result.append(self.attend(vectors, None, source, keys)[0])
        return torch.cat(result, dim=1)
