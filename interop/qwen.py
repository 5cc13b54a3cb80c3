"""Qwen2 (Yang et al., 2024) and Qwen3 (Yang et al., 2025): Llama with other biases, and norms of heads."""

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Counterpart
from .llama import FIELDS, FIXED, HEAD, WEIGHTS

REQUIRED = {"use_sliding_window": False}

QWEN2 = Architecture(
    model_type="qwen2",
    config=TercetDecoderConfig,
    fields=FIELDS,
    fixed=FIXED | {"attention_bias": True, "attention_out_bias": False},
    required=REQUIRED,
    weights=WEIGHTS,
    counterparts=(
        Counterpart("Qwen2Model", "TercetDecoderModel"),
        Counterpart("Qwen2ForCausalLM", "TercetDecoderForCausalLM", HEAD),
    ),
    prefix="model.",
)

QWEN3 = Architecture(
    model_type="qwen3",
    config=TercetDecoderConfig,
    fields=FIELDS | {"head_dim": "head_dim", "attention_bias": "attention_bias"},
    fixed=FIXED | {"use_qk_norm": True},
    required=REQUIRED,
    weights=WEIGHTS
    | {
        "layers.*.self_attn.q_norm.weight": "layers.*.self_attention.q_norm.weight",
        "layers.*.self_attn.k_norm.weight": "layers.*.self_attention.k_norm.weight",
    },
    counterparts=(
        Counterpart("Qwen3Model", "TercetDecoderModel"),
        Counterpart("Qwen3ForCausalLM", "TercetDecoderForCausalLM", HEAD),
    ),
    prefix="model.",
)
