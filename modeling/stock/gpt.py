"""GPT-2 (Radford et al., 2019), GPT-NeoX (Black et al., 2022), OPT (Zhang et al., 2022): plain layers.

DistilGPT2 and Pythia (Biderman et al., 2023) have the architectures of the first two. Of OPT, its 350M model
is left out, whose embeddings are narrower than its layers.
"""

from ..configuration_tercet import TercetDecoderConfig
from .architecture import (
    BIASES,
    PLAIN_LAYERS,
    USUAL,
    Architecture,
    Counterpart,
    Field,
    named,
    projections,
    same,
)
from .llama import HEAD, rotation
from .task_heads import ANSWERS, LABELS, LAST_TOKEN, PLAIN, SCORES, TOKEN_DROPOUT, UNDROPPED
from .weights import CHUNKED_BY_HEAD, TRANSPOSED, Place, Via, chunked, first_scaled


def share_of_scores(place: Place) -> float:
    """Divide scores by the number of the layer, from 1, if the stock model does (Mistral's GPT-2, 2021)."""
    return 1 / (place.indices[0] + 1) if place.config.scale_attn_by_inverse_layer_idx else 1.0


OF_ROWS = Counterpart("ForSequenceClassification", SCORES, values=LAST_TOKEN)
OF_TASKS = (
    OF_ROWS,
    Counterpart("ForTokenClassification", LABELS, fields=TOKEN_DROPOUT, values=PLAIN),
    Counterpart("ForQuestionAnswering", ANSWERS, values=PLAIN | UNDROPPED),
)
QUERIES_KEYS_VALUES = "layers.*.self_attention.{q_proj,k_proj,v_proj}."

GPT2 = Architecture(
    model_type="gpt2",
    config=TercetDecoderConfig,
    fields=USUAL
    | {
        "hidden_size": "n_embd",
        "intermediate_size": Field(
            lambda stock: stock.n_inner or 4 * stock.n_embd,
            lambda config: {"n_inner": config.intermediate_size},
        ),
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation_function",
        "dropout": "resid_pdrop",
        "embedding_dropout": Field(
            lambda stock: None if stock.embd_pdrop == stock.resid_pdrop else stock.embd_pdrop,
            lambda config: {"embd_pdrop": config.dropout_of("embedding_dropout")},
        ),
        "attention_dropout": "attn_pdrop",
    },
    fixed=PLAIN_LAYERS | BIASES | {"position_embedding_type": "learned", "norm_placement": "pre"},
    required={"scale_attn_weights": True, "add_cross_attention": False},
    weights={
        "wte.weight": "embeddings.embed_tokens.weight",
        "wpe.weight": "embeddings.positions.embed_positions.weight",
        "h.*.ln_1.*": "layers.*.self_attention_norm.*",
        "h.*.attn.c_attn.weight": Via(
            f"{QUERIES_KEYS_VALUES}weight", TRANSPOSED, chunked(3), first_scaled(share_of_scores)
        ),
        "h.*.attn.c_attn.bias": Via(f"{QUERIES_KEYS_VALUES}bias", chunked(3), first_scaled(share_of_scores)),
        "h.*.attn.c_proj.weight": Via("layers.*.self_attention.o_proj.weight", TRANSPOSED),
        "h.*.attn.c_proj.bias": "layers.*.self_attention.o_proj.bias",
        "h.*.ln_2.*": "layers.*.feed_forward_norm.*",
        "h.*.mlp.c_fc.weight": Via("layers.*.feed_forward.up_proj.weight", TRANSPOSED),
        "h.*.mlp.c_fc.bias": "layers.*.feed_forward.up_proj.bias",
        "h.*.mlp.c_proj.weight": Via("layers.*.feed_forward.down_proj.weight", TRANSPOSED),
        "h.*.mlp.c_proj.bias": "layers.*.feed_forward.down_proj.bias",
        "ln_f.*": "norm.*",
    },
    counterparts=named(
        "GPT2",
        "TercetDecoder",
        Counterpart("Model"),
        Counterpart("LMHeadModel", HEAD, ours="ForCausalLM"),
        *OF_TASKS,
    ),
    prefix="transformer.",
)

GPT_NEOX = Architecture(
    model_type="gpt_neox",
    config=TercetDecoderConfig,
    fields=USUAL
    | same("hidden_act", "attention_bias", "attention_dropout")
    | {
        "rope_parameters": Field(
            lambda stock: rotation(stock.rope_parameters, "partial_rotary_factor"),
            lambda config: {
                "rope_parameters": rotation(config.rotation_of("full_attention"), "partial_rotary_factor")
            },
        ),
        "norm_placement": Field(
            lambda stock: "parallel" if stock.use_parallel_residual else "pre",
            lambda config: {"use_parallel_residual": config.norm_placement == "parallel"},
        ),
        "norm_eps": "layer_norm_eps",
        "dropout": "hidden_dropout",
    },
    fixed=PLAIN_LAYERS | {"position_embedding_type": "rotary", "mlp_bias": True},
    required={},
    weights={
        "embed_in.weight": "embeddings.embed_tokens.weight",
        "layers.*.input_layernorm.*": "layers.*.self_attention_norm.*",
        "layers.*.attention.query_key_value.*": Via(f"{QUERIES_KEYS_VALUES}*", CHUNKED_BY_HEAD),
        "layers.*.attention.dense.*": "layers.*.self_attention.o_proj.*",
        "layers.*.post_attention_layernorm.*": "layers.*.feed_forward_norm.*",
        "layers.*.mlp.dense_h_to_4h.*": "layers.*.feed_forward.up_proj.*",
        "layers.*.mlp.dense_4h_to_h.*": "layers.*.feed_forward.down_proj.*",
        "final_layer_norm.*": "norm.*",
    },
    counterparts=named(
        "GPTNeoX",
        "TercetDecoder",
        Counterpart("Model"),
        # Under the name that transformers has given it of late, and the earlier one.
        Counterpart("ForCausalLM", HEAD | {"embed_out.weight": "lm_head.weight"}),
        *OF_TASKS,
    ),
    prefix="gpt_neox.",
)

OPT = Architecture(
    model_type="opt",
    config=TercetDecoderConfig,
    fields=USUAL
    | same("dropout", "attention_dropout", "pad_token_id")
    | {
        "hidden_size": Field(
            lambda stock: stock.hidden_size,
            lambda config: {"hidden_size": config.hidden_size, "word_embed_proj_dim": config.hidden_size},
        ),
        "intermediate_size": "ffn_dim",
        "norm_placement": Field(
            lambda stock: "pre" if stock.do_layer_norm_before else "post",
            lambda config: {"do_layer_norm_before": config.norm_placement == "pre"},
        ),
        "hidden_act": "activation_function",
        "attention_bias": "enable_bias",
        "mlp_bias": "enable_bias",
        "initializer_range": "init_std",
    },
    fixed=PLAIN_LAYERS
    | {
        "position_embedding_type": "learned",
        "position_offset": 2,
        "norm_eps": 1e-5,
        "embedding_dropout": 0.0,
    },
    required={"layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False},
    weights={
        "decoder.embed_tokens.weight": "embeddings.embed_tokens.weight",
        "decoder.embed_positions.weight": "embeddings.positions.embed_positions.weight",
        "decoder.layers.*.self_attn_layer_norm.*": "layers.*.self_attention_norm.*",
        **projections(
            "decoder.layers.*.self_attn.", "layers.*.self_attention.", "q_proj k_proj v_proj out_proj"
        ),
        "decoder.layers.*.final_layer_norm.*": "layers.*.feed_forward_norm.*",
        "decoder.layers.*.fc1.*": "layers.*.feed_forward.up_proj.*",
        "decoder.layers.*.fc2.*": "layers.*.feed_forward.down_proj.*",
        "decoder.final_layer_norm.*": "norm.*",
    },
    counterparts=named(
        "OPT", "TercetDecoder", Counterpart("Model"), Counterpart("ForCausalLM", HEAD), OF_ROWS
    ),
    prefix="model.",
)
