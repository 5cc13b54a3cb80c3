"""The configuration of the recurrent translator: a recurrent encoder, and a recurrent decoder that attends
to it.

The defaults are the architecture of Luong et al., 2015, without input feeding, with the bidirectional
encoder of Bahdanau et al., 2015; `attention_score="none"` is that of Sutskever et al., 2014.
"""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from ..attention.scores import SCORES
from ..configuration_neural import NeuralConfig, require_at_least, require_choice, require_probability

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
    keys_to_ignore_at_inference = ["past_key_values"]

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
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_key_value_heads(self) -> int:
        """As many as there are heads of queries: scores of attention ask for both numbers.

        Raises:
            ValueError: On assignment of another number.
        """
        return self.num_attention_heads

    @num_key_value_heads.setter
    def num_key_value_heads(self, value: int) -> None:
        if value != self.num_attention_heads:
            raise ValueError(
                f"num_key_value_heads is {value}, but a recurrent translator has as many as "
                f"num_attention_heads ({self.num_attention_heads}): leave it out"
            )

    def require_own_fields(self) -> None:
        """Refuse sizes that no recurrent translator can have."""
        for name in ("num_hidden_layers", "num_attention_heads", "max_position_embeddings"):
            require_at_least(1, name, getattr(self, name))
        require_probability("attention_dropout", self.attention_dropout)
        require_choice("attention_score", self.attention_score, (*SCORES, NO_ATTENTION))
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size}: choose an even number, as each direction of the encoder "
                "has one half"
            )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) is not a multiple of num_attention_heads "
                f"({self.num_attention_heads}): choose a number of heads that divides it"
            )
