"""The Llama family (Touvron et al., 2023): Llama itself, SmolLM, and many others under its name."""

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Counterpart, Field

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
        lambda config: {"rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta}},
    ),
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

LLAMA = Architecture(
    model_type="llama",
    config=TercetDecoderConfig,
    fields=FIELDS | {"attention_bias": "attention_bias", "mlp_bias": "mlp_bias"},
    fixed=FIXED,
    required={},
    weights=WEIGHTS,
    counterparts=(
        Counterpart("LlamaModel", "TercetDecoderModel"),
        Counterpart("LlamaForCausalLM", "TercetDecoderForCausalLM", HEAD),
    ),
    prefix="model.",
)
