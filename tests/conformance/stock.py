"""Stock models of each kind under the same tests: what they pass and skip is what ours are held to."""

import unittest

import transformers
from suites import GenerativeSuite, Suite


class EncoderTest(Suite, unittest.TestCase):
    config_class = transformers.BertConfig
    all_model_classes = (
        transformers.BertModel,
        transformers.BertForMaskedLM,
        transformers.BertForPreTraining,
        transformers.BertForNextSentencePrediction,
        transformers.BertForSequenceClassification,
        transformers.BertForTokenClassification,
        transformers.BertForQuestionAnswering,
        transformers.BertForMultipleChoice,
    )


class DecoderTest(GenerativeSuite, unittest.TestCase):
    config_class = transformers.LlamaConfig
    fields = {"pad_token_id": 0}
    all_model_classes = (
        transformers.LlamaModel,
        transformers.LlamaForCausalLM,
        transformers.LlamaForSequenceClassification,
        transformers.LlamaForTokenClassification,
        transformers.LlamaForQuestionAnswering,
    )
    _torch_compile_train_cls = transformers.LlamaForCausalLM


class Seq2SeqTest(GenerativeSuite, unittest.TestCase):
    config_class = transformers.BartConfig
    is_encoder_decoder = True
    fields = {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    }
    all_model_classes = (
        transformers.BartModel,
        transformers.BartForConditionalGeneration,
        transformers.BartForSequenceClassification,
        transformers.BartForQuestionAnswering,
    )
