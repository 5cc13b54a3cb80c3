"""The heads of tasks, as most stock models have them."""

FIRST_TOKEN = {"classifier_pooling": "first", "classifier_bias": True, "classifier_norm": False}
"""Sequences are labelled by their first token, behind a dense layer."""

LAST_TOKEN = {"classifier_pooling": "last", "classifier_act": None, "classifier_bias": False}
"""Sequences are labelled by their last token, and by nothing but a matrix."""

LABELS = {"classifier.*": "classifier.out_proj.*"}
SCORES = {"score.weight": "classifier.out_proj.weight"}
TOKEN_SCORES = {"score.*": "classifier.out_proj.*"}
ANSWERS = {"qa_outputs.*": "qa_outputs.out_proj.*"}
DENSE_LABELS = {
    "classifier.dense.*": "classifier.transform.dense.*",
    "classifier.out_proj.*": "classifier.out_proj.*",
}
