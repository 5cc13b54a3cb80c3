"""The heads of tasks, as most stock models have them."""

from ..modeling.classification import classifier_dropout
from .architecture import Field

DROPOUT = {
    "classifier_dropout": Field(
        lambda stock: stock.classifier_dropout,
        lambda config: {"classifier_dropout": classifier_dropout(config)},
    )
}
"""Of the heads: a number, which with us may be everybody's."""

FIRST_TOKEN = {"classifier_pooling": "first", "classifier_bias": True, "classifier_norm": False}
"""Sequences are labelled by their first token, behind a dense layer."""

LAST_TOKEN = {"classifier_pooling": "last", "classifier_act": None, "classifier_bias": False}
"""Sequences are labelled by their last token, and by nothing but a matrix."""

AT_THE_END = {
    "classifier_pooling": "last",
    "classifier_act": "tanh",
    "classifier_bias": True,
    "classifier_norm": False,
}
"""Sequences are labelled by their last token, behind a dense layer."""

ENDED = {"eos_token_id": lambda stock: stock.eos_token_id}
"""That token is looked for by its id: it is the last one where texts end in it."""

LABELS = {"classifier.*": "classifier.out_proj.*"}
SCORES = {"score.weight": "classifier.out_proj.weight"}
TOKEN_SCORES = {"score.*": "classifier.out_proj.*"}
ANSWERS = {"qa_outputs.*": "qa_outputs.out_proj.*"}
DENSE_LABELS = {
    "classifier.dense.*": "classifier.transform.dense.*",
    "classifier.out_proj.*": "classifier.out_proj.*",
}
HEAD_LABELS = {
    "classification_head.dense.*": "classifier.transform.dense.*",
    "classification_head.out_proj.*": "classifier.out_proj.*",
}
