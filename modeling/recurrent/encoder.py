"""The recurrent encoder: layers that read the source in both directions (Bahdanau et al., 2015, section 3.2).

Sequences step by step: the layout in which recurrent layers read a batch without computing pads.

At a step, a recurrent layer reads one token of every sequence that has not ended. torch's `PackedSequence`
holds the tokens in this order: all first tokens, all second tokens, and so on, longer sequences before
shorter ones. Padded and packed batches (`attention/packing.py`) are both permuted into it, wherever pads are.

Shapes: B batch, S source positions, M packed tokens, C width, L layers, P parts of a state, T positions, N
real tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers.utils.generic import ModelOutput

from ..layers.position_wise import Dropout, Embeddings, look_up
from ..layers.positions import NoPositions
from ..sequences import Sequences, find_sequences, require_tokens
from .configurations import TercetRecurrentSeq2SeqConfig
from .layers import RecurrentLayer, build_layers


class TimeSteps:
    """Where the tokens of sequences stand in the order of steps, and back."""

    def __init__(self, sequences: Sequences):
        numbers, lengths = sequences.sequence_ids.flatten(), sequences.lengths.cpu()
        if not lengths.numel() or not lengths.all():
            empty = int((lengths == 0).nonzero()[0]) if lengths.numel() else 0
            raise ValueError(
                f"sequence {empty} of the batch is empty: give each sequence at least one token that its "
                "mask does not hide"
            )
        indices = (numbers >= 0).nonzero().squeeze(-1)  # of the real tokens in the flattened batch, (N,)
        positions = sequences.positions.expand(sequences.size).flatten()[indices]
        ordered, order = lengths.sort(descending=True, stable=True)
        sizes = (ordered[:, None] > torch.arange(int(ordered[0]))).sum(0)
        firsts = (sizes.cumsum(0) - sizes).to(indices.device)
        self.shape = sequences.size
        self.batch_sizes = sizes
        self.order = order.to(indices.device)
        self.rank = self.order.argsort()
        slots = firsts[positions] + self.rank[numbers[indices]]
        self.indices = torch.empty_like(indices).index_copy(0, slots, indices)

    def gather(self, x: Tensor) -> PackedSequence:
        """Read a batch (B, T, C) or stream (1, N, C) in the order of steps."""
        return PackedSequence(x.flatten(0, 1)[self.indices], self.batch_sizes, self.order, self.rank)

    def scatter(self, sequences: PackedSequence) -> Tensor:
        """Return to the layout of the batch, with zeros where the pads were."""
        batch = sequences.data.new_zeros(self.shape.numel(), sequences.data.shape[-1])
        return batch.index_copy(0, self.indices, sequences.data).unflatten(0, self.shape)


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """What a decoder needs of a source.

    Args:
        last_hidden_state: The last layer's states (B, S, C), or packed (1, M, C).
        final_state: State of each layer at the end of each direction, (B, L, P, C): the decoder's first.
        hidden_states: Embeddings and outputs of each layer, (B, S, C) each, if requested.
        attentions: Always `None`: the encoder does not attend.
    """

    last_hidden_state: Tensor | None = None
    final_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: None = None


class RecurrentEncoder(nn.Module):
    """The table of token vectors, which the decoder reads as well, and bidirectional layers.

    Has the model's `config`, as any model's encoder has.
    """

    main_input_name = "input_ids"

    def __init__(self, config: TercetRecurrentSeq2SeqConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config, NoPositions(config))
        self.layers: Iterable[RecurrentLayer] = build_layers(
            config.cell_type, config.hidden_size, config.num_hidden_layers, is_bidirectional=True
        )
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cu_seq_lens: Tensor | None = None,
        *,
        sequences: Sequences | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool = True,
    ) -> RecurrentEncoderOutput:
        """Read sources (B, S), or packed (1, M) with their cumulative lengths.

        Args:
            input_ids: Ids of the sources.
            attention_mask: (B, S), 0 at pads, on either side; `None`: there are none.
            token_type_ids: Segments, of a model that has an embedding for them.
            inputs_embeds: Token vectors (B, S, E) instead of ids.
            cu_seq_lens: Cumulative lengths of packed sources.
            sequences: The sources, if they are found already.
            output_attentions: Ignored: an encoder without attention has no weights of it.
            output_hidden_states: Whether the states of all layers are returned.
            return_dict: Ignored: outputs are always named.
        """
        x = embed(self.embeddings, input_ids, inputs_embeds, token_type_ids)
        if sequences is None:
            names = "attention_mask", "cu_seq_lens_k"
            sequences = find_sequences(x, attention_mask, None, cu_seq_lens, names=names)
        steps = TimeSteps(sequences)
        states, finals = [x], []
        for number, layer in enumerate(self.layers):
            outputs, final = layer.read(steps.gather(self.dropout(x) if number else x), None)
            x = steps.scatter(outputs)
            states.append(x)
            finals.append(final)
        return RecurrentEncoderOutput(
            last_hidden_state=x,
            final_state=torch.stack(finals, dim=1),
            hidden_states=tuple(states) if output_hidden_states else None,
        )


def embed(
    embeddings: Embeddings,
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    token_type_ids: Tensor | None = None,
    prefix: str = "",
) -> Tensor:
    """Look token vectors up, or take those that are given: (B, T, C)."""
    tokens = require_tokens(input_ids, inputs_embeds, prefix)
    no_positions = torch.zeros(1, 1, dtype=torch.long, device=tokens.device)
    vectors = look_up(embeddings.embed_tokens, input_ids) if inputs_embeds is None else inputs_embeds
    return embeddings(vectors, token_type_ids, no_positions)
