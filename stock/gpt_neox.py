"""GPT-NeoX (Black et al., 2022), and Pythia (Biderman et al., 2023), which has the same architecture."""

from ..modeling.configuration_tercet import TercetDecoderConfig
from .architecture import Architecture, Counterpart, Field
from .llama import rope_scaling
from .rearrangements import ChunkedByHead
from .task_heads import ANSWERS, LABELS, LAST_TOKEN, PLAIN, SCORES, TOKEN_DROPOUT
from .weights import Via

HEAD = {"lm_head.weight": "lm_head.weight", "embed_out.weight": "lm_head.weight"}
"""Under the name that transformers has given it of late, and the earlier one."""

GPT_NEOX = Architecture(
    model_type="gpt_neox",
    config=TercetDecoderConfig,
    fields={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "num_hidden_layers": "num_hidden_layers",
        "num_attention_heads": "num_attention_heads",
        "max_position_embeddings": "max_position_embeddings",
        "rope_theta": Field(
            lambda stock: stock.rope_parameters["rope_theta"],
            lambda config: {
                "rope_parameters": (config.rope_scaling or {"rope_type": "default"})
                | {
                    "rope_theta": config.rope_theta,
                    "partial_rotary_factor": config.partial_rotary_factor,
                }
            },
        ),
        "rope_scaling": Field(lambda stock: rope_scaling(stock.rope_parameters), lambda config: {}),
        "partial_rotary_factor": Field(
            lambda stock: stock.rope_parameters["partial_rotary_factor"], lambda config: {}
        ),
        "norm_placement": Field(
            lambda stock: "parallel" if stock.use_parallel_residual else "pre",
            lambda config: {"use_parallel_residual": config.norm_placement == "parallel"},
        ),
        "norm_eps": "layer_norm_eps",
        "hidden_act": "hidden_act",
        "attention_bias": "attention_bias",
        "dropout": "hidden_dropout",
        "attention_dropout": "attention_dropout",
        "tie_word_embeddings": "tie_word_embeddings",
        "initializer_range": "initializer_range",
    },
    fixed={
        "position_embedding_type": "rotary",
        "norm_type": "layer_norm",
        "norm_bias": True,
        "feed_forward_type": "plain",
        "mlp_bias": True,
    },
    required={},
    weights={
        "embed_in.weight": "embeddings.embed_tokens.weight",
        "layers.*.input_layernorm.*": "layers.*.self_attention_norm.*",
        "layers.*.attention.query_key_value.*": Via(
            "layers.*.self_attention.{q_proj,k_proj,v_proj}.*", ChunkedByHead()
        ),
        "layers.*.attention.dense.*": "layers.*.self_attention.o_proj.*",
        "layers.*.post_attention_layernorm.*": "layers.*.feed_forward_norm.*",
        "layers.*.mlp.dense_h_to_4h.*": "layers.*.feed_forward.up_proj.*",
        "layers.*.mlp.dense_4h_to_h.*": "layers.*.feed_forward.down_proj.*",
        "final_layer_norm.*": "norm.*",
    },
    counterparts=(
        Counterpart("GPTNeoXModel", "TercetDecoderModel"),
        Counterpart("GPTNeoXForCausalLM", "TercetDecoderForCausalLM", HEAD),
        Counterpart(
            "GPTNeoXForSequenceClassification",
            "TercetDecoderForSequenceClassification",
            SCORES,
            values=LAST_TOKEN,
        ),
        Counterpart(
            "GPTNeoXForTokenClassification",
            "TercetDecoderForTokenClassification",
            LABELS,
            fields=TOKEN_DROPOUT,
            values=PLAIN,
        ),
        Counterpart(
            "GPTNeoXForQuestionAnswering", "TercetDecoderForQuestionAnswering", ANSWERS, values=PLAIN
        ),
    ),
    prefix="gpt_neox.",
)
