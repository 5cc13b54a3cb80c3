"""The Llama family (Touvron et al., 2023): Llama itself, SmolLM, and many others under its name."""

from collections.abc import Mapping
from typing import Any

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Counterpart, Field
from .task_heads import ANSWERS, LAST_TOKEN, PLAIN, SCORES, TOKEN_DROPOUT, TOKEN_SCORES


def rope_scaling(rope_parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Take what stretches rotary positions out of everything that describes them."""
    if rope_parameters["rope_type"] == "default":
        return None
    others = {"rope_theta", "partial_rotary_factor"}
    return {name: value for name, value in rope_parameters.items() if name not in others}


FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_key_value_heads",
    "max_position_embeddings": "max_position_embeddings",
    "rope_theta": Field(
        lambda stock: stock.rope_parameters["rope_theta"],
        lambda config: {
            "rope_parameters": (config.rope_scaling or {"rope_type": "default"})
            | {"rope_theta": config.rope_theta}
        },
    ),
    "rope_scaling": Field(lambda stock: rope_scaling(stock.rope_parameters), lambda config: {}),
    "norm_eps": "rms_norm_eps",
    "hidden_act": "hidden_act",
    "attention_dropout": "attention_dropout",
    "tie_word_embeddings": "tie_word_embeddings",
    "initializer_range": "initializer_range",
}
FIXED = {
    "position_embedding_type": "rotary",
    "norm_type": "rms_norm",
    "norm_placement": "pre",
    "feed_forward_type": "gated",
}
WEIGHTS = {
    "embed_tokens.weight": "embeddings.embed_tokens.weight",
    "layers.*.input_layernorm.weight": "layers.*.self_attention_norm.weight",
    "layers.*.self_attn.q_proj.*": "layers.*.self_attention.q_proj.*",
    "layers.*.self_attn.k_proj.*": "layers.*.self_attention.k_proj.*",
    "layers.*.self_attn.v_proj.*": "layers.*.self_attention.v_proj.*",
    "layers.*.self_attn.o_proj.*": "layers.*.self_attention.o_proj.*",
    "layers.*.post_attention_layernorm.weight": "layers.*.feed_forward_norm.weight",
    "layers.*.mlp.gate_proj.*": "layers.*.feed_forward.gate_proj.*",
    "layers.*.mlp.up_proj.*": "layers.*.feed_forward.up_proj.*",
    "layers.*.mlp.down_proj.*": "layers.*.feed_forward.down_proj.*",
    "norm.weight": "norm.weight",
}
HEAD = {"lm_head.weight": "lm_head.weight"}


def counterparts(name: str, reader: str = "transformer.") -> tuple[Counterpart, ...]:
    """Name the models of a family that has Llama's heads.

    Args:
        name: How its classes begin.
        reader: Where the base model is in the one that answers questions.
    """
    return (
        Counterpart(f"{name}Model", "TercetDecoderModel"),
        Counterpart(f"{name}ForCausalLM", "TercetDecoderForCausalLM", HEAD),
        Counterpart(
            f"{name}ForSequenceClassification",
            "TercetDecoderForSequenceClassification",
            SCORES,
            values=LAST_TOKEN,
        ),
        Counterpart(
            f"{name}ForTokenClassification",
            "TercetDecoderForTokenClassification",
            TOKEN_SCORES,
            fields=TOKEN_DROPOUT,
            values=PLAIN,
        ),
        Counterpart(
            f"{name}ForQuestionAnswering",
            "TercetDecoderForQuestionAnswering",
            ANSWERS,
            prefix=reader,
            values=PLAIN,
        ),
    )


LLAMA = Architecture(
    model_type="llama",
    config=TercetDecoderConfig,
    fields=FIELDS | {"head_dim": "head_dim", "attention_bias": "attention_bias", "mlp_bias": "mlp_bias"},
    fixed=FIXED,
    required={},
    weights=WEIGHTS,
    counterparts=counterparts("Llama"),
    prefix="model.",
)
