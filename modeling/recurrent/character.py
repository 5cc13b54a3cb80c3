"""The character language model: an LSTM reads a text forwards, another one reads it backwards.

    the green house
    the green           read by the forward state behind the last character of "green"
        green house     read by the backward state before its first character

The vector of a word consists of these two states (Akbik et al., 2018, "Contextual String Embeddings for
Sequence Labeling", section 2): it depends on the whole sentence, and there is no word without one.

Deviations from the paper: both directions learn in one run, from the same stretches of text, and each stretch
is read with context instead of the state that the one before has left.

Two orders in which to read the sequences of a packed stream, each as columns that a recurrent layer reads.

    stream      a b c | d e          forward  a d        backward  c e
    places      0 1 2   3 4                   b e                  b d
                                              c .                  a .

What comes next in a column is what a language model of that direction predicts, so that both directions are
the same model in different orders. Pads come last in every column, where no state of a real character depends
on them: padded, packed and alone are the same for a recurrent layer, too. What is read at the same time lies
beside each other, as torch's kernels want it: rows would be copied.

Vectors of words from the states of characters (Akbik et al., 2018, section 2).

    <end> the _ green _ house <end>          words joined by spaces, between two ends of a text

The vector of a word is the forward state behind its last character, beside the backward state before its
first one. A model has learned where texts begin and end from the token that ends them; both directions meet
it first. Words are encoded one by one: so each has its own characters, whatever the tokenizer makes of them.

Shapes: B batch, T positions, N characters, C states of one direction, V vocabulary, S sequences or sentences,
W words. Packed input is (1, N) instead of (B, T).
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from ..attention.packing import Padding, cumulative, longest, sequence_ids
from ..compatibility import is_tracing, known_arguments
from ..heads.losses import (
    IGNORE,
    LOSS_KEYWORDS,
    LossArguments,
    lm_head_loss,
    logits_loss,
    take_loss_arguments,
)
from ..layers.position_wise import Dropout, look_up
from ..outputs import Keywords, TercetCharacterLanguageModelOutput
from ..pretrained import NeuralPreTrainedModel, build_head_transform
from ..sequences import PackedStream, Sequences, find_sequences
from .configurations import TercetCharacterConfig
from .layers import read_in_full


class ReadingOrder(NamedTuple):
    """Columns of a stream's characters, each in the order in which it is read."""

    places: Tensor
    """Where each character of the columns is in the stream (T, S); at pads, anywhere."""
    is_real: Tensor
    """False at pads (T, S)."""
    slots: Tensor
    """Where each character of the stream is in the flattened columns (N,)."""

    def columns(self, stream: Tensor) -> Tensor:
        """Lay what a stream has for its characters in columns: (N, ...) -> (T, S, ...)."""
        return stream[self.places]

    def stream(self, columns: Tensor, places: Tensor | None = None) -> Tensor:
        """Return from columns to the stream, or to some of its places (n,): (T, S, ...) -> (N or n, ...)."""
        return columns.flatten(0, 1)[self.slots if places is None else self.slots[places]]

    def targets(self, labels: Tensor) -> Tensor:
        """Find the label that comes next: (N,) -> (T, S); `IGNORE` where a column ends."""
        labels = self.columns(labels).masked_fill(~self.is_real, IGNORE)
        return F.pad(labels[1:], (0, 0, 0, 1), value=IGNORE)


class ReadingOrders(NamedTuple):
    """How a stream is read `forward`, and how `backward`."""

    forward: ReadingOrder
    backward: ReadingOrder


def reading_orders(bounds: Tensor, num_characters: int, max_length: int | None = None) -> ReadingOrders:
    """Find both orders of a stream of N characters whose sequences lie between `bounds` (S + 1,).

    `max_length` is T, if it is known.
    """
    begins, ends = bounds[:-1].long(), bounds[1:].long()
    steps = torch.arange(longest(bounds) if max_length is None else max_length, device=bounds.device)[:, None]
    stream = torch.arange(num_characters, device=bounds.device)
    sequences = sequence_ids(bounds, num_characters)[0]
    is_real = steps < ends - begins

    def order(places: Tensor, steps_before: Tensor) -> ReadingOrder:
        slots = steps_before * len(begins) + sequences
        return ReadingOrder(places.masked_fill(~is_real, 0), is_real, slots)

    return ReadingOrders(
        order(begins + steps, stream - begins[sequences]),
        order(ends - 1 - steps, ends[sequences] - 1 - stream),
    )


class Characters(NamedTuple):
    """The characters of a batch as a stream, and the way back to how the user gave them."""

    stream: Tensor
    """Their ids (N,)."""
    orders: ReadingOrders
    padding: Padding | None
    """None if the user gave a packed stream."""

    @classmethod
    def of(cls, input_ids: Tensor, sequences: Sequences) -> "Characters":
        """Put the ids (B, T) or (1, N) of sequences into a stream, and find both orders of reading it."""
        packed, padding = sequences.packed()
        if packed.size[1] == 0:
            raise ValueError(
                f"a batch of {(*input_ids.shape,)} holds pads alone: give at least one character"
            )
        stream = (input_ids if padding is None else padding.pack(input_ids))[0]
        orders = reading_orders(packed.cu_seq_lens, packed.size[1], packed.max_length)
        return cls(stream, orders, padding)

    def flat(self, labels: Tensor) -> Tensor:
        """Bring labels (B, T) or (1, N) into the stream (N,)."""
        return (labels if self.padding is None else self.padding.pack(labels))[0]

    def restore(self, stream: Tensor) -> Tensor:
        """Lay what the stream has for its characters as the user gave them: (N, C) -> (B, T, C) or (1, N, C).

        At pads it is zero.
        """
        return stream[None] if self.padding is None else self.padding.unpack(stream[None])


CHARACTERS_AT_ONCE = 2**12
"""Characters of a batch at most, pads included, unless one sentence has more."""


class SentenceCharacters:
    """A sentence as characters, and where its words lie in it.

    Args:
        words: The ids of each word's characters.
        space: The ids between two words.
        end: The id at both ends.
    """

    def __init__(self, words: Sequence[Sequence[int]], space: Sequence[int], end: int):
        ids, self.first, self.last = [end], [], []
        for word in words:
            self.first.append(len(ids))
            self.last.append(len(ids) + len(word) - 1)
            ids += [*word, *space]
        self.ids = [*ids[: self.last[-1] + 1], end] if words else [end, end]


def embed_encoded(model: "TercetCharacterModel", texts: Sequence[SentenceCharacters]) -> list[Tensor]:
    """Embed the words of sentences that are encoded, many sentences at a time: for each its vectors (W, 2 C).

    Gradients flow where torch records them: use `torch.no_grad()` for vectors that are only read. In training
    mode, dropout changes them.
    """
    vectors: dict[int, Tensor] = {}
    for numbers in batches([len(text.ids) for text in texts]):
        batch = [texts[number] for number in numbers]
        vectors.update(zip(numbers, vectors_of(model, batch), strict=True))
    return [vectors[number] for number in range(len(texts))]


def vectors_of(model: "TercetCharacterModel", batch: Sequence[SentenceCharacters]) -> Sequence[Tensor]:
    """Embed the words of the sentences of one batch."""
    lengths = torch.tensor([len(text.ids) for text in batch])
    bounds, num_words = cumulative(lengths), [len(text.first) for text in batch]
    stream, first, last = (
        torch.tensor([*chain.from_iterable(numbers)])
        for numbers in zip(*((text.ids, text.first, text.last) for text in batch), strict=True)
    )
    begins = bounds[:-1].repeat_interleave(torch.tensor(num_words))
    stream, bounds, first, last = (
        x.to(model.device) for x in (stream, bounds, begins + first, begins + last)
    )
    sequences = PackedStream(stream[None].shape, bounds, int(lengths.max()))
    return model.read(Characters.of(stream[None], sequences), (last, first)).split(num_words)


def encode_sentences(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]]
) -> list[SentenceCharacters]:
    """Encode sentences word by word."""
    if (end := tokenizer.eos_token_id) is None:
        raise ValueError("the tokenizer has no eos_token, which ends a text: use the model's own tokenizer")
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueError(f"sentence {number} is {sentence!r}: give a list of its words")
        if not sentence:
            raise ValueError(f"sentence {number} has no words: leave it out")
    options: dict[str, Any] = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    distinct = [*dict.fromkeys(chain([" "], *sentences))]
    ids = cast(list[list[int]], tokenizer(distinct, **options)["input_ids"])
    known = dict(zip(distinct, ids, strict=True))
    encoded = [[known[word] for word in sentence] for sentence in sentences]
    for number, sentence in enumerate(encoded):
        if [] in sentence:
            raise ValueError(
                f"word {sentence.index([])} of sentence {number} has no characters: leave it out"
            )
    return [SentenceCharacters(sentence, known[" "], cast(int, end)) for sentence in encoded]


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group sentences of like lengths (S,), longest first, so that no batch has too many characters."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        size = max(CHARACTERS_AT_ONCE // lengths[order[0]], 1)
        yield order[:size]
        order = order[size:]


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
        return read_in_full(self.lstm, self.dropout(look_up(self.embed_tokens, columns)))[0]


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

    @known_arguments()
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
        """
        refuse_recording(kwargs)
        told = attention_mask, position_ids, cu_seq_lens_q, max_length_q
        text = Characters.of(input_ids, find_sequences(input_ids, *told))
        return BaseModelOutput(last_hidden_state=text.restore(self.read(text)))

    @property
    def readers(self) -> tuple[CharacterReader, CharacterReader]:
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
        """Embed the words of sentences: see `embed_encoded`."""
        return embed_encoded(self, encode_sentences(tokenizer, sentences))


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
        return self.forward_prediction, self.backward_prediction

    @known_arguments(*LOSS_KEYWORDS)
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
        told = attention_mask, position_ids, cu_seq_lens_q, max_length_q
        text = Characters.of(input_ids, find_sequences(input_ids, *told))
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
            steps = (targets != IGNORE).any(dim=1).nonzero()
            length = int(steps[-1]) + 1 if len(steps) else 1
            states = reader(order.columns(text.stream)[:length])
            losses.append(predict.loss(states, targets[:length], loss_arguments))
        return losses


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
