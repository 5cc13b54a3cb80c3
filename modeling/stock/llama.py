"""The Llama family (Touvron et al., 2023): Llama itself, SmolLM, and many others under its name.

Mistral   all layers slide, or none (Jiang et al., 2023)
Qwen2     other biases; layers may slide, each by itself (Yang et al., 2024)
Qwen3     norms of heads, too (Yang et al., 2025)
"""

from collections.abc import Mapping
from typing import Any

from ..configuration_tercet import TercetDecoderConfig
from .architecture import USUAL, Architecture, Counterpart, Field, named, projections, same
from .task_heads import ANSWERS, LAST_TOKEN, PLAIN, SCORES, TOKEN_DROPOUT, TOKEN_SCORES, UNDROPPED


def rotation(described: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Take from `rope_parameters` what an architecture reads: base, stretching, and others that it knows."""
    if described.get("rope_type") == "default":
        return {name: described[name] for name in ("rope_type", "rope_theta", *others)}
    unread = {"partial_rotary_factor"} - {*others}
    return {name: value for name, value in described.items() if name not in unread}


ROTARY = {
    "rope_parameters": Field(
        lambda stock: rotation(stock.rope_parameters),
        lambda config: {"rope_parameters": rotation(config.rotation_of("full_attention"))},
    )
}
FIELDS = (
    USUAL
    | same("num_key_value_heads", "hidden_act", "attention_dropout")
    | ROTARY
    | {"norm_eps": "rms_norm_eps"}
)
FIXED = {
    "position_embedding_type": "rotary",
    "norm_type": "rms_norm",
    "norm_placement": "pre",
    "feed_forward_type": "gated",
}
WEIGHTS = {
    "embed_tokens.weight": "embeddings.embed_tokens.weight",
    "layers.*.input_layernorm.weight": "layers.*.self_attention_norm.weight",
    **projections("layers.*.self_attn.", "layers.*.self_attention.", "q_proj k_proj v_proj o_proj"),
    "layers.*.post_attention_layernorm.weight": "layers.*.feed_forward_norm.weight",
    "layers.*.mlp.*.*": "layers.*.feed_forward.*.*",
    "norm.weight": "norm.weight",
}
HEAD = {"lm_head.weight": "lm_head.weight"}


def family(name: str, reader: str = "transformer.", **facts: Any) -> Architecture:
    """Describe an architecture that has Llama's layers and heads.

    `name` begins its classes, `reader` is where the base model is in the one that answers questions. Other
    facts are Llama's by default.
    """
    usual = {"fields": FIELDS, "fixed": FIXED, "required": {}, "weights": WEIGHTS, "prefix": "model."}
    return Architecture(
        model_type=name.lower(),
        config=TercetDecoderConfig,
        counterparts=named(
            name,
            "TercetDecoder",
            Counterpart("Model"),
            Counterpart("ForCausalLM", HEAD),
            Counterpart("ForSequenceClassification", SCORES, values=LAST_TOKEN),
            Counterpart("ForTokenClassification", TOKEN_SCORES, fields=TOKEN_DROPOUT, values=PLAIN),
            Counterpart("ForQuestionAnswering", ANSWERS, prefix=reader, values=PLAIN | UNDROPPED),
        ),
        **usual | facts,
    )


def slides(layer_types: list[str]) -> bool:
    """Return whether a layer reads what is near only."""
    return "sliding_attention" in layer_types


LLAMA = family("Llama", fields=FIELDS | same("head_dim", "attention_bias", "mlp_bias"))

MISTRAL = family(
    "Mistral",
    reader="model.",
    fields=FIELDS
    | same("head_dim")
    | {
        "layer_types": Field(
            lambda stock: (
                None if stock.sliding_window is None else ["sliding_attention"] * stock.num_hidden_layers
            )
        ),
        "sliding_window": Field(
            lambda stock: stock.sliding_window,
            lambda config: {
                "sliding_window": config.sliding_window if slides(config.types_of_layers) else None
            },
        ),
    },
)

WINDOWS = {
    "layer_types": Field(
        lambda stock: stock.layer_types if slides(stock.layer_types) else None,
        lambda config: {"layer_types": config.types_of_layers},
    ),
    "sliding_window": Field(
        lambda stock: stock.sliding_window if slides(stock.layer_types) else None,
        lambda config: {
            "use_sliding_window": slides(config.types_of_layers),
            "sliding_window": config.sliding_window,
        },
    ),
}

QWEN2 = family(
    "Qwen2",
    fields=FIELDS | WINDOWS,
    fixed=FIXED | {"attention_bias": True, "attention_out_bias": False},
)

QWEN3 = family(
    "Qwen3",
    fields=FIELDS | WINDOWS | same("head_dim", "attention_bias"),
    fixed=FIXED | {"use_qk_norm": True},
    weights=WEIGHTS
    | {
        "layers.*.self_attn.q_norm.weight": "layers.*.self_attention.q_norm.weight",
        "layers.*.self_attn.k_norm.weight": "layers.*.self_attention.k_norm.weight",
    },
)
