"""ELMo: a bidirectional language model over words, and its states as vectors of words in context
(Peters et al., 2018, sections 3.1 to 3.4).

    characters -> a vector for each word -> forward LSTMs   h_1, h_2: words up to this one   -> next word
                                         -> backward LSTMs  h_1, h_2: words from this one on -> word before

Both directions read the same vectors and predict by the same softmax; everything else is apart. Layer 0 of
the states is the word's vector, twice; layer j is both directions' h_j.

LSTM layers that read words in one direction, one above the other (Peters et al., 2018, section 3.4).

The output of a cell is projected, and the projection is what the cell reads at the next word (Sak et al.,
2014). From the second layer on, a layer adds what it read to what it says. The paper's implementation clips
cells and projections at 3, which torch's LSTM cannot: clip the gradients instead.

One vector for each word from all layers: gamma * sum of s_j h_j (Peters et al., 2018, section 3.2).

The weights s are a softmax of numbers w, one for each layer, which a task learns together with the scale
gamma. At the beginning all layers count alike.

ELMo with the heads of tasks: labels of texts and of words, from a mix of all layers.

The mix is the task's own (Peters et al., 2018, section 3.2), and dropout stands behind it (section 3.3). The
paper keeps the language model as it is and lets a large model of the task read the mix; the heads here are
linear, so that the language model should learn along, unless the mix itself is of interest.

Shapes: B batch, T positions, N words, C width of the states, V vocabulary, L codes of a word or labels, S
sequences, W words of the longest, D width of a direction.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import ModelOutput, can_return_tuple

from ..compatibility import known_arguments
from ..configuration_neural import NeuralConfig
from ..heads.losses import IGNORE, LOSS_KEYWORDS, LossArguments, LossChunk, take_loss_arguments
from ..heads.tasks import LabelTask, SequenceLabels, TokenLabels
from ..layers.position_wise import Dropout
from ..outputs import Keywords, LabelOutput
from ..pretrained import NeuralLMHeadModel, NeuralPreTrainedModel
from ..sequences import Sequences, find_sequences
from .configurations import TercetElmoConfig
from .layers import read_in_full
from .spelling import CharacterEncoder, Spelling, spelling_of
from .words import NO_WORD, Words, encode_words, find_words


class ScalarMix(nn.Module):
    """A learned mean of layers, the words' own vectors included."""

    def __init__(self, num_layers: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def draw(self) -> None:
        init.zeros_(self.weights)
        init.ones_(self.gamma)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Mix the states of all layers, (..., C) each, to (..., C)."""
        if len(layers) != len(self.weights):
            raise ValueError(f"{len(layers)} layers to mix, but {len(self.weights)} weights: give all layers")
        shares = (self.gamma * self.weights.softmax(0)).unbind()
        return torch.stack([share * layer for share, layer in zip(shares, layers, strict=True)]).sum(0)

    def squares(self) -> Tensor:
        """Sum the squares of w, a penalty that draws the mix towards the mean of all layers (section 3.3)."""
        return self.weights.square().sum()


# It is the slower of two implementations on a CPU, and the only one with projections.
warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")


class ProjectedLSTM(nn.LSTM):
    """One layer of cells, whose gates begin open for what the cell remembers."""

    def __init__(self, config: TercetElmoConfig):
        width = config.direction_width
        super().__init__(width, config.lstm_cell_size, batch_first=True, proj_size=width)

    def draw(self) -> None:
        """Let the bias of the forget gates begin at 1 (Jozefowicz et al., 2015)."""
        bias, size = cast(Tensor, self.bias_ih_l0), self.hidden_size
        init.copy_(bias, torch.cat([bias[:size], torch.ones_like(bias[:size]), bias[2 * size :]]))


class DirectedLayers(nn.Module):
    """The LSTM layers of one direction."""

    def __init__(self, config: TercetElmoConfig):
        super().__init__()
        self.layers = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.num_hidden_layers))
        self.dropout = Dropout(config.dropout)

    def read(self, number: int, x: Tensor) -> Tensor:
        """Read what the layer below a layer says of rows of words, (S, W, D) -> (S, W, D)."""
        output, _ = read_in_full(self.layers[number], self.dropout(x))
        return output + x if number else output


class TercetElmoPreTrainedModel(NeuralPreTrainedModel):
    """What transformers needs to know of an ELMo. Abstract."""

    config: TercetElmoConfig

    def learn_spelling(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Learn how the tokens of a tokenizer are spelled, so that the model can be given their ids.

        It is saved with the weights: only a model that begins with random weights needs this.
        """
        cast(TercetElmoModel, self.base_model).spelling.learn(spelling_of(tokenizer))
        self.config.unk_token_id = cast(int | None, tokenizer.unk_token_id)

    def get_input_embeddings(self) -> nn.Module:
        """Return the vectors of characters, from which those of words are computed: tokens have none."""
        return cast(TercetElmoModel, self.base_model).characters.embed_characters

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Refuse: the characters are always the same."""
        raise ValueError(
            "ELMo reads bytes, whatever the vocabulary: let it learn_spelling(tokenizer) instead"
        )


class TercetElmoModel(TercetElmoPreTrainedModel):
    """The character encoder and the LSTM layers of both directions.

    Example:
        >>> from tercet import TercetElmoConfig, TercetElmoModel
        >>> config = TercetElmoConfig(hidden_size=32, lstm_cell_size=48, character_filters=[[1, 8], [3, 8]])
        >>> [states.shape for states in TercetElmoModel(config).embed_words([["any", "words"], ["tercet"]])]
        [torch.Size([3, 2, 32]), torch.Size([3, 1, 32])]
    """

    def __init__(self, config: TercetElmoConfig):
        super().__init__(config)
        self.spelling = Spelling(config)
        self.characters = CharacterEncoder(config)
        self.forward_layers = DirectedLayers(config)
        self.backward_layers = DirectedLayers(config)
        self.post_init()

    @known_arguments()
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        **kwargs: Keywords,
    ) -> BaseModelOutput:
        """Contextual states (B, T, C) of tokens, or of words that are given as characters; zeros at pads.

        Args:
            input_ids: Tokens (B, T), padded on either side, or packed (1, N). Every token of a word has the
                state of the word.
            attention_mask: (B, T), 0 at pads.
            position_ids: (B, T). Those that restart in a single row tell of packed sequences.
            character_ids: Codes of words (B, T, L), as `encode_words` makes them, instead of tokens.
            cu_seq_lens_q: Cumulative lengths (S+1,) of packed sequences, which never see each other.
            **kwargs: `output_hidden_states`, whether all n + 1 layers are returned, (B, T, C) each. Others
                have no meaning: an LSTM has no attention.
        """
        told = attention_mask, position_ids, cu_seq_lens_q
        words, characters = self.read(
            self.find_sequences(input_ids, character_ids, *told), input_ids, character_ids
        )
        record: list[Tensor] | None = [] if self.records("output_hidden_states", kwargs) else None
        states = self.layers(words, characters, record)[-1]
        if record is None:
            return BaseModelOutput(last_hidden_state=words.to_tokens(states))
        return BaseModelOutput(last_hidden_state=record[-1], hidden_states=tuple(record))

    def read(
        self, sequences: Sequences, input_ids: Tensor | None, character_ids: Tensor | None
    ) -> tuple[Words, Tensor]:
        """Find the words of a batch and their characters (N, L); see `forward`."""
        if character_ids is not None:
            words = find_words(sequences)
            return words, character_ids.flatten(0, 1)[words.tokens]
        assert input_ids is not None
        words = find_words(sequences, self.spelling.begins_word(input_ids))
        return words, self.spelling.spell(input_ids, words)

    def find_sequences(
        self,
        input_ids: Tensor | None,
        character_ids: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        cu_seq_lens: Tensor | None,
    ) -> Sequences:
        """Find the sequences of a batch; without a mask, pads are pad ids, or positions without a word."""
        if (input_ids is None) == (character_ids is None):
            raise ValueError("give input_ids or character_ids, one of them")
        tokens, pad = input_ids, self.config.pad_token_id
        if character_ids is not None:
            tokens, pad = character_ids.amax(-1), NO_WORD
        assert tokens is not None
        return find_sequences(tokens, attention_mask, position_ids, cu_seq_lens).with_pads(tokens, pad)

    def layers(self, words: Words, characters: Tensor, record: list[Tensor] | None = None) -> list[Tensor]:
        """Compute the n + 1 layers of states (N, C) of words that are spelled (N, L), and record them."""
        x = self.characters(characters)
        states = [words.recorded(torch.cat([x, x], dim=-1), record)]
        directions = ((self.forward_layers, False), (self.backward_layers, True))
        for number in range(self.config.num_hidden_layers):
            halves = states[-1].chunk(2, dim=-1)
            read = [
                words.from_rows(
                    stack.read(number, words.rows(half, is_reversed=is_reversed)), is_reversed=is_reversed
                )
                for half, (stack, is_reversed) in zip(halves, directions, strict=True)
            ]
            states.append(words.recorded(torch.cat(read, dim=-1), record))
        return states

    @torch.no_grad()
    def embed_words(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return all layers of states (n + 1, words, C) of each sentence, any words, for use as features.

        The model should be in evaluation. Begin and end of a sentence are read, but have no states here.
        """
        inputs = encode_words(sentences, self.config.max_characters_per_word)
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        layers = self(**inputs, output_hidden_states=True).hidden_states
        states = torch.stack(layers, dim=1)  # (B, n + 1, T, C)
        return [states[number, :, 1 : len(sentence) + 1] for number, sentence in enumerate(sentences)]


@dataclass
class TercetElmoLanguageModelOutput(ModelOutput):
    """What both directions predict.

    Args:
        loss: Mean of the losses of both directions.
        forward_loss: Cross-entropy of each next word.
        backward_loss: Cross-entropy of each word before.
        forward_logits: Scores of the next word, (B, T, V); absent in training with labels.
        backward_logits: Scores of the word before, (B, T, V); absent in training with labels.
        hidden_states: The n + 1 layers, (B, T, C) each, if requested.
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class TercetElmoForLanguageModeling(TercetElmoPreTrainedModel, NeuralLMHeadModel):
    """ELMo and the prediction of the next word and of the one before, by one softmax (section 3.1)."""

    config: TercetElmoConfig
    # What is counted as a target is a word, not a label: Trainer has to divide by its steps.
    accepts_loss_kwargs = False

    def __init__(self, config: TercetElmoConfig):
        super().__init__(config)
        self.model = TercetElmoModel(config)
        self.dropout = Dropout(config.dropout)
        self.build_lm_head(config)
        self.post_init()

    def build_lm_head(self, config: NeuralConfig) -> None:
        self.transform = nn.Identity()
        self.lm_head = nn.Linear(config.head_width, config.vocab_size, bias=config.head_bias)
        self.loss_chunk = LossChunk()

    @known_arguments(*LOSS_KEYWORDS)
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Keywords,
    ) -> TercetElmoLanguageModelOutput:
        """Predict the words on both sides of each word.

        See `TercetElmoModel.forward` for the inputs, `NeuralLMHeadModel.compute_loss_and_logits` for what is
        returned when, and `LossArguments` for the loss. `labels` (B, T) are the words themselves, as in
        causal language modeling: `input_ids`, or ids of the words that `character_ids` spell. -100 is no
        target, and a word of several tokens counts as unknown.
        """
        loss_arguments = take_loss_arguments(kwargs)
        told = attention_mask, position_ids, cu_seq_lens_q
        sequences = self.model.find_sequences(input_ids, character_ids, *told)
        words, characters = self.model.read(sequences, input_ids, character_ids)
        record: list[Tensor] | None = [] if self.records("output_hidden_states", kwargs) else None
        last = self.model.layers(words, characters, record)[-1]
        known = None if labels is None else known_words(labels, words, self.config.unk_token_id)
        losses, logits = [], []
        for states, offset in zip(last.chunk(2, dim=-1), (1, -1), strict=True):
            targets = None if known is None else words.neighbours(known, offset, IGNORE)
            states = words.to_tokens(self.dropout(states))
            loss, scores = self.compute_loss_and_logits(states, targets, logits_to_keep, loss_arguments)
            losses.append(loss)
            logits.append(scores)
        loss = None if losses[0] is None or losses[1] is None else (losses[0] + losses[1]) / 2
        return TercetElmoLanguageModelOutput(
            loss=loss,
            forward_loss=losses[0],
            backward_loss=losses[1],
            forward_logits=logits[0],
            backward_logits=logits[1],
            hidden_states=None if record is None else tuple(record),
        )


def known_words(labels: Tensor, words: Words, unknown: int | None) -> Tensor:
    """Return the word of each label (B, T) where a word begins, (N,): words of several tokens are unknown."""
    if unknown is None and not words.is_whole.all():
        raise ValueError(
            "words of several tokens are predicted as unknown, but unk_token_id is None: set it, or let the "
            "model learn_spelling(tokenizer)"
        )
    found = labels.flatten()[words.positions]
    is_unknown = ~words.is_whole & (found != IGNORE)
    return found if unknown is None else found.masked_fill(is_unknown, unknown)


class TercetElmoLabelModel(LabelTask, TercetElmoPreTrainedModel):
    """ELMo and the mix of its layers. Abstract: each task adds its head."""

    def __init__(self, config: TercetElmoConfig):
        super().__init__(config)
        self.model = TercetElmoModel(config)
        self.mix = ScalarMix(config.num_hidden_layers + 1)
        self.build_head()
        self.post_init()

    @known_arguments(*LOSS_KEYWORDS)
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Keywords,
    ) -> LabelOutput:
        """Compute the logits of the task, and the loss of `labels`: see the class for their sizes.

        See `TercetElmoModel.forward` for the inputs, and `LossArguments` for the loss, to which the penalty
        on the mix is added.
        """
        loss_arguments = take_loss_arguments(kwargs)
        told = attention_mask, position_ids, cu_seq_lens_q
        sequences = self.model.find_sequences(input_ids, character_ids, *told)
        words, characters = self.model.read(sequences, input_ids, character_ids)
        layers = tuple(map(words.to_tokens, self.model.layers(words, characters)))
        logits, loss = self.scores(self.mix(layers), sequences, words.shape[0]), None
        if labels is not None:
            targets = self.targets(labels, sequences)
            loss = self.loss(logits, targets, loss_arguments)
            loss = self.with_penalty(loss, targets, loss_arguments)
        recorded = layers if self.records("output_hidden_states", kwargs) else None
        return self.output(loss=loss, logits=logits, hidden_states=recorded)

    def with_penalty(self, loss: Tensor, labels: Tensor, loss_arguments: LossArguments) -> Tensor:
        """Add the penalty on the weights of the mix to the loss of a task, once for all accumulated batches.

        Each of them adds the share of it that it has of the targets.
        """
        if not self.config.mix_penalty:
            return loss
        everything = loss_arguments.get("num_items_in_batch")
        share = 1.0 if everything is None else (labels != IGNORE).sum() / everything
        return loss + self.config.mix_penalty * share * self.mix.squares()


class TercetElmoForSequenceClassification(SequenceLabels, TercetElmoLabelModel):
    """ELMo and labels of whole sequences, by default read from the mean of their tokens.

    Example:
        >>> from tercet import TercetElmoConfig, TercetElmoForSequenceClassification
        >>> from tercet.modeling.recurrent.words import encode_words
        >>> config = TercetElmoConfig(hidden_size=32, lstm_cell_size=48, num_labels=3)
        >>> model = TercetElmoForSequenceClassification(config)
        >>> model(**encode_words([["any", "words"], ["tercet"]])).logits.shape
        torch.Size([2, 3])
    """

    config: TercetElmoConfig


class TercetElmoForTokenClassification(TokenLabels, TercetElmoLabelModel):
    """ELMo and labels of single tokens, all tokens of a word alike."""

    config: TercetElmoConfig
