"""The configuration of the tagger: word vectors, a bidirectional LSTM, and a conditional random field.

Huang et al., 2015, "Bidirectional LSTM-CRF Models for Sequence Tagging"; Lample et al., 2016; on contextual
word vectors: Peters et al., 2018; Akbik et al., 2018.
"""

from typing import Any

from huggingface_hub.dataclasses import strict

from ..configuration_neural import NeuralConfig, require_at_least, require_probability
from .configuration_word_vectors import TercetWordVectorsConfig
from .word_bytes import NUM_IDS, PAD


@strict
class TercetTaggerConfig(NeuralConfig):
    """Labels of words by a BiLSTM-CRF on word vectors of pretrained models.

    Example:
        >>> from tercet import TercetTaggerConfig
        >>> TercetTaggerConfig(hidden_size=64, num_labels=5).direction_width
        32
    """

    model_type = "tercet_tagger"
    reads_any_ids = False

    vocab_size: int = NUM_IDS
    """Bytes, as which words are read; see `recurrent/word_bytes.py`."""
    hidden_size: int = 512
    """Width of a layer's states: half of them are the forward direction's, half the backward direction's."""
    num_hidden_layers: int = 1
    """Bidirectional LSTM layers."""
    embeddings: list[dict[str, Any]] | None = None
    """The models whose word vectors are read beside each other: the fields of their configurations; see
    `describe` in `recurrent/word_embedders.py`. `None`: static vectors without words."""
    freezes_embeddings: bool = True
    """Whether these models stay as they are: their vectors can then be kept instead of computed again."""
    projection_size: int | None = None
    """Width of a linear map of all vectors of a word before the first layer, which saves time if they are
    wide; `None` builds none."""
    word_dropout: float | int = 0.05
    """Probability that the vectors of a word are zero in training."""
    dropout: float | int = 0.5
    """On word vectors and on states, the same channels for all words of a sentence (Gal and Ghahramani,
    2016)."""
    max_position_embeddings: int = 2**16
    """Bytes to which a sentence is cut."""
    tie_word_embeddings: bool = False
    pad_token_id: int | None = PAD

    def __post_init__(self, **kwargs: Any):
        if self.embeddings is None:
            static = TercetWordVectorsConfig.model_type
            self.embeddings = [{"model_type": static, "hidden_size": 100}]
        super().__post_init__(**kwargs)

    @property
    def direction_width(self) -> int:
        """Width of the states of one direction."""
        return self.hidden_size // 2

    def require_own_fields(self) -> None:
        """Raise a `ValueError` unless the fields describe a tagger."""
        require_at_least(NUM_IDS, "vocab_size", self.vocab_size)
        require_at_least(1, "num_hidden_layers", self.num_hidden_layers)
        require_at_least(1, "projection_size", self.projection_size or 1)
        require_probability("word_dropout", self.word_dropout)
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size}: choose an even one, half for each direction"
            )
        if not self.embeddings or not all("model_type" in each for each in self.embeddings):
            raise ValueError(
                f"embeddings is {self.embeddings}: name at least one model, each with its model_type and "
                "fields"
            )
