"""Qwen2 (Yang et al., 2024) and Qwen3 (Yang et al., 2025): Llama with other biases, and norms of heads.

Layers may slide, each by itself.
"""

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Field
from .llama import FIELDS, FIXED, WEIGHTS, counterparts
from .mistral import slides

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

QWEN2 = Architecture(
    model_type="qwen2",
    config=TercetDecoderConfig,
    fields=FIELDS | WINDOWS,
    fixed=FIXED | {"attention_bias": True, "attention_out_bias": False},
    required={},
    weights=WEIGHTS,
    counterparts=counterparts("Qwen2"),
    prefix="model.",
)

QWEN3 = Architecture(
    model_type="qwen3",
    config=TercetDecoderConfig,
    fields=FIELDS | WINDOWS | {"head_dim": "head_dim", "attention_bias": "attention_bias"},
    fixed=FIXED | {"use_qk_norm": True},
    required={},
    weights=WEIGHTS
    | {
        "layers.*.self_attn.q_norm.weight": "layers.*.self_attention.q_norm.weight",
        "layers.*.self_attn.k_norm.weight": "layers.*.self_attention.k_norm.weight",
    },
    counterparts=counterparts("Qwen3"),
    prefix="model.",
)
