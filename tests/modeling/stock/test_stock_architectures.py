"""Every stock architecture comes in and goes out unchanged: predictions, losses, gradients, texts."""

import copy
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from tercet.modeling.pretrained import TercetPreTrainedModel
from tercet.modeling.stock import certify, from_stock, to_stock
from tercet.modeling.stock.architectures import ARCHITECTURES
from tercet.modeling.stock.certificate import answers, stock_lesson, written
from tercet.modeling.stock.probes import probes_for

pytestmark = pytest.mark.usefixtures("short_texts")

ENCODERS = ("Bert", "Roberta", "DistilBert", "Electra", "BigBird", "ModernBert")
SEQ2SEQ = ("Bart", "MBart", "T5", "MT5")
DECODERS = ("GPT2", "OPT", "GPTNeoX", "Llama", "Mistral", "Qwen2", "Qwen3")
WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
GLOBAL, LOCAL = "full_attention", "sliding_attention"
MODERNBERT_BIASES = {f"{name}_bias": True for name in ("norm", "attention", "mlp", "classifier")}
SPARSE: dict[str, Any] = {
    "attention_type": "block_sparse",
    "block_size": 5,
    "num_random_blocks": 2,
    "max_position_embeddings": 72,
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("BertModel", {}),
    ("BertForMaskedLM", {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
    ("BertForMaskedLM", {"tie_word_embeddings": False}),
    ("BertForPreTraining", {"type_vocab_size": 3}),
    ("BertForNextSentencePrediction", {}),
    ("RobertaModel", {}),
    ("RobertaForMaskedLM", {}),
    ("RobertaForMaskedLM", {"pad_token_id": 3, "max_position_embeddings": 44, "type_vocab_size": 2}),
    ("DistilBertModel", {}),
    ("DistilBertForMaskedLM", {}),
    ("DistilBertForMaskedLM", {"activation": "relu", "tie_word_embeddings": False}),
    ("BigBirdModel", {}),
    ("BigBirdForMaskedLM", {"rescale_embeddings": True}),
    ("BigBirdForPreTraining", {"use_bias": False}),
    *((f"BigBird{head}", SPARSE) for head in ("Model", "ForMaskedLM", "ForMultipleChoice")),
    ("BigBirdForQuestionAnswering", SPARSE | {"sep_token_id": 5}),
    ("BigBirdForSequenceClassification", SPARSE | {"num_random_blocks": 1}),
    ("GPT2Model", {}),
    ("GPT2LMHeadModel", {"n_inner": 20}),
    ("GPT2LMHeadModel", {"activation_function": "relu2"}),
    ("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
    ("GPT2LMHeadModel", {"tie_word_embeddings": False, "activation_function": "relu"}),
    ("OPTModel", {}),
    ("OPTForCausalLM", {}),
    ("OPTForCausalLM", {"do_layer_norm_before": False, "tie_word_embeddings": False}),
    ("OPTForCausalLM", {"enable_bias": False}),
    ("LlamaModel", {}),
    ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    ("LlamaForCausalLM", {"tie_word_embeddings": True, "rope_parameters": {"rope_theta": 500.0}}),
    ("LlamaForCausalLM", {"head_dim": 12}),
    ("LlamaForCausalLM", {"hidden_act": "relu2"}),
    (
        "LlamaForCausalLM",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    ("ElectraModel", {}),
    ("ElectraModel", {"embedding_size": 32}),
    ("ElectraForMaskedLM", {}),
    ("ElectraForPreTraining", {"hidden_act": "relu"}),
    ("ModernBertModel", {}),
    ("ModernBertModel", {"layer_types": [GLOBAL] * 4, "classifier_bias": True}),
    ("ModernBertModel", {"layer_types": [LOCAL, LOCAL, GLOBAL, LOCAL], "local_attention": 9}),
    ("ModernBertForMaskedLM", {}),
    ("ModernBertForMaskedLM", MODERNBERT_BIASES | {"decoder_bias": False, "tie_word_embeddings": False}),
    ("ModernBertForMaskedLM", {"hidden_activation": "relu", "classifier_activation": "relu"}),
    ("ModernBertForSequenceClassification", {"classifier_pooling": "mean", **MODERNBERT_BIASES}),
    ("ModernBertForSequenceClassification", {"classifier_activation": "silu"}),
    ("ModernBertForMultipleChoice", {"classifier_pooling": "mean"}),
    (
        "ModernBertForMaskedLM",
        {
            "rope_parameters": {
                GLOBAL: {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
                LOCAL: {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0},
            }
        },
    ),
    ("ModernBertForMaskedLM", {"rope_parameters": {LOCAL: {"rope_type": "linear", "factor": 2.0}}}),
    ("MistralModel", {}),
    ("MistralForCausalLM", {}),
    ("MistralForCausalLM", {"sliding_window": None, "head_dim": 12, "tie_word_embeddings": True}),
    ("GPTNeoXModel", {}),
    ("GPTNeoXForCausalLM", {"use_parallel_residual": False, "tie_word_embeddings": True}),
    ("GPTNeoXForCausalLM", {"attention_bias": False}),
    ("Qwen2Model", {}),
    ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    ("Qwen2ForCausalLM", WINDOWS),
    ("Qwen3Model", {}),
    ("Qwen3ForCausalLM", {"attention_bias": True}),
    ("Qwen3ForCausalLM", WINDOWS | {"layer_types": [LOCAL, GLOBAL]}),
    ("T5Model", {"num_decoder_layers": 3}),
    ("T5ForConditionalGeneration", {}),
    ("T5ForConditionalGeneration", {"num_decoder_layers": 3}),
    ("T5ForConditionalGeneration", {"num_decoder_layers": 1}),
    ("T5EncoderModel", {}),
    ("MT5EncoderModel", {}),
    ("T5ForConditionalGeneration", {"feed_forward_proj": "gated-gelu"}),
    ("MT5Model", {}),
    ("MT5ForConditionalGeneration", {"feed_forward_proj": "gated-gelu"}),
    ("BigBirdForSequenceClassification", {"hidden_act": "relu"}),
    ("BartModel", {}),
    ("BartForConditionalGeneration", {"scale_embedding": True}),
    ("BartForConditionalGeneration", {"activation_function": "relu"}),
    ("MBartModel", {}),
    ("MBartForConditionalGeneration", {"scale_embedding": True}),
    ("MarianModel", {"activation_function": "swish"}),
    ("MarianMTModel", {"scale_embedding": True, "activation_function": "swish"}),
]
HEADS: list[tuple[str, dict[str, Any]]] = [
    *((f"{name}ForSequenceClassification", {"num_labels": 3}) for name in ENCODERS),
    *((f"{name}ForTokenClassification", {"num_labels": 3}) for name in ENCODERS),
    *((f"{name}ForQuestionAnswering", {}) for name in ENCODERS),
    *((f"{name}ForMultipleChoice", {}) for name in ENCODERS),
    *((f"{name}ForSequenceClassification", {"num_labels": 3, "pad_token_id": 1}) for name in DECODERS),
    *((f"{name}ForTokenClassification", {"num_labels": 3}) for name in DECODERS if name != "OPT"),
    *((f"{name}ForQuestionAnswering", {}) for name in DECODERS if name != "OPT"),
    *((f"{name}ForSequenceClassification", {"num_labels": 3, "pad_token_id": None}) for name in DECODERS),
    *((f"{name}ForSequenceClassification", {"num_labels": 3}) for name in SEQ2SEQ),
    *((f"{name}ForQuestionAnswering", {}) for name in SEQ2SEQ),
    *((f"{name}ForTokenClassification", {"num_labels": 3}) for name in ("T5", "MT5")),
]
QUICK = ("BertFor", "BigBirdFor", "ModernBertFor", "GPT2For", "LlamaFor", "T5For")
"""Architectures whose heads the default suite tries."""
MARKED = [pytest.param(*case, marks=[] if case[0].startswith(QUICK) else pytest.mark.slow) for case in HEADS]


@pytest.mark.parametrize(("name", "options"), [*CASES, *MARKED], ids=lambda value: str(value))
def test_comes_in_and_goes_out_unchanged(stock, name: str, options: dict[str, Any]) -> None:
    model = stock(name, **options)
    ours = from_stock(model)
    certificate = certify(model, ours)
    assert certificate.holds, certificate.table()
    back = to_stock(ours, model.config.model_type)
    assert type(back) is type(model)
    assert back.config.pad_token_id == model.config.pad_token_id
    if options.get("scale_attn_by_inverse_layer_idx"):  # a factor that is in the weights for good
        assert certify(back, ours).holds
        return
    for name, tensor in back.state_dict().items():
        if name not in certificate.dropped:
            torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-6, atol=1e-7)
    require_equal(model, back, ours)


def require_equal(model: PreTrainedModel, back: PreTrainedModel, ours: TercetPreTrainedModel) -> None:
    """Check that two stock models predict, learn and write the same, on the inputs that `certify` takes."""
    for probe in probes_for(model, ours, None):
        pair = [copy.deepcopy(each).eval() for each in (model, back)]
        with torch.no_grad():
            torch.testing.assert_close(*(answers(each, probe) for each in pair), rtol=1e-5, atol=1e-5)
        if probe.is_long:
            continue
        if labels := probe.labels(model):
            lessons = [stock_lesson(each, probe.inputs() | labels) for each in pair]
            torch.testing.assert_close(*lessons, rtol=1e-5, atol=1e-5)
        if ours.can_generate():
            torch.testing.assert_close(*(written(each, probe, use_cache=False) for each in pair))


@pytest.mark.parametrize("name", ["BartForConditionalGeneration", "MarianMTModel"])
def test_bias_of_the_vocabulary_that_says_something_is_kept(stock, name: str) -> None:
    model = stock(name)
    model.final_logits_bias.normal_()
    ours = from_stock(model)
    assert ours.config.head_bias
    assert certify(model, ours).holds
    assert torch.equal(to_stock(ours, model.config.model_type).final_logits_bias, model.final_logits_bias)


def test_every_counterpart_is_tried() -> None:
    tried = {name for name, _ in (*CASES, *HEADS)}
    assert {each.stock for known in ARCHITECTURES.values() for each in known.counterparts} == tried


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_keep_their_type(stock, dtype: torch.dtype) -> None:
    ours = from_stock(stock("GPT2LMHeadModel").to(dtype))
    assert ours.dtype == dtype
    assert to_stock(ours).dtype == dtype


def test_ids_labels_and_generation_defaults_go_along(stock) -> None:
    model = stock("BartForConditionalGeneration", forced_eos_token_id=2, id2label={0: "no", 1: "yes"})
    model.generation_config.num_beams = 3
    ours = from_stock(model)
    assert (ours.config.pad_token_id, ours.config.decoder_start_token_id) == (1, 2)
    assert ours.config.id2label == {0: "no", 1: "yes"}
    assert ours.generation_config.num_beams == 3
    assert to_stock(ours).generation_config.num_beams == 3


@pytest.mark.parametrize("name", ["MBartForSequenceClassification", "MBartForQuestionAnswering"])
def test_decoder_that_starts_with_the_end_of_the_text_does_so_with_us(stock, name: str) -> None:
    ours = from_stock(stock(name, decoder_start_token_id=7))
    assert ours.config.decoder_start_token_id == ours.config.eos_token_id == 2


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_texts_without_ends_have_none_elsewhere(stock, name: str) -> None:
    ours = from_stock(stock(name, bos_token_id=None, eos_token_id=None))
    for model in (ours, to_stock(ours)):
        assert (model.config.bos_token_id, model.config.eos_token_id) == (None, None)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("Qwen2Model", {"is_causal": False}, r"is_causal=False \(ours can only be True"),
        (
            "GPT2LMHeadModel",
            {"scale_attn_weights": False},
            r"scale_attn_weights=False \(ours can only be True\)",
        ),
        (
            "BertForMaskedLM",
            {"hidden_act": "mish"},
            "this bert cannot be imported: .*'hidden_act' expected one of .* got mish",
        ),
        (
            "OPTForCausalLM",
            {"word_embed_proj_dim": 16},
            "2 tensors of OPTForCausalLM have no counterpart in ours: .*project_out",
        ),
        ("BertLMHeadModel", {}, "BertLMHeadModel has no counterpart among the bert models"),
    ],
    ids=["both directions", "option", "activation", "tensor", "head"],
)
def test_what_has_no_counterpart_is_refused_by_name(name, fields, message, stock) -> None:
    with pytest.raises(ValueError, match=message):
        from_stock(stock(name, **fields))
