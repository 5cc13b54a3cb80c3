"""Which of the three Transformers a model is, and how a decoder of ours is read."""

from typing import Literal

from ..modeling import TercetDecoderConfig
from ..modeling.saved.checkpoint import Checkpoint, Member

Head = Literal["auto", "causal_lm", "masked_lm"]
"""How a decoder of ours is read: with the head that it was saved with, causally, or in both directions."""

HEADS: dict[Head, str] = {"causal_lm": "TercetDecoderForCausalLM", "masked_lm": "TercetDecoderForMaskedLM"}
"""What reads a decoder so."""

NEITHER = ("flaubert", "xlm", "xlnet")
"""Types of models whose language head is called like a decoder's, and is none."""


def member_of(checkpoint: Checkpoint, head: Head = "auto") -> Member:
    """Return which of the three Transformers a model is read as."""
    config = checkpoint.config
    if config.model_type in NEITHER:
        raise ValueError(
            f"a model of type {config.model_type} is not supported, because it masks or permutes tokens in "
            f"a special way: name an encoder, a decoder or a sequence-to-sequence model"
        )
    if head == "auto":
        return checkpoint.member
    if config.model_type != TercetDecoderConfig.model_type:
        raise ValueError(
            f"prompting.head is {head}, but {checkpoint.name} is a {config.model_type}: only decoders of "
            "Tercet are read in both ways; set prompting.head=auto"
        )
    return "decoder" if head == "causal_lm" else "encoder"
