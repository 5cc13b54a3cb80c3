"""The same weights read as another member: all three are stacks of the same blocks.

    decoder  ->  encoder     every position sees every other (BehnamGhader et al., 2024: LLM2Vec)
    encoder  ->  decoder     no position sees a later one
    two      ->  seq2seq     an encoder, and a decoder with new cross-attention (Rothe et al., 2020)
    seq2seq  ->  either      one of its stacks alone

Only what a position sees changes. A reading that would change more is refused: a relative bias numbers its
distances by direction, and two stacks of one model share most fields of their configurations.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import PreTrainedModel

from ...configs.messages import first_line
from ...modeling import (
    TercetConfig,
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetPreTrainedModel,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from ...modeling.attention.patterns import SMALLEST_WINDOW
from ...modeling.configuration_rotary import rotations_of
from ...modeling.configuration_tercet import DECODER_FIELDS, SHARED_FIELDS
from ...modeling.layers.positions import POSITIONS
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.inheritance import inherit_writing
from ...modeling.stock.models import as_ours, from_stock

Member = Literal["encoder", "decoder", "seq2seq"]

MODELS: dict[Member, type[TercetPreTrainedModel]] = {
    "encoder": TercetEncoderForMaskedLM,
    "decoder": TercetDecoderForCausalLM,
    "seq2seq": TercetSeq2SeqForConditionalGeneration,
}
"""What each member is read as: the model with its language-modeling head."""


@dataclass(frozen=True)
class Reading:
    """A model with the weights of one or two others, and what became of their tensors.

    Args:
        model: In evaluation mode and the type of its source; of two, the type that holds the weights of both.
        kept: Parameters of the model that it has from its sources, bit for bit, and their sizes.
        new: Parameters that no source has: initialized randomly, or as the name says.
        dropped: Tensors of the sources that the model has no place for.
    """

    model: TercetPreTrainedModel
    kept: dict[str, int]
    new: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


def convert(
    model: PreTrainedModel | str,
    to: Member,
    decoder: PreTrainedModel | str | None = None,
    *,
    seed: int = 0,
) -> Reading:
    """Read a model as another member of the family; a stock model is imported first.

    Args:
        model: The model, its folder, or its repository on the Hub.
        to: `encoder`, `decoder` or `seq2seq`.
        decoder: For `seq2seq`, what becomes the decoder; `None`: `model` becomes both stacks.
        seed: Seed of the weights that no source has.

    Example:
        >>> from tercet import TercetDecoderConfig, TercetDecoderForCausalLM
        >>> from tercet.tools.convert.members import convert
        >>> decoder = TercetDecoderForCausalLM(TercetDecoderConfig(hidden_size=32, num_attention_heads=2))
        >>> encoder = convert(decoder, "encoder")
        >>> type(encoder.model).__name__, len(encoder.new)
        ('TercetEncoderForMaskedLM', 0)
    """
    return read_as(of_family(model), to, None if decoder is None else of_family(decoder), seed=seed)


def of_family(model: PreTrainedModel | str) -> TercetPreTrainedModel:
    """Return a model of ours as it is, from its folder, or imported."""
    if isinstance(model, str):
        return as_ours(Checkpoint.open(model))
    return model if isinstance(model, TercetPreTrainedModel) else from_stock(model)


def member_of(model: TercetPreTrainedModel) -> Member:
    kinds: dict[type[TercetConfig], Member]
    kinds = {TercetEncoderConfig: "encoder", TercetDecoderConfig: "decoder", TercetSeq2SeqConfig: "seq2seq"}
    return next(member for kind, member in kinds.items() if isinstance(model.config, kind))


def read_as(
    source: TercetPreTrainedModel,
    to: Member,
    decoder: TercetPreTrainedModel | None = None,
    *,
    seed: int = 0,
) -> Reading:
    """Read a model as another member.

    Args:
        source: A model of any member, with any head; only a language-modeling head is taken along.
        decoder: For `seq2seq`, the model that becomes its decoder; `None`: `source` becomes both.
        seed: Seed of the weights that no source has.
    """
    if to not in MODELS:
        raise ValueError(f"--to is {to!r}: choose one of {', '.join(MODELS)}")
    if (own := member_of(source)) == to:
        raise ValueError(
            f"the model is of the member {own!r} already: choose another one, or use it as it is"
        )
    if decoder is not None and to != "seq2seq":
        raise ValueError(f"--decoder is given, but --to is {to!r}: a second model is for seq2seq only")
    if to == "seq2seq":
        writer = source if decoder is None else decoder
        reading = read_as_seq2seq(source, writer, seed)
    else:
        writer, fields = source, fields_as(source, to)
        reading = fill(built(to, fields, seed, source.dtype), tensors_as(source, to))
    inherit_writing(reading.model, writer)
    return reading


def read_as_seq2seq(encoder: TercetPreTrainedModel, decoder: TercetPreTrainedModel, seed: int) -> Reading:
    """Join the encoder that one model is read as, and the decoder that another one is read as."""
    of_encoder, of_decoder = tensors_as(encoder, "encoder"), tensors_as(decoder, "decoder")
    table = "model.embeddings.embed_tokens.weight"
    fields = joined_config(
        fields_as(encoder, "encoder"),
        fields_as(decoder, "decoder"),
        is_one_table=torch.equal(of_encoder[table], of_decoder[table]),
    )
    tensors = {f"model.encoder.{name[6:]}": x for name, x in of_encoder.items() if is_of_stack(name)}
    tensors |= {f"model.decoder.{name[6:]}": x for name, x in of_decoder.items() if is_of_stack(name)}
    tensors |= {name: x for name, x in of_decoder.items() if not is_of_stack(name)}
    # The type that holds the weights of both: a narrower one would round those of one stack.
    model = built("seq2seq", fields, seed, torch.promote_types(encoder.dtype, decoder.dtype))
    return fill(with_zero_segments(model, tensors), tensors)


def is_of_stack(name: str) -> bool:
    """Return whether a tensor belongs to the stack below the head."""
    return name.startswith("model.")


@torch.no_grad()
def with_zero_segments(model: TercetPreTrainedModel, tensors: dict[str, Tensor]) -> TercetPreTrainedModel:
    """Set the vectors of segments to zero in the stack whose source has none."""
    for name, parameter in model.named_parameters():
        if name.endswith("embeddings.token_types.weight") and name not in tensors:
            parameter.zero_()
    return model


def fields_as(source: TercetPreTrainedModel, to: Member) -> dict[str, Any]:
    """Return the fields of the configuration that describes a model, or one of its stacks, as a member."""
    config, own = stack_config(source.config, to)
    # Heads of labels are the member's own.
    taken = [name for name in SHARED_FIELDS if not name.startswith("classifier_")]
    fields = {name: copy.deepcopy(getattr(config, name)) for name in taken}
    if own == to:
        return fields
    if POSITIONS[config.position_embedding_type].bias.is_directed:
        raise ValueError(
            f"position_embedding_type is {config.position_embedding_type!r}: the bias of an encoder numbers "
            f"distances in both directions and that of a decoder in one, so that no {own} can be read as "
            f"{'an' if to == 'encoder' else 'a'} {to}; choose a model with other positions"
        )
    if "sliding_attention" in config.types_of_layers and config.sliding_window is not None:
        fields["sliding_window"] = window_as(config.sliding_window, to)
    return fields


def stack_config(config: TercetConfig, to: Member) -> tuple[TercetConfig, Member]:
    """Return the configuration of the stack that is to be read, and the member that it is of."""
    if isinstance(config, TercetSeq2SeqConfig):
        return (config.encoder_config() if to == "encoder" else config.decoder_config()), to
    return config, "encoder" if isinstance(config, TercetEncoderConfig) else "decoder"


def window_as(window: int, to: Member) -> int:
    """Count a window as a member does, such that a position sees the same earlier ones as before.

    An encoder counts the tokens on either side, a decoder those up to the token itself, which it includes.
    """
    counted = window + 1 if to == "decoder" else window - 1
    if counted < SMALLEST_WINDOW:
        raise ValueError(
            f"sliding_window is {window}, which would be {counted} in an encoder, where it counts the tokens "
            f"on either side: {SMALLEST_WINDOW} is the smallest; use a model with a larger window"
        )
    return counted


def tensors_as(source: TercetPreTrainedModel, to: Member) -> dict[str, Tensor]:
    """Name the tensors of a model, or of one of its stacks, as a model with one stack and a head has them."""
    prefix = "" if hasattr(source, "model") else "model."
    tensors = {f"{prefix}{name}": tensor for name, tensor in source.state_dict().items()}
    if member_of(source) != "seq2seq":
        return tensors
    stack = f"model.{to}."
    return {
        f"model.{name.removeprefix(stack)}" if name.startswith(stack) else name: tensor
        for name, tensor in tensors.items()
    }


def built(to: Member, fields: dict[str, Any], seed: int, dtype: torch.dtype) -> TercetPreTrainedModel:
    """Build a model whose weights are random."""
    model_class: Any = MODELS[to]
    # No token stands before a decoder's text to be its label's: the mean of all does (LLM2Vec, section 2.3).
    pooling = {"classifier_pooling": "mean"} if to == "encoder" else {}
    try:
        config = model_class.config_class(**fields, **pooling)
    except StrictDataclassError as error:
        raise ValueError(f"no {to} can have this configuration: {first_line(error)}") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(config).to(dtype).eval()


@torch.no_grad()
def fill(model: TercetPreTrainedModel, tensors: dict[str, Tensor]) -> Reading:
    """Copy into a model what it has a place for, and say what became of each tensor, tied ones once."""
    own = dict(model.named_parameters())
    kept = {name: each for name, each in own.items() if name in tensors and tensors[name].shape == each.shape}
    for name, each in kept.items():
        each.copy_(tensors[name])
    used = {tensors[name].data_ptr() for name in kept}
    left = {each.data_ptr(): name for name, each in tensors.items() if each.data_ptr() not in used}
    return Reading(
        model,
        kept={name: each.numel() for name, each in kept.items()},
        new={name: each.numel() for name, each in own.items() if name not in kept},
        dropped={name: tensors[name].numel() for name in left.values()},
    )


OF_TRAINING = (
    *("dropout", "embedding_dropout", "attention_dropout", "attention_out_dropout", "activation_dropout"),
    *("final_dropout", "embedding_input_dropout", "initializer_range"),
)
"""Fields that change no prediction: those of the encoder hold for both."""

OF_HEAD = ("head_bias", "head_transform", "tie_word_embeddings")
"""Fields of the head, which is the decoder's."""

OF_TEXT = ("pad_token_id", "bos_token_id", "eos_token_id")
"""Ids of special tokens, for which the tokenizer is asked later."""


def joined_config(encoder: dict[str, Any], decoder: dict[str, Any], *, is_one_table: bool) -> dict[str, Any]:
    """Join the fields of an encoder and of a decoder.

    Args:
        is_one_table: Whether both have the same token vectors, which are then shared.
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
    """Share the window of one stack with the other, whose layers are then named as not sliding."""
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
    """Limit texts to the length of the shorter stack, where that changes no prediction."""
    rotations = rotations_of(encoder["rope_parameters"]).values()
    is_stretched = any(each["rope_type"] != "default" for each in rotations)
    if is_stretched or encoder["position_embedding_type"] == "learned":
        return encoder, decoder
    shorter = min(each["max_position_embeddings"] for each in (encoder, decoder))
    return encoder | {"max_position_embeddings": shorter}, decoder | {"max_position_embeddings": shorter}
