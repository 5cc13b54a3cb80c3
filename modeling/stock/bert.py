"""BERT (Devlin et al., 2019), and the encoders that differ from it in little.

    RoBERTa      without segments; its positions begin behind the padding id (Liu et al., 2019)
    DistilBERT   without segments and pooler (Sanh et al., 2019)
    ELECTRA      embeddings may be narrower than layers (Clark et al., 2020)
    BigBird      embeddings may be scaled, and attention sparse (Zaheer et al., 2020)

In training, DistilBERT drops nothing between self-attention and its residual sum. BigBird's sparse attention
is that of transformers in evaluation, with its defects: `attention/big_bird.py` in `modeling` says which. Its
head for answers is a whole feed-forward network with a residual sum.
"""

from typing import Any

from ..configuration_tercet import TercetConfig, TercetEncoderConfig
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
from .task_heads import (
    ANSWERS,
    DENSE_LABELS,
    FIRST_TOKEN,
    LABELS,
    ONCE,
    PLAIN,
    POOLER,
    TWICE,
    UNDROPPED,
    head_dropout,
)
from .weights import Dropped

FIELDS = (
    USUAL
    | same("hidden_act", "classifier_dropout")
    | {
        "type_vocab_size": Field(
            lambda stock: stock.type_vocab_size,
            lambda config: {"type_vocab_size": max(config.type_vocab_size, 1)},
        ),
        "norm_eps": "layer_norm_eps",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
    }
)
FIXED = (
    PLAIN_LAYERS
    | BIASES
    | {
        "position_embedding_type": "learned",
        "embedding_norm": True,
        "norm_placement": "post",
        "head_bias": True,
        "head_transform": True,
    }
)
REQUIRED = {"is_decoder": False, "add_cross_attention": False}
EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "embeddings.embed_tokens.weight",
    "embeddings.position_embeddings.weight": "embeddings.positions.embed_positions.weight",
    "embeddings.LayerNorm.*": "embeddings.norm.*",
}
LAYERS = {
    "embeddings.token_type_embeddings.weight": "embeddings.token_types.weight",
    **projections(
        "encoder.layer.*.attention.",
        "layers.*.self_attention.",
        "self.query self.key self.value output.dense",
    ),
    "encoder.layer.*.attention.output.LayerNorm.*": "layers.*.self_attention_norm.*",
    "encoder.layer.*.intermediate.dense.*": "layers.*.feed_forward.up_proj.*",
    "encoder.layer.*.output.dense.*": "layers.*.feed_forward.down_proj.*",
    "encoder.layer.*.output.LayerNorm.*": "layers.*.feed_forward_norm.*",
}
WEIGHTS = EMBEDDINGS | LAYERS
UNUSED_POOLER = Dropped("states of tokens do not depend on the pooler")
NO_POOLER = {"pooler.dense.*": UNUSED_POOLER}
WITHOUT_POOLER = {"add_pooling_layer": False}
BIAS_OF_THE_LAYER = Dropped("the vocabulary's layer has the bias")
MASKED_LM = {
    "cls.predictions.transform.dense.*": "transform.dense.*",
    "cls.predictions.transform.LayerNorm.*": "transform.norm.*",
    "cls.predictions.decoder.*": "lm_head.*",
    "cls.predictions.bias": BIAS_OF_THE_LAYER,
}
NEXT_SENTENCE = {
    "bert.pooler.dense.*": "next_sentence_head.dense.*",
    "cls.seq_relationship.*": "next_sentence_head.classifier.*",
}
POOLED_LABELS = {"bert.pooler.dense.*": "classifier.transform.dense.*", **LABELS}
GELU = {"hidden_act": "gelu"}
"""What the dense layer before some vocabularies has, whatever the layers have."""
OF_LAYERS = {"classifier_dropout": Field(lambda stock: stock.hidden_dropout_prob)}
"""Some heads have the dropout of the layers, whatever `classifier_dropout` says."""

BERT = Architecture(
    model_type="bert",
    config=TercetEncoderConfig,
    fields=FIELDS,
    fixed=FIXED,
    required=REQUIRED,
    weights=WEIGHTS | NO_POOLER,
    counterparts=named(
        "Bert",
        "TercetEncoder",
        Counterpart("Model", arguments=WITHOUT_POOLER),
        Counterpart("ForMaskedLM", MASKED_LM),
        Counterpart("ForPreTraining", MASKED_LM | NEXT_SENTENCE),
        Counterpart("ForNextSentencePrediction", NEXT_SENTENCE),
        Counterpart("ForSequenceClassification", POOLED_LABELS, values=POOLER),
        Counterpart("ForTokenClassification", LABELS, values=PLAIN),
        Counterpart("ForQuestionAnswering", ANSWERS, values=PLAIN | UNDROPPED),
        Counterpart("ForMultipleChoice", POOLED_LABELS, values=POOLER),
    ),
    prefix="bert.",
)

ROBERTA_MASKED_LM = {
    "lm_head.dense.*": "transform.dense.*",
    "lm_head.layer_norm.*": "transform.norm.*",
    "lm_head.decoder.*": "lm_head.*",
    "lm_head.bias": BIAS_OF_THE_LAYER,
}
ROBERTA_CHOICES = {"roberta.pooler.dense.*": "classifier.transform.dense.*", **LABELS}

ROBERTA = Architecture(
    model_type="roberta",
    config=TercetEncoderConfig,
    fields=FIELDS
    | {
        "position_offset": Field(lambda stock: stock.pad_token_id + 1),
        "max_position_embeddings": Field(
            lambda stock: stock.max_position_embeddings - stock.pad_token_id - 1,
            lambda config: {
                "max_position_embeddings": config.max_position_embeddings + config.position_offset
            },
        ),
    },
    fixed=FIXED,
    required=REQUIRED,
    weights=WEIGHTS | NO_POOLER,
    counterparts=named(
        "Roberta",
        "TercetEncoder",
        Counterpart("Model", arguments=WITHOUT_POOLER),
        Counterpart("ForMaskedLM", ROBERTA_MASKED_LM, required=GELU),
        Counterpart("ForSequenceClassification", DENSE_LABELS, fields=TWICE, values=POOLER),
        Counterpart("ForTokenClassification", LABELS, values=PLAIN),
        Counterpart("ForQuestionAnswering", ANSWERS, values=PLAIN | UNDROPPED),
        Counterpart("ForMultipleChoice", ROBERTA_CHOICES, fields=OF_LAYERS, values=POOLER | ONCE),
    ),
    prefix="roberta.",
)

PRE_CLASSIFIER = {"pre_classifier.*": "classifier.transform.dense.*", **LABELS}
RELU = FIRST_TOKEN | {"classifier_act": "relu"}
PRE_DROPOUT = {"classifier_dropout": head_dropout("seq_classif_dropout")}

DISTILBERT = Architecture(
    model_type="distilbert",
    config=TercetEncoderConfig,
    fields=USUAL
    | same("dropout", "attention_dropout")
    | {
        "hidden_size": "dim",
        "intermediate_size": "hidden_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "hidden_act": "activation",
    },
    fixed=FIXED | {"type_vocab_size": 0, "norm_eps": 1e-12, "attention_out_dropout": 0.0},
    required={},
    weights=EMBEDDINGS
    | projections("transformer.layer.*.attention.", "layers.*.self_attention.", "q_lin k_lin v_lin out_lin")
    | {
        "transformer.layer.*.sa_layer_norm.*": "layers.*.self_attention_norm.*",
        "transformer.layer.*.ffn.lin1.*": "layers.*.feed_forward.up_proj.*",
        "transformer.layer.*.ffn.lin2.*": "layers.*.feed_forward.down_proj.*",
        "transformer.layer.*.output_layer_norm.*": "layers.*.feed_forward_norm.*",
    },
    counterparts=named(
        "DistilBert",
        "TercetEncoder",
        Counterpart("Model"),
        Counterpart(
            "ForMaskedLM",
            {
                "vocab_transform.*": "transform.dense.*",
                "vocab_layer_norm.*": "transform.norm.*",
                "vocab_projector.*": "lm_head.*",
            },
        ),
        Counterpart("ForSequenceClassification", PRE_CLASSIFIER, fields=PRE_DROPOUT, values=RELU),
        Counterpart(
            "ForTokenClassification",
            LABELS,
            fields={"classifier_dropout": Field(lambda stock: stock.dropout)},
            values=PLAIN,
        ),
        Counterpart(
            "ForQuestionAnswering",
            ANSWERS,
            fields={"classifier_dropout": head_dropout("qa_dropout")},
            values=PLAIN,
        ),
        Counterpart("ForMultipleChoice", PRE_CLASSIFIER, fields=PRE_DROPOUT, values=RELU),
    ),
    prefix="distilbert.",
)

GENERATOR = {
    "generator_predictions.dense.*": "transform.dense.*",
    "generator_predictions.LayerNorm.*": "transform.norm.*",
    "generator_lm_head.*": "lm_head.*",
}
DISCRIMINATOR = {
    "discriminator_predictions.dense.*": "replaced_token_head.dense.*",
    "discriminator_predictions.dense_prediction.*": "replaced_token_head.out_proj.*",
}
DENSE_GELU = FIRST_TOKEN | {"classifier_act": "gelu"}

ELECTRA = Architecture(
    model_type="electra",
    config=TercetEncoderConfig,
    fields=FIELDS
    | {
        "embedding_size": Field(
            lambda stock: None if stock.embedding_size == stock.hidden_size else stock.embedding_size,
            lambda config: {"embedding_size": config.embedding_width},
        )
    },
    fixed=FIXED,
    required=REQUIRED,
    weights=WEIGHTS | {"embeddings_project.*": "embeddings.projection.*"},
    counterparts=named(
        "Electra",
        "TercetEncoder",
        Counterpart("Model"),
        Counterpart("ForPreTraining", DISCRIMINATOR, ours="ForReplacedTokenDetection"),
        Counterpart("ForMaskedLM", GENERATOR, required=GELU),
        Counterpart("ForSequenceClassification", DENSE_LABELS, fields=TWICE, values=DENSE_GELU),
        Counterpart("ForTokenClassification", LABELS, values=PLAIN),
        Counterpart("ForQuestionAnswering", ANSWERS, values=PLAIN | UNDROPPED),
        Counterpart(
            "ForMultipleChoice",
            {"sequence_summary.summary.*": "classifier.transform.dense.*", **LABELS},
            fields={
                "classifier_dropout": head_dropout("summary_last_dropout"),
                "classifier_input_dropout": Field(lambda stock: getattr(stock, "summary_first_dropout", 0.0)),
            },
            values=DENSE_GELU,
            required={"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        ),
    ),
    prefix="electra.",
)

SPARSE = "stock_big_bird_attention"
BIG_BIRD_NEXT_SENTENCE = {
    "bert.pooler.*": "next_sentence_head.dense.*",
    "cls.seq_relationship.*": "next_sentence_head.classifier.*",
}
BIG_BIRD_CHOICES = {"bert.pooler.*": "classifier.transform.dense.*", **LABELS}
BIG_BIRD_ANSWERS = {
    "qa_classifier.intermediate.dense.*": "qa_outputs.feed_forward.up_proj.*",
    "qa_classifier.output.dense.*": "qa_outputs.feed_forward.down_proj.*",
    "qa_classifier.output.LayerNorm.*": "qa_outputs.norm.*",
    "qa_classifier.qa_outputs.*": "qa_outputs.out_proj.*",
}


def layer_types(stock: Any) -> list[str] | None:
    """Name the types of layers, which are all the same."""
    return [SPARSE] * stock.num_hidden_layers if stock.attention_type == "block_sparse" else None


def attention_type(config: TercetConfig) -> dict[str, str]:
    """Return the type of the first layer; if others differ, the comparison of configurations names them."""
    return {"attention_type": "block_sparse" if config.types_of_layers[0] == SPARSE else "original_full"}


BIG_BIRD = Architecture(
    model_type="big_bird",
    config=TercetEncoderConfig,
    fields=FIELDS
    | {
        "scale_embedding": "rescale_embeddings",
        "attention_bias": "use_bias",
        "layer_types": Field(layer_types, attention_type),
        "attention_block_size": "block_size",
        "attention_random_blocks": "num_random_blocks",
        "embedding_input_dropout": Field(lambda stock: stock.hidden_dropout_prob),
    },
    fixed={name: value for name, value in FIXED.items() if name != "attention_bias"}
    | {"attention_out_bias": True, "answer_head": "feed_forward", "embedding_dropout": 0.0},
    required=REQUIRED,
    weights=WEIGHTS | {"pooler.*": UNUSED_POOLER},
    counterparts=named(
        "BigBird",
        "TercetEncoder",
        Counterpart("Model", arguments=WITHOUT_POOLER),
        Counterpart("ForMaskedLM", MASKED_LM),
        Counterpart("ForPreTraining", MASKED_LM | BIG_BIRD_NEXT_SENTENCE),
        Counterpart(
            "ForSequenceClassification",
            DENSE_LABELS,
            fields={"classifier_act": Field(lambda stock: stock.hidden_act)} | TWICE,
            values=FIRST_TOKEN,
        ),
        Counterpart("ForTokenClassification", LABELS, values=PLAIN),
        Counterpart("ForQuestionAnswering", BIG_BIRD_ANSWERS, fields=OF_LAYERS),
        Counterpart("ForMultipleChoice", BIG_BIRD_CHOICES, fields=OF_LAYERS, values=POOLER | ONCE),
    ),
    prefix="bert.",
)
