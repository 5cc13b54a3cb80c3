"""T5 (Raffel et al., 2020), T5 v1.1 and Flan-T5, and mT5 (Xue et al., 2021).

T5 does not divide scores by the square root of the head's width: ours does, and has that much larger query
weights. Its tied head multiplies states by 1 / sqrt(width): with us the decoder's last norm does.
"""

from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from ..configuration_tercet import TercetEncoderConfig, TercetSeq2SeqConfig
from .architecture import Architecture, Counterpart, Field, named, same
from .task_heads import ANSWERS, AT_THE_END, DROPOUT, ENDED, HEAD_LABELS, LABELS, TWICE, UNDROPPED
from .weights import Dropped, Place, Via, first_scaled, has_own_head


def score_scale(place: Place) -> float:
    return place.config.d_kv**0.5


def output_scale(place: Place) -> float:
    """Return what states are multiplied by before a tied head."""
    return place.config.d_model**-0.5 if getattr(place.config, "scale_decoder_outputs", False) else 1.0


def stack(name: str, prefix: str, sublayers: tuple[str, ...]) -> dict[str, str | Via]:
    """Name the weights of a stack of T5 below our `prefix`, with our `sublayers` in the order of a block."""
    table: dict[str, str | Via] = {
        f"{name}.embed_tokens.weight": f"{prefix}embeddings.embed_tokens.weight",
        f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (
            f"{prefix}relative_bias.table.weight"
        ),
        f"{name}.final_layer_norm.weight": f"{prefix}norm.weight",
    }
    for number, sublayer in enumerate(sublayers):
        layer, ours = f"{name}.block.*.layer.{number}.", f"{prefix}layers.*.{sublayer}"
        table[f"{layer}layer_norm.weight"] = f"{ours}_norm.weight"
        if sublayer == "feed_forward":
            inner = f"{layer}DenseReluDense."
            table[f"{inner}wi.weight"] = table[f"{inner}wi_1.weight"] = f"{ours}.up_proj.weight"
            table[f"{inner}wi_0.weight"] = f"{ours}.gate_proj.weight"
            table[f"{inner}wo.weight"] = f"{ours}.down_proj.weight"
        else:
            inner = layer + ("SelfAttention." if sublayer == "self_attention" else "EncDecAttention.")
            table[f"{inner}q.weight"] = Via(f"{ours}.q_proj.weight", first_scaled(score_scale))
            table |= {f"{inner}{letter}.weight": f"{ours}.{letter}_proj.weight" for letter in "kvo"}
    return table


def activation(config: Any) -> str:
    """Name the feed-forward network in T5's words, in which `gated-gelu` means an approximation of it."""
    prefix = "gated-" if config.feed_forward_type == "gated" else ""
    return prefix + ("gelu" if prefix and config.hidden_act == "gelu_new" else config.hidden_act)


def is_tied(stock: PreTrainedModel) -> bool:
    """Return whether the LM head is the table of token vectors: the configuration does not."""
    return not has_own_head(stock)


FIELDS = {
    **same(
        "vocab_size",
        "relative_attention_num_buckets",
        "relative_attention_max_distance",
        "tie_word_embeddings",
    ),
    "hidden_size": "d_model",
    "head_dim": "d_kv",
    "intermediate_size": "d_ff",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "feed_forward_type": Field(
        lambda stock: "gated" if stock.is_gated_act else "plain",
        lambda config: {"feed_forward_proj": activation(config)},
    ),
    "hidden_act": Field(lambda stock: stock.dense_act_fn),
    "norm_eps": "layer_norm_epsilon",
    "dropout": "dropout_rate",
    "attention_dropout": Field(lambda stock: stock.dropout_rate),
    "activation_dropout": Field(lambda stock: stock.dropout_rate),
    "final_dropout": Field(lambda stock: stock.dropout_rate),
} | DROPOUT
DECODER_FIELDS = {
    "decoder_head_dim": Field(lambda stock: stock.d_kv),
    "decoder_num_hidden_layers": "num_decoder_layers",
}
FIXED = {"position_embedding_type": "relative_bias", "norm_type": "rms_norm", "norm_placement": "pre"}
TABLES = {"shared.weight": Dropped("both sides have their tables")}
HEAD = {
    "lm_head.weight": "lm_head.weight",
    "decoder.final_layer_norm.weight": Via("model.decoder.norm.weight", first_scaled(output_scale)),
}

T5 = Architecture(
    model_type="t5",
    config=TercetSeq2SeqConfig,
    fields=FIELDS | DECODER_FIELDS,
    fixed=FIXED | {"share_encoder_decoder_embeddings": True},
    required={"is_encoder_decoder": True},
    weights=stack("encoder", "encoder.", ("self_attention", "feed_forward"))
    | stack("decoder", "decoder.", ("self_attention", "cross_attention", "feed_forward"))
    | TABLES,
    counterparts=named(
        "T5",
        "TercetSeq2Seq",
        Counterpart("Model"),
        Counterpart("ForConditionalGeneration", HEAD),
        Counterpart(
            "ForSequenceClassification",
            HEAD_LABELS,
            prefix="transformer.",
            values=AT_THE_END,
            fields=ENDED | TWICE,
        ),
        Counterpart("ForQuestionAnswering", ANSWERS, values=UNDROPPED),
    ),
    prefix="",
    by_weights={"tie_word_embeddings": is_tied},
)

T5_ENCODER = Architecture(
    model_type="t5",
    config=TercetEncoderConfig,
    fields=FIELDS,
    fixed=FIXED | {"type_vocab_size": 0},
    required={"is_encoder_decoder": False},
    weights=stack("encoder", "", ("self_attention", "feed_forward")) | TABLES,
    counterparts=named(
        "T5",
        "TercetEncoder",
        Counterpart("EncoderModel", ours="Model"),
        Counterpart("ForTokenClassification", LABELS),
    ),
    prefix="transformer.",
    by_weights={"tie_word_embeddings": is_tied},
)


def multilingual(architecture: Architecture) -> Architecture:
    """Return what mT5 calls the same by another name."""
    counterparts = (replace(each, stock=f"M{each.stock}") for each in architecture.counterparts)
    return replace(architecture, model_type="mt5", counterparts=tuple(counterparts))


MT5, MT5_ENCODER = multilingual(T5), multilingual(T5_ENCODER)
