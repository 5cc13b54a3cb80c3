"""One configuration for two stacks: what an encoder and a decoder must have in common to be one model.

Sizes of layers and heads may differ, since a sequence-to-sequence model has them for each stack. Everything
else has one value for both: width, positions, norms, activations, vocabulary.
"""

from typing import Any

from ..modeling.configuration_tercet import DECODER_FIELDS

OF_TRAINING = ("dropout", "attention_dropout", "activation_dropout", "initializer_range")
"""Fields that change no prediction: those of the encoder hold for both."""

OF_HEAD = ("head_bias", "head_transform", "tie_word_embeddings")
"""Fields of the head, which is the decoder's."""

OF_TEXT = ("pad_token_id", "bos_token_id", "eos_token_id")
"""Ids of special tokens, for which the tokenizer is asked later."""


def joined_config(encoder: dict[str, Any], decoder: dict[str, Any], *, is_one_table: bool) -> dict[str, Any]:
    """Join the fields of an encoder and of a decoder.

    Args:
        encoder: Fields of its configuration.
        decoder: The same.
        is_one_table: Whether both have the same token vectors, which are then shared.

    Raises:
        ValueError: They differ where both must agree; all fields are named.
    """
    encoder, decoder = with_shared_length(*with_shared_window(encoder, decoder))
    segments = max(encoder["type_vocab_size"], decoder["type_vocab_size"])
    if {encoder["type_vocab_size"], decoder["type_vocab_size"]} <= {0, segments}:
        encoder, decoder = ({**each, "type_vocab_size": segments} for each in (encoder, decoder))
    ours = {*DECODER_FIELDS, *OF_TRAINING, *OF_HEAD, *OF_TEXT}
    apart = [name for name in encoder if name not in ours and encoder[name] != decoder[name]]
    if apart:
        listed = ", ".join(f"{name} ({encoder[name]!r} and {decoder[name]!r})" for name in apart)
        remedy = "choose two models of the same kind"
        if apart == ["sliding_window"]:
            remedy = (
                "an encoder's window leaves out the token itself, which a decoder's includes, so that one "
                "model cannot be both; choose models without sliding layers, or with the same value"
            )
        raise ValueError(
            f"encoder and decoder differ in {listed}: one model has one value for both stacks; {remedy}"
        )
    fields = encoder | {name: decoder[name] for name in (*OF_HEAD, *OF_TEXT)}
    fields |= {f"decoder_{name}": decoder[name] for name in DECODER_FIELDS}
    return fields | {"share_encoder_decoder_embeddings": is_one_table}


def with_shared_window(
    encoder: dict[str, Any], decoder: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give a stack without sliding layers the window of the other, and say that none of its layers slides."""
    windows = [each["sliding_window"] for each in (encoder, decoder)]
    if windows[0] is windows[1] is None:
        return encoder, decoder
    shared = next(window for window in windows if window is not None)
    both = []
    for each in (encoder, decoder):
        depth, types = each["num_hidden_layers"], each["layer_types"]
        kind = "full_attention" if each["sliding_window"] is None else "sliding_attention"
        window = shared if each["sliding_window"] is None else each["sliding_window"]
        both.append(each | {"layer_types": types or [kind] * depth, "sliding_window": window})
    return both[0], both[1]


def with_shared_length(
    encoder: dict[str, Any], decoder: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let the shorter of two stacks decide how long texts may be, where that changes no prediction."""
    is_free = encoder["position_embedding_type"] != "learned" and encoder["rope_scaling"] is None
    if not is_free:
        return encoder, decoder
    shorter = min(each["max_position_embeddings"] for each in (encoder, decoder))
    return encoder | {"max_position_embeddings": shorter}, decoder | {"max_position_embeddings": shorter}
