"""ModernBERT (Warner et al., 2024).

It counts both sides of a window at once. In training it drops of what attention adds to the stream as much as
of attention's weights, and nothing behind the feed-forward network.
"""

from ..configuration_rotary import LAYER_TYPES
from ..configuration_tercet import TercetEncoderConfig
from .architecture import USUAL, Architecture, Counterpart, Field, agreeing, named, same
from .llama import rotation, slides
from .task_heads import head_dropout
from .weights import Via, chunked


def head(name: str) -> dict[str, str]:
    """Name the weights of a head for labels, which with us is below a name."""
    return {"head.*.*": f"{name}.transform.*.*", "classifier.*": f"{name}.out_proj.*"}


DENSE = {"classifier_act": "classifier_activation", "classifier_bias": "classifier_bias"}
"""A dense layer with a norm stands before all labels."""
POOLED = DENSE | {
    "classifier_pooling": Field(
        lambda stock: "mean" if stock.classifier_pooling == "mean" else "first",
        lambda config: {"classifier_pooling": "mean" if config.classifier_pooling == "mean" else "cls"},
    )
}
NORM = {"classifier_norm": True}

MODERNBERT = Architecture(
    model_type="modernbert",
    config=TercetEncoderConfig,
    fields=USUAL
    | same("norm_eps", "norm_bias", "attention_bias", "mlp_bias", "attention_dropout")
    | {
        "layer_types": Field(
            lambda stock: stock.layer_types, lambda config: {"layer_types": config.types_of_layers}
        ),
        "sliding_window": Field(
            lambda stock: stock.local_attention // 2,
            lambda config: (
                {"local_attention": 2 * config.sliding_window} if slides(config.types_of_layers) else {}
            ),
        ),
        "rope_parameters": Field(
            lambda stock: {kind: rotation(stock.rope_parameters[kind]) for kind in LAYER_TYPES},
            lambda config: {
                "rope_parameters": {kind: rotation(config.rotation_of(kind)) for kind in LAYER_TYPES}
            },
        ),
        "hidden_act": "hidden_activation",
        "embedding_dropout": Field(
            lambda stock: stock.embedding_dropout,
            lambda config: {"embedding_dropout": config.dropout_of("embedding_dropout")},
        ),
        "attention_out_dropout": Field(lambda stock: stock.attention_dropout),
        "activation_dropout": "mlp_dropout",
        "head_bias": "decoder_bias",
        "classifier_dropout": head_dropout("classifier_dropout"),
    },
    fixed={
        "position_embedding_type": "rotary",
        "type_vocab_size": 0,
        "embedding_norm": True,
        "norm_type": "layer_norm",
        "norm_placement": "pre",
        "first_norm": False,
        "feed_forward_type": "gated",
        "head_transform": True,
        "dropout": 0.0,
    },
    required={},
    weights={
        "embeddings.tok_embeddings.weight": "embeddings.embed_tokens.weight",
        "embeddings.norm.*": "embeddings.norm.*",
        "layers.*.attn_norm.*": "layers.*.self_attention_norm.*",
        "layers.*.attn.Wqkv.*": Via("layers.*.self_attention.{q_proj,k_proj,v_proj}.*", chunked(3)),
        "layers.*.attn.Wo.*": "layers.*.self_attention.o_proj.*",
        "layers.*.mlp_norm.*": "layers.*.feed_forward_norm.*",
        "layers.*.mlp.Wi.*": Via("layers.*.feed_forward.{gate_proj,up_proj}.*", chunked(2)),
        "layers.*.mlp.Wo.*": "layers.*.feed_forward.down_proj.*",
        "final_norm.*": "norm.*",
    },
    counterparts=named(
        "ModernBert",
        "TercetEncoder",
        Counterpart("Model"),
        Counterpart(
            "ForMaskedLM",
            {"head.*.*": "transform.*.*", "decoder.*": "lm_head.*"},
            fields={
                "hidden_act": agreeing("hidden_act", "hidden_activation", "classifier_activation"),
                "mlp_bias": agreeing("mlp_bias", "mlp_bias", "classifier_bias"),
            },
        ),
        Counterpart("ForSequenceClassification", head("classifier"), fields=POOLED, values=NORM),
        Counterpart("ForTokenClassification", head("classifier"), fields=DENSE, values=NORM),
        Counterpart("ForQuestionAnswering", head("qa_outputs"), fields=DENSE, values=NORM),
        Counterpart("ForMultipleChoice", head("classifier"), fields=POOLED, values=NORM),
    ),
    prefix="model.",
)
