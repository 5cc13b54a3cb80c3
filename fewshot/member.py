"""Which of the three Transformers a model is, and how a decoder of ours is read."""

from typing import Literal

from transformers import PreTrainedConfig

from ..modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
    TercetPreTrainedModel,
)
from ..storage.heads import Member, classes_of

Head = Literal["auto", "causal_lm", "masked_lm"]
"""How a decoder of ours is read: with the head that it was saved with, causally, or in both directions."""

HEADS: dict[Head, type[TercetPreTrainedModel]] = {
    "causal_lm": TercetDecoderForCausalLM,
    "masked_lm": TercetDecoderForMaskedLM,
}
"""What reads a decoder so."""

NEITHER = ("flaubert", "xlm", "xlnet")
"""Types of models whose language head is called like a decoder's, and is none."""


def member_of(config: PreTrainedConfig) -> Member:
    """Return which of the three Transformers a configuration describes.

    Raises:
        ValueError: It describes none of them.
    """
    if config.model_type in NEITHER:
        raise ValueError(
            f"a model of type {config.model_type} is not supported, because it masks or permutes tokens in "
            f"a special way: name an encoder, a decoder or a sequence-to-sequence model"
        )
    if config.is_encoder_decoder:
        return "seq2seq"
    if config.model_type.startswith("tercet"):
        return "decoder" if config.model_type == "tercet_decoder" else "encoder"
    named = (config.architectures or [""])[0]
    if named.endswith(("ForCausalLM", "LMHeadModel")):
        return "decoder"
    heads = classes_of(config)
    return "encoder" if "AutoModelForMaskedLM" in heads or "AutoModelForCausalLM" not in heads else "decoder"


def require_choice_of_head(head: Head, name: str, config: PreTrainedConfig) -> None:
    """Raise a `ValueError` if a head is chosen for a model that has one only."""
    if head != "auto" and config.model_type != TercetDecoderConfig.model_type:
        raise ValueError(
            f"prompting.head is {head}, but {name} is a {config.model_type}: only decoders of Tercet are "
            "read in both ways; set prompting.head=auto"
        )
