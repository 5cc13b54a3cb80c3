"""Configurations of the members without attention layers.

The character model reads a text from both ends by LSTMs. ELMo (Peters et al., 2018) consists of characters,
convolutions and two stacks of LSTMs; its character encoder and the projections of its LSTMs are those of
Jozefowicz et al., 2016, and Kim et al., 2016. Defaults are the published model's, whose vocabulary is that of
its softmax. The recurrent translator is by default that of Luong et al., 2015, without input feeding, with
the bidirectional encoder of Bahdanau et al., 2015; `attention_score="none"` is that of Sutskever et al.,
2014. Static word vectors have one vector for each word, whatever stands around it. The tagger joins word
vectors, a bidirectional LSTM and a conditional random field (Huang et al., 2015, "Bidirectional LSTM-CRF
Models for Sequence Tagging"; Lample et al., 2016; on contextual word vectors Akbik et al., 2018).
"""

from collections.abc import Sequence
from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from ..attention.scores import SCORES
from ..configuration_neural import (
    ClassifierPooling,
    NeuralConfig,
    require_at_least,
    require_choice,
)
from .words import NUM_IDS, PAD


def require_halves(hidden_size: int) -> None:
    if hidden_size % 2:
        raise ValueError(f"hidden_size is {hidden_size}: choose an even one, half for each direction")


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
        require_at_least(1, "num_hidden_layers", self.num_hidden_layers)
        for name, only in WITHOUT_MEANING.items():
            if (value := getattr(self, name)) != only:
                raise ValueError(f"{name} is {value}, which a character model has no use for: leave it out")


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
    """Width of a character's vector."""
    character_filters: list[list[int]] | None = None
    """Convolutions over characters, pairs of a width and a number of filters; `None`: those of the paper."""
    num_highway_layers: int = 2
    """Layers between the convolutions and the projection to a word's vector (section 3.4)."""
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
        return self.direction_width

    def require_own_fields(self) -> None:
        for name in ("num_hidden_layers", "character_embedding_size"):
            require_at_least(1, name, getattr(self, name))
        require_at_least(0, "num_highway_layers", self.num_highway_layers)
        require_at_least(3, "max_characters_per_word", self.max_characters_per_word)
        require_halves(self.hidden_size)
        if self.lstm_cell_size <= self.direction_width:
            raise ValueError(
                f"lstm_cell_size is {self.lstm_cell_size}, but is projected to half of hidden_size "
                f"({self.direction_width}): choose a larger cell"
            )
        require_at_least(0, "mix_penalty", self.mix_penalty)
        longest = self.max_characters_per_word
        for each in self.character_filters or [[]]:
            if len(each) != 2 or not 1 <= each[0] <= longest or each[1] < 1:
                raise ValueError(
                    f"character_filters has the entry {each}: give pairs of a width from 1 to "
                    f"max_characters_per_word ({longest}) and a number of filters, such as [3, 64]"
                )
        for name, value in NOT_OF_ELMO.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, but ELMo has no token vectors: leave it at {value}"
                )


NO_ATTENTION = "none"
"""Value of `attention_score` of a decoder that knows of the source what its initial state holds."""


@strict
class TercetRecurrentSeq2SeqConfig(NeuralConfig):
    """Sequence-to-sequence without a Transformer: recurrent layers, and attention between them.

    Example:
        >>> from tercet import TercetRecurrentSeq2SeqConfig
        >>> TercetRecurrentSeq2SeqConfig(pad_token_id=3).decoder_start_token_id
        3
    """

    model_type = "tercet_recurrent_seq2seq"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]

    num_hidden_layers: int = 2
    """Layers of the encoder, and as many of the decoder, each of which begins with the final state of one."""
    cell_type: Literal["lstm", "gru"] = "lstm"
    """Kind of recurrent layer: see `recurrent/layers.py`."""
    attention_score: str = "bilinear"
    """How states of decoder and encoder are compared: see `attention/scores.py`; "none" builds no
    attention."""
    num_attention_heads: int = 1
    """Parts of the states that are compared by themselves; each paper has one."""
    attention_dropout: float | int = 0.0
    """On the attention weights."""
    max_position_embeddings: int = 1024
    """Longest sequence that data should have. Nothing in the model depends on it."""
    initializer_range: float = 0.1
    """Five times a Transformer's: there are no norms that would enlarge what small token vectors say."""
    decoder_start_token_id: int | None = None
    """First token that the decoder reads; `None`: the padding token, as in T5 and Marian."""
    is_encoder_decoder: bool = True
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any):
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.pad_token_id
        if (num_heads := kwargs.pop("num_key_value_heads", None)) is not None:
            self.num_key_value_heads = num_heads
        super().__post_init__(**kwargs)

    @property
    def has_attention(self) -> bool:
        """Whether the decoder attends to the encoder's states."""
        return self.attention_score != NO_ATTENTION

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def num_key_value_heads(self) -> int:
        """As many as there are heads of queries: scores of attention ask for both numbers."""
        return self.num_attention_heads

    @num_key_value_heads.setter
    def num_key_value_heads(self, value: int) -> None:
        if value != self.num_attention_heads:
            raise ValueError(
                f"num_key_value_heads is {value}, but a recurrent translator has as many as "
                f"num_attention_heads ({self.num_attention_heads}): leave it out"
            )

    def require_own_fields(self) -> None:
        for name in ("num_hidden_layers", "num_attention_heads", "max_position_embeddings"):
            require_at_least(1, name, getattr(self, name))
        require_choice("attention_score", self.attention_score, (*SCORES, NO_ATTENTION))
        require_halves(self.hidden_size)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) is not a multiple of num_attention_heads "
                f"({self.num_attention_heads}): choose a number of heads that divides it"
            )


@strict
class TercetWordVectorsConfig(NeuralConfig):
    """Words that have a vector, and perhaps n-grams of characters that give others one.

    Example:
        >>> from tercet import TercetWordVectorsConfig
        >>> TercetWordVectorsConfig(hidden_size=300).num_ngram_rows
        0
    """

    model_type = "tercet_word_vectors"
    reads_any_ids = False

    vocab_size: int = NUM_IDS
    """Bytes, as which words are read; see `recurrent/words.py`."""
    hidden_size: int = 100
    """Width of a vector."""
    num_words: int = 1
    """Words that have a vector of their own."""
    num_word_bytes: int = 1
    """Bytes of all of these words."""
    num_ngram_rows: int = 0
    """Vectors that the n-grams of other words share; 0: other words are looked up in lower case."""
    shortest_ngram: int = 3
    """Characters of the shortest n-gram."""
    longest_ngram: int = 6
    """Characters of the longest one."""
    max_position_embeddings: int = 2**16
    """Bytes to which a text is cut."""
    tie_word_embeddings: bool = False
    pad_token_id: int | None = PAD

    def require_own_fields(self) -> None:
        require_at_least(NUM_IDS, "vocab_size", self.vocab_size)
        for name in ("num_words", "num_word_bytes", "shortest_ngram"):
            require_at_least(1, name, getattr(self, name))
        require_at_least(0, "num_ngram_rows", self.num_ngram_rows)
        require_at_least(self.shortest_ngram, "longest_ngram", self.longest_ngram)


BEGIN, INSIDE = "B-", "I-"


def with_insides(names: Sequence[str]) -> list[str]:
    """Add to the names of labels the "I-" of each "B-" that has none, which the bytes of its words need.

    >>> with_insides(["B-LOC", "O"])
    ['B-LOC', 'O', 'I-LOC']
    """
    insides = [INSIDE + name.removeprefix(BEGIN) for name in names if name.startswith(BEGIN)]
    return [*names, *(inside for inside in insides if inside not in names)]


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
    """Bytes, as which words are read; see `recurrent/words.py`."""
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
        names = [name for _, name in sorted((self.id2label or {}).items())]
        if (complete := with_insides(names)) != names:
            self.id2label = dict(enumerate(complete))
            self.label2id = {name: number for number, name in enumerate(complete)}

    @property
    def direction_width(self) -> int:
        return self.hidden_size // 2

    def require_own_fields(self) -> None:
        require_at_least(NUM_IDS, "vocab_size", self.vocab_size)
        require_at_least(1, "num_hidden_layers", self.num_hidden_layers)
        require_at_least(1, "projection_size", self.projection_size or 1)
        require_halves(self.hidden_size)
        if not self.embeddings or not all("model_type" in each for each in self.embeddings):
            raise ValueError(
                f"embeddings is {self.embeddings}: name at least one model, each with its model_type and "
                "fields"
            )
