"""DistilBERT (Sanh et al., 2019): BERT without segments and pooler.

In training it drops nothing between self-attention and its residual sum, where ours does.
"""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart, Field
from .bert import FIXED
from .task_heads import ANSWERS, FIRST_TOKEN, LABELS, PLAIN, head_dropout

MASKED_LM = {
    "vocab_transform.*": "transform.dense.*",
    "vocab_layer_norm.*": "transform.norm.*",
    "vocab_projector.*": "lm_head.*",
}
DENSE_LABELS = {"pre_classifier.*": "classifier.transform.dense.*", **LABELS}
DENSE = FIRST_TOKEN | {"classifier_act": "relu"}
DROPOUT = {"classifier_dropout": head_dropout("seq_classif_dropout")}

DISTILBERT = Architecture(
    model_type="distilbert",
    config=TercetEncoderConfig,
    fields={
        "vocab_size": "vocab_size",
        "hidden_size": "dim",
        "intermediate_size": "hidden_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_position_embeddings",
        "hidden_act": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "tie_word_embeddings": "tie_word_embeddings",
        "initializer_range": "initializer_range",
    },
    fixed=FIXED | {"type_vocab_size": 0, "norm_eps": 1e-12},
    required={},
    weights={
        "embeddings.word_embeddings.weight": "embeddings.embed_tokens.weight",
        "embeddings.position_embeddings.weight": "embeddings.positions.embed_positions.weight",
        "embeddings.LayerNorm.*": "embeddings.norm.*",
        "transformer.layer.*.attention.q_lin.*": "layers.*.self_attention.q_proj.*",
        "transformer.layer.*.attention.k_lin.*": "layers.*.self_attention.k_proj.*",
        "transformer.layer.*.attention.v_lin.*": "layers.*.self_attention.v_proj.*",
        "transformer.layer.*.attention.out_lin.*": "layers.*.self_attention.o_proj.*",
        "transformer.layer.*.sa_layer_norm.*": "layers.*.self_attention_norm.*",
        "transformer.layer.*.ffn.lin1.*": "layers.*.feed_forward.up_proj.*",
        "transformer.layer.*.ffn.lin2.*": "layers.*.feed_forward.down_proj.*",
        "transformer.layer.*.output_layer_norm.*": "layers.*.feed_forward_norm.*",
    },
    counterparts=(
        Counterpart("DistilBertModel", "TercetEncoderModel"),
        Counterpart("DistilBertForMaskedLM", "TercetEncoderForMaskedLM", MASKED_LM),
        Counterpart(
            "DistilBertForSequenceClassification",
            "TercetEncoderForSequenceClassification",
            DENSE_LABELS,
            fields=DROPOUT,
            values=DENSE,
        ),
        Counterpart(
            "DistilBertForTokenClassification",
            "TercetEncoderForTokenClassification",
            LABELS,
            fields={"classifier_dropout": Field(lambda stock: stock.dropout, lambda config: {})},
            values=PLAIN,
        ),
        Counterpart(
            "DistilBertForQuestionAnswering",
            "TercetEncoderForQuestionAnswering",
            ANSWERS,
            fields={"classifier_dropout": head_dropout("qa_dropout")},
            values=PLAIN,
        ),
        Counterpart(
            "DistilBertForMultipleChoice",
            "TercetEncoderForMultipleChoice",
            DENSE_LABELS,
            fields=DROPOUT,
            values=DENSE,
        ),
    ),
    prefix="distilbert.",
)
