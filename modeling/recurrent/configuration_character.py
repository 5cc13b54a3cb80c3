"""The configuration of the character language model: two LSTMs that read a text from both ends."""

from huggingface_hub.dataclasses import strict

from ..configuration_neural import NeuralConfig, require_at_least

WITHOUT_MEANING = {"type_vocab_size": 0, "scale_embedding": False, "embedding_norm": False}
"""Fields of other members' embeddings, with the only values that a character model can have."""


@strict
class TercetCharacterConfig(NeuralConfig):
    """A forward and a backward language model of characters (Akbik et al., 2018, section 2).

    The two have the same sizes and share no weights. `hidden_size` is that of one direction: the state of a
    character, from both directions, is twice as wide.

    Example:
        >>> from tercet import TercetCharacterConfig, TercetCharacterModel
        >>> model = TercetCharacterModel(TercetCharacterConfig(vocab_size=100, hidden_size=64))
        >>> model.forward_reader.lstm
        LSTM(100, 64)
    """

    model_type = "tercet_character"

    vocab_size: int = 256
    hidden_size: int = 2048
    embedding_size: int | None = 100
    """Width of the vectors of characters, which the LSTMs read as they are; `None`: `hidden_size`."""
    num_hidden_layers: int = 1
    """Layers of each LSTM."""

    dropout: float | int = 0.25
    """On the vectors of characters, between layers, and on what the prediction reads."""
    tie_word_embeddings: bool = False
    """Whether each direction predicts with its own vectors of characters; they need the width of its states,
    or `head_transform`."""
    head_bias: bool = True
    initializer_range: float = 0.05

    def require_own_fields(self) -> None:
        """Raise a `ValueError` unless there are layers, and no fields that have no meaning here."""
        require_at_least(1, "num_hidden_layers", self.num_hidden_layers)
        for name, only in WITHOUT_MEANING.items():
            if (value := getattr(self, name)) != only:
                raise ValueError(f"{name} is {value}, which a character model has no use for: leave it out")
