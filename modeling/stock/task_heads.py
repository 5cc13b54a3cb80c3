"""The heads of tasks, as most stock models have them."""

from typing import Any

from ..configuration_tercet import TercetConfig
from .architecture import Field


def head_dropout(option: str, default: float = 0.0) -> Field:
    """Describe the dropout of a head: a stock option, or a default where the configuration has none."""

    def to_ours(stock: Any) -> float:
        return getattr(stock, option, default)

    def to_stock(config: TercetConfig) -> dict[str, float]:
        return {option: config.dropout_of("classifier_dropout")}

    return Field(to_ours, to_stock)


DROPOUT = {"classifier_dropout": head_dropout("classifier_dropout")}
"""Of the heads: a number, which with us may be everybody's."""


def rate_of_labels(stock: Any) -> float:
    """Return the dropout of a head: its own, or that of the layers."""
    own = stock.classifier_dropout
    return stock.hidden_dropout_prob if own is None else own


TWICE = {"classifier_input_dropout": Field(rate_of_labels)}
"""Sequences are labelled by a head that drops before its dense layer as much as behind it."""

ONCE = {"classifier_input_dropout": 0.0}

UNDROPPED = {"classifier_dropout": 0.0}
"""Most stock models drop nothing before they score the ends of answers."""

FIRST_TOKEN = {"classifier_pooling": "first", "classifier_bias": True, "classifier_norm": False}
"""Sequences are labelled by their first token, behind a dense layer."""

POOLER = FIRST_TOKEN | {"classifier_act": "tanh"}
"""That layer is BERT's pooler."""

PLAIN = {"classifier_norm": False}
"""Tokens are labelled by nothing but a linear layer."""

LAST_TOKEN = {
    "classifier_pooling": "last",
    "classifier_act": None,
    "classifier_bias": False,
} | UNDROPPED
"""Sequences are labelled by their last token, and by nothing but a matrix."""

TOKEN_DROPOUT = {"classifier_dropout": head_dropout("classifier_dropout", default=0.1)}
"""Tokens are labelled behind a dropout that most configurations do not mention."""

AT_THE_END = {
    "classifier_pooling": "last",
    "classifier_act": "tanh",
    "classifier_bias": True,
    "classifier_norm": False,
}
"""Sequences are labelled by their last token, behind a dense layer."""

ENDED = {"eos_token_id": Field(lambda stock: stock.eos_token_id)}
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
