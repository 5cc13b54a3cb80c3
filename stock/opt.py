"""OPT (Zhang et al., 2022), except for its 350M model, whose embeddings are narrower than its layers."""

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Counterpart, Field
from .task_heads import LAST_TOKEN, SCORES

OPT = Architecture(
    model_type="opt",
    config=TercetDecoderConfig,
    fields={
        "vocab_size": "vocab_size",
        "hidden_size": Field(
            lambda stock: stock.hidden_size,
            lambda config: {"hidden_size": config.hidden_size, "word_embed_proj_dim": config.hidden_size},
        ),
        "intermediate_size": "ffn_dim",
        "num_hidden_layers": "num_hidden_layers",
        "num_attention_heads": "num_attention_heads",
        "max_position_embeddings": "max_position_embeddings",
        "norm_placement": Field(
            lambda stock: "pre" if stock.do_layer_norm_before else "post",
            lambda config: {"do_layer_norm_before": config.norm_placement == "pre"},
        ),
        "hidden_act": "activation_function",
        "attention_bias": "enable_bias",
        "mlp_bias": "enable_bias",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "tie_word_embeddings": "tie_word_embeddings",
        "pad_token_id": "pad_token_id",
        "initializer_range": "init_std",
    },
    fixed={
        "position_embedding_type": "learned",
        "position_offset": 2,
        "norm_type": "layer_norm",
        "norm_eps": 1e-5,
        "norm_bias": True,
        "feed_forward_type": "plain",
    },
    required={"layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False},
    weights={
        "decoder.embed_tokens.weight": "embeddings.embed_tokens.weight",
        "decoder.embed_positions.weight": "embeddings.positions.embed_positions.weight",
        "decoder.layers.*.self_attn_layer_norm.*": "layers.*.self_attention_norm.*",
        "decoder.layers.*.self_attn.q_proj.*": "layers.*.self_attention.q_proj.*",
        "decoder.layers.*.self_attn.k_proj.*": "layers.*.self_attention.k_proj.*",
        "decoder.layers.*.self_attn.v_proj.*": "layers.*.self_attention.v_proj.*",
        "decoder.layers.*.self_attn.out_proj.*": "layers.*.self_attention.o_proj.*",
        "decoder.layers.*.final_layer_norm.*": "layers.*.feed_forward_norm.*",
        "decoder.layers.*.fc1.*": "layers.*.feed_forward.up_proj.*",
        "decoder.layers.*.fc2.*": "layers.*.feed_forward.down_proj.*",
        "decoder.final_layer_norm.*": "norm.*",
    },
    counterparts=(
        Counterpart("OPTModel", "TercetDecoderModel"),
        Counterpart("OPTForCausalLM", "TercetDecoderForCausalLM", {"lm_head.weight": "lm_head.weight"}),
        Counterpart(
            "OPTForSequenceClassification",
            "TercetDecoderForSequenceClassification",
            SCORES,
            values=LAST_TOKEN,
        ),
    ),
    prefix="model.",
)
