"""Heads by the names of members."""

from tercet.modeling import (
    TercetDecoderForSequenceClassification,
    TercetDecoderForTokenClassification,
    TercetDecoderModel,
    TercetEncoderForSequenceClassification,
    TercetEncoderForTokenClassification,
    TercetEncoderModel,
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
)

CLASSIFIERS = {
    "encoder": TercetEncoderForSequenceClassification,
    "decoder": TercetDecoderForSequenceClassification,
    "seq2seq": TercetSeq2SeqForSequenceClassification,
}
TAGGERS = {
    "encoder": TercetEncoderForTokenClassification,
    "decoder": TercetDecoderForTokenClassification,
    "seq2seq": TercetSeq2SeqForTokenClassification,
}
STACKS = {"encoder": TercetEncoderModel, "decoder": TercetDecoderModel}
