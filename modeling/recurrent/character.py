"""The character language model: an LSTM reads a text forwards, another one reads it backwards.

    the green house
    the green           read by the forward state behind the last character of "green"
        green house     read by the backward state before its first character

The vector of a word consists of these two states (Akbik et al., 2018, "Contextual String Embeddings for
Sequence Labeling", section 2): it depends on the whole sentence, and there is no word without one.

Deviations from the paper: both directions learn in one run, from the same stretches of text, and each stretch
is read with context instead of the state that the one before has left.

Shapes: B batch, T positions, N characters, C states of one direction, V vocabulary, S sequences. Packed input
is (1, N) instead of (B, T).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from ..heads.cross_entropy import LossArguments, lm_head_loss, logits_loss, take_loss_arguments
from ..heads.pretraining import build_head_transform
from ..heads.targets import IGNORE
from ..layers.dropout import Dropout
from ..layers.embeddings import look_up
from ..outputs import Keywords, TercetCharacterLanguageModelOutput
from ..pretrained_neural import NeuralPreTrainedModel
from ..tracing import is_tracing
from .configuration_character import TercetCharacterConfig
from .reading_orders import Characters, find_characters
from .word_vectors import embed_words


class CharacterReader(nn.Module):
    """What reads in one direction: vectors of characters, and an LSTM over them."""

    def __init__(self, config: TercetCharacterConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_width)
        self.dropout = Dropout(config.dropout)
        is_stacked = config.num_hidden_layers > 1
        self.lstm = nn.LSTM(
            config.embedding_width,
            config.hidden_size,
            config.num_hidden_layers,
            dropout=config.dropout if is_stacked else 0.0,
        )

    def forward(self, columns: Tensor) -> Tensor:
        """Read ids (T, S) from top to bottom: the state behind each of them, (T, S, C)."""
        return self.lstm(self.dropout(look_up(self.embed_tokens, columns)))[0]


class CharacterPrediction(nn.Module):
    """What predicts the next character in one direction from the state behind the last one."""

    def __init__(self, config: TercetCharacterConfig):
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.transform = build_head_transform(config)
        self.lm_head = nn.Linear(config.head_width, config.vocab_size, bias=config.head_bias)

    def forward(self, states: Tensor) -> Tensor:
        """Logits (..., V) of states (..., C)."""
        return self.lm_head(self.transform(self.dropout(states)))

    def loss(self, states: Tensor, targets: Tensor, loss_arguments: LossArguments) -> Tensor:
        """Cross-entropy of targets (T, S) at states (T, S, C); only targets reach the vocabulary."""
        states = self.dropout(states)
        return lm_head_loss(states, targets, self.transform, self.lm_head, **loss_arguments)


class TercetCharacterPreTrainedModel(NeuralPreTrainedModel):
    """What transformers needs to know of character models. Abstract."""

    config: TercetCharacterConfig

    def get_input_embeddings(self) -> nn.Module:
        """Return the forward direction's vectors of characters; the backward direction has others."""
        base = self if isinstance(self, TercetCharacterModel) else self.get_submodule(self.base_model_prefix)
        return base.get_submodule("forward_reader.embed_tokens")

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Refuse: each direction has vectors of its own."""
        raise ValueError(
            "a character model has two tables of vectors: set forward_reader.embed_tokens and "
            "backward_reader.embed_tokens, or train it with another tokenizer"
        )


class TercetCharacterModel(TercetCharacterPreTrainedModel):
    """Both directions without their predictions: states of characters, and vectors of words.

    Example:
        >>> import torch
        >>> from tercet import TercetCharacterConfig, TercetCharacterModel
        >>> model = TercetCharacterModel(TercetCharacterConfig(hidden_size=32))
        >>> model(torch.tensor([[5, 6, 7], [8, 9, 0]])).last_hidden_state.shape
        torch.Size([2, 3, 64])
    """

    def __init__(self, config: TercetCharacterConfig):
        super().__init__(config)
        self.forward_reader = CharacterReader(config)
        self.backward_reader = CharacterReader(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        max_length_q: int | None = None,
        **kwargs: Keywords,
    ) -> BaseModelOutput:
        """States (B, T, 2 C) of characters (B, T): the forward ones, then the backward ones.

        Args:
            input_ids: (B, T), padded on either side; or packed (1, N).
            attention_mask: (B, T), 0 at pads, whose states are zero.
            position_ids: Where they restart, in one row, another sequence begins; else they change nothing.
            cu_seq_lens_q: Cumulative lengths (S + 1,) of packed sequences, which never see each other.
            max_length_q: The longest of them, if it is known.
            **kwargs: What models with attention take; `output_attentions` and `output_hidden_states` are
                refused.

        Raises:
            ValueError: The bounds do not cut the stream, or attentions or states of layers are requested.
        """
        refuse_recording(kwargs)
        text = find_characters(input_ids, attention_mask, position_ids, cu_seq_lens_q, max_length_q)
        return BaseModelOutput(last_hidden_state=text.restore(self.read(text)))

    @property
    def readers(self) -> tuple[CharacterReader, CharacterReader]:
        """Return what reads forwards, and what reads backwards."""
        return self.forward_reader, self.backward_reader

    def read(self, text: Characters, places: Sequence[Tensor | None] = (None, None)) -> Tensor:
        """Read in both directions: the states (N, 2 C) of a stream.

        With `places`, n in either direction, those of the forward one at the first (n,), beside those of the
        backward one at the second (n,).
        """
        directions = zip(text.orders, self.readers, places, strict=True)
        return torch.cat(
            [order.stream(reader(order.columns(text.stream)), own) for order, reader, own in directions],
            dim=-1,
        )

    def embed_words(
        self, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]]
    ) -> list[Tensor]:
        """Embed the words of sentences, (W, 2 C) for each; see `embed_words`."""
        return embed_words(self, tokenizer, sentences)


class TercetCharacterLanguageModel(TercetCharacterPreTrainedModel):
    """Both directions with their predictions: of the next character, and of the one before."""

    # Each direction has a target less than labels in every text: Trainer has to divide by its steps.
    accepts_loss_kwargs = False
    _tied_weights_keys = {
        "forward_prediction.lm_head.weight": "model.forward_reader.embed_tokens.weight",
        "backward_prediction.lm_head.weight": "model.backward_reader.embed_tokens.weight",
    }

    def __init__(self, config: TercetCharacterConfig):
        super().__init__(config)
        self.model = TercetCharacterModel(config)
        self.forward_prediction = CharacterPrediction(config)
        self.backward_prediction = CharacterPrediction(config)
        self.post_init()

    @property
    def predictions(self) -> tuple[CharacterPrediction, CharacterPrediction]:
        """Give what predicts the next character, and what predicts the one before."""
        return self.forward_prediction, self.backward_prediction

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        max_length_q: int | None = None,
        labels: Tensor | None = None,
        **kwargs: Keywords,
    ) -> TercetCharacterLanguageModelOutput:
        """Predict characters in both directions, with the loss of each and their sum.

        `labels` (B, T) are the characters themselves, or -100 where none is to be predicted: the forward
        direction predicts each from the characters before it, the backward one from those behind it. In
        training with labels, no logits or states are returned. See `TercetCharacterModel.forward` for the
        other inputs, and `LossArguments` for the loss.
        """
        loss_arguments = take_loss_arguments(kwargs)
        refuse_recording(kwargs)
        text = find_characters(input_ids, attention_mask, position_ids, cu_seq_lens_q, max_length_q)
        targets = None if labels is None else text.flat(labels)
        if targets is not None and self.training and not is_tracing():
            return with_losses(self.learn(text, targets, loss_arguments))
        states = self.model.read(text)
        logits = [
            predict(part) for predict, part in zip(self.predictions, states.chunk(2, dim=-1), strict=True)
        ]
        losses = None
        if targets is not None:
            losses = [
                logits_loss(part, order.stream(order.targets(targets)), **loss_arguments)
                for part, order in zip(logits, text.orders, strict=True)
            ]
        forward_logits, backward_logits = map(text.restore, logits)
        return with_losses(
            losses,
            forward_logits=forward_logits,
            backward_logits=backward_logits,
            last_hidden_state=text.restore(states),
        )

    def learn(self, text: Characters, labels: Tensor, loss_arguments: LossArguments) -> list[Tensor]:
        """Compute the losses of both directions, each of which reads no further than its last target."""
        losses = []
        for order, reader, predict in zip(text.orders, self.model.readers, self.predictions, strict=True):
            targets = order.targets(labels)
            length = steps_of_targets(targets)
            states = reader(order.columns(text.stream)[:length])
            losses.append(predict.loss(states, targets[:length], loss_arguments))
        return losses


def steps_of_targets(targets: Tensor) -> int:
    """Count the steps up to the last one that has a target, of targets (T, S); at least one."""
    steps = (targets != IGNORE).any(dim=1).nonzero()
    return int(steps[-1]) + 1 if len(steps) else 1


def with_losses(losses: Sequence[Tensor] | None, **outputs: Tensor) -> TercetCharacterLanguageModelOutput:
    """Add the losses of both directions, if there are any, and their sum to what a model returns."""
    if losses is None:
        return TercetCharacterLanguageModelOutput(**outputs)
    forward, backward = losses
    return TercetCharacterLanguageModelOutput(
        loss=forward + backward, forward_loss=forward, backward_loss=backward, **outputs
    )


def refuse_recording(kwargs: dict[str, Any]) -> None:
    """Raise a `ValueError` if what only stacks of layers have is requested."""
    for name in ("output_attentions", "output_hidden_states"):
        if kwargs.get(name):
            raise ValueError(
                f"{name} is {kwargs[name]}, but a character model has only the states of both directions, in "
                "last_hidden_state: leave it out"
            )
