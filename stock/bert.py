"""BERT (Devlin et al., 2019)."""

from ..modeling.configuration_tercet import TercetEncoderConfig
from .architecture import Architecture, Counterpart, Field
from .task_heads import ANSWERS, LABELS, PLAIN, POOLER
from .weights import Dropped

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": Field(
        lambda stock: stock.type_vocab_size,
        lambda config: {"type_vocab_size": max(config.type_vocab_size, 1)},
    ),
    "norm_eps": "layer_norm_eps",
    "hidden_act": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "tie_word_embeddings": "tie_word_embeddings",
    "classifier_dropout": "classifier_dropout",
    "initializer_range": "initializer_range",
}
FIXED = {
    "position_embedding_type": "learned",
    "embedding_norm": True,
    "norm_type": "layer_norm",
    "norm_placement": "post",
    "norm_bias": True,
    "feed_forward_type": "plain",
    "attention_bias": True,
    "mlp_bias": True,
    "head_bias": True,
    "head_transform": True,
}
REQUIRED = {"is_decoder": False, "add_cross_attention": False}
EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "embeddings.embed_tokens.weight",
    "embeddings.position_embeddings.weight": "embeddings.positions.embed_positions.weight",
    "embeddings.token_type_embeddings.weight": "embeddings.token_types.weight",
    "embeddings.LayerNorm.*": "embeddings.norm.*",
}
LAYERS = {
    "encoder.layer.*.attention.self.query.*": "layers.*.self_attention.q_proj.*",
    "encoder.layer.*.attention.self.key.*": "layers.*.self_attention.k_proj.*",
    "encoder.layer.*.attention.self.value.*": "layers.*.self_attention.v_proj.*",
    "encoder.layer.*.attention.output.dense.*": "layers.*.self_attention.o_proj.*",
    "encoder.layer.*.attention.output.LayerNorm.*": "layers.*.self_attention_norm.*",
    "encoder.layer.*.intermediate.dense.*": "layers.*.feed_forward.up_proj.*",
    "encoder.layer.*.output.dense.*": "layers.*.feed_forward.down_proj.*",
    "encoder.layer.*.output.LayerNorm.*": "layers.*.feed_forward_norm.*",
}
NO_POOLER = {"pooler.dense.*": Dropped("states of tokens do not depend on the pooler")}
WITHOUT_POOLER = {"add_pooling_layer": False}
MASKED_LM = {
    "cls.predictions.transform.dense.*": "transform.dense.*",
    "cls.predictions.transform.LayerNorm.*": "transform.norm.*",
    "cls.predictions.decoder.*": "lm_head.*",
    "cls.predictions.bias": Dropped("the vocabulary's layer has the bias"),
}
NEXT_SENTENCE = {
    "bert.pooler.dense.*": "next_sentence_head.dense.*",
    "cls.seq_relationship.*": "next_sentence_head.classifier.*",
}
POOLED_LABELS = {"bert.pooler.dense.*": "classifier.transform.dense.*", **LABELS}

BERT = Architecture(
    model_type="bert",
    config=TercetEncoderConfig,
    fields=FIELDS,
    fixed=FIXED,
    required=REQUIRED,
    weights=EMBEDDINGS | LAYERS | NO_POOLER,
    counterparts=(
        Counterpart("BertModel", "TercetEncoderModel", arguments=WITHOUT_POOLER),
        Counterpart("BertForMaskedLM", "TercetEncoderForMaskedLM", MASKED_LM),
        Counterpart("BertForPreTraining", "TercetEncoderForPreTraining", MASKED_LM | NEXT_SENTENCE),
        Counterpart("BertForNextSentencePrediction", "TercetEncoderForNextSentencePrediction", NEXT_SENTENCE),
        Counterpart(
            "BertForSequenceClassification",
            "TercetEncoderForSequenceClassification",
            POOLED_LABELS,
            values=POOLER,
        ),
        Counterpart(
            "BertForTokenClassification", "TercetEncoderForTokenClassification", LABELS, values=PLAIN
        ),
        Counterpart("BertForQuestionAnswering", "TercetEncoderForQuestionAnswering", ANSWERS, values=PLAIN),
        Counterpart("BertForMultipleChoice", "TercetEncoderForMultipleChoice", POOLED_LABELS, values=POOLER),
    ),
    prefix="bert.",
)
