"""The configuration of ELMo (Peters et al., 2018): characters, convolutions, and two stacks of LSTMs.

The character encoder and the projections of the LSTMs are those of Jozefowicz et al., 2016, and Kim et al.,
2016. Defaults are the published model's, whose vocabulary is that of its softmax.
"""

from typing import Any

from huggingface_hub.dataclasses import strict

from ..configuration_neural import ClassifierPooling, NeuralConfig, require_at_least

PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
"""Width in characters and number of the convolutions of the published model."""

NOT_OF_ELMO = {
    "embedding_size": None,
    "type_vocab_size": 0,
    "scale_embedding": False,
    "embedding_norm": False,
    "head_transform": False,
    "tie_word_embeddings": False,
}
"""Fields that describe the token vectors of other members, which ELMo does not have, and their value here."""


@strict
class TercetElmoConfig(NeuralConfig):
    """Bidirectional language model over words that are read character by character.

    Example:
        >>> from tercet import TercetElmoConfig
        >>> TercetElmoConfig(hidden_size=64, lstm_cell_size=96).direction_width
        32
    """

    model_type = "tercet_elmo"
    reads_any_ids = False

    hidden_size: int = 1024
    """Width of a layer's states: half of them are the forward direction's, half the backward direction's."""
    num_hidden_layers: int = 2
    """LSTM layers of each direction."""
    lstm_cell_size: int = 4096
    """Width of the LSTM cells, whose outputs are projected to half of `hidden_size`."""
    character_embedding_size: int = 16
    character_filters: list[list[int]] | None = None
    """Convolutions over characters, pairs of a width and a number of filters; `None`: those of the paper."""
    num_highway_layers: int = 2
    max_characters_per_word: int = 50
    """Codes of a word: its bytes, cut if they are too many, and one code before and one behind them."""
    max_position_embeddings: int = 2048
    """Tokens to which a tokenizer that is trained for the model cuts texts. LSTMs read any number."""
    unk_token_id: int | None = None
    """What is predicted in place of a word that is not in the vocabulary."""
    mix_penalty: float | int = 0.0
    """Weight of the squares of the scalar mix's weights in the loss of a task (section 3.3)."""

    dropout: float | int = 0.1
    """On the input of every LSTM layer, and before the softmax."""
    tie_word_embeddings: bool = False
    head_bias: bool = True
    classifier_pooling: ClassifierPooling = "mean"

    def __post_init__(self, **kwargs: Any):
        if self.character_filters is None:
            self.character_filters = [list(each) for each in PUBLISHED_FILTERS]
        super().__post_init__(**kwargs)

    @property
    def direction_width(self) -> int:
        """Width of the states of one direction, and of the words' vectors that both directions read."""
        return self.hidden_size // 2

    @property
    def head_width(self) -> int:
        """Width of what the softmax reads: the states of one direction."""
        return self.direction_width

    def require_own_fields(self) -> None:
        """Raise a `ValueError` unless the fields describe an ELMo."""
        for name in ("num_hidden_layers", "character_embedding_size"):
            require_at_least(1, name, getattr(self, name))
        require_at_least(0, "num_highway_layers", self.num_highway_layers)
        require_at_least(3, "max_characters_per_word", self.max_characters_per_word)
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size}: choose an even one, half for each direction"
            )
        if self.lstm_cell_size <= self.direction_width:
            raise ValueError(
                f"lstm_cell_size is {self.lstm_cell_size}, but is projected to half of hidden_size "
                f"({self.direction_width}): choose a larger cell"
            )
        if self.mix_penalty < 0:
            raise ValueError(f"mix_penalty is {self.mix_penalty}: choose 0 or more")
        require_filters(self.character_filters, self.max_characters_per_word)
        for name, value in NOT_OF_ELMO.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, but ELMo has no token vectors: leave it at {value}"
                )


def require_filters(filters: list[list[int]] | None, longest: int) -> None:
    """Raise a `ValueError` unless every filter is a width, at most `longest`, and a number of filters."""
    for each in filters or [[]]:
        if len(each) != 2 or not 1 <= each[0] <= longest or each[1] < 1:
            raise ValueError(
                f"character_filters has the entry {each}: give pairs of a width from 1 to "
                f"max_characters_per_word ({longest}) and a number of filters, such as [3, 64]"
            )
