"""Our models under transformers' own tests."""

import unittest

from suites import GenerativeSuite, Suite

import tercet


class EncoderTest(Suite, unittest.TestCase):
    config_class = tercet.TercetEncoderConfig
    all_model_classes = (
        tercet.TercetEncoderModel,
        tercet.TercetEncoderForMaskedLM,
        tercet.TercetEncoderForPreTraining,
        tercet.TercetEncoderForNextSentencePrediction,
        tercet.TercetEncoderForSequenceClassification,
        tercet.TercetEncoderForTokenClassification,
        tercet.TercetEncoderForQuestionAnswering,
        tercet.TercetEncoderForMultipleChoice,
    )


class DecoderTest(GenerativeSuite, unittest.TestCase):
    config_class = tercet.TercetDecoderConfig
    all_model_classes = (
        tercet.TercetDecoderModel,
        tercet.TercetDecoderForCausalLM,
        tercet.TercetDecoderForSequenceClassification,
        tercet.TercetDecoderForTokenClassification,
        tercet.TercetDecoderForQuestionAnswering,
    )
    _torch_compile_train_cls = tercet.TercetDecoderForCausalLM


class Seq2SeqTest(GenerativeSuite, unittest.TestCase):
    config_class = tercet.TercetSeq2SeqConfig
    is_encoder_decoder = True
    all_model_classes = (
        tercet.TercetSeq2SeqModel,
        tercet.TercetSeq2SeqForConditionalGeneration,
        tercet.TercetSeq2SeqForSequenceClassification,
        tercet.TercetSeq2SeqForTokenClassification,
        tercet.TercetSeq2SeqForQuestionAnswering,
    )

    # These change a copy of an encoder-decoder's configuration, and so nothing. BART has no such positions.
    test_model_rope_scaling_from_config_0_linear = None
    test_model_rope_scaling_from_config_1_dynamic = None
    test_model_rope_scaling_from_config_2_yarn = None
