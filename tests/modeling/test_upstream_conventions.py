"""What transformers' own tests ask of every model, each cause of a failure there by itself."""

import copy
import inspect
from typing import Unpack

import pytest
import torch
from torch.testing import assert_close
from transformers import DynamicCache, GenerationMixin
from transformers.cache_utils import DynamicLayer, EncoderDecoderCache
from transformers.exporters.configs import DynamoConfig
from transformers.exporters.exporter_dynamo import DynamoExporter
from transformers.exporters.utils import decompose_prefill_decode
from transformers.models.auto import modeling_auto
from transformers.utils.generic import TransformersKwargs

from tercet import modeling

SMALL = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 37, "num_attention_heads": 4}
WRITERS = {
    "decoder": (modeling.TercetDecoderConfig, modeling.TercetDecoderForCausalLM),
    "seq2seq": (modeling.TercetSeq2SeqConfig, modeling.TercetSeq2SeqForConditionalGeneration),
}
MODELS = [model for models in modeling.AUTO_CLASSES.values() for model in models]


@pytest.fixture(params=WRITERS)
def writer(request):
    """Give a small model that writes."""
    config_class, model_class = WRITERS[request.param]
    torch.manual_seed(0)
    return model_class(config_class(**SMALL, num_hidden_layers=2)).eval()


def layers_of(cache) -> list:
    """List the layers of the part of a cache that grows."""
    return (cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache).layers


@pytest.mark.parametrize("member", ["encoder", "decoder", "seq2seq"])
def test_a_window_alone_makes_all_layers_slide(member):
    config_class = {
        "encoder": modeling.TercetEncoderConfig,
        "decoder": modeling.TercetDecoderConfig,
        "seq2seq": modeling.TercetSeq2SeqConfig,
    }[member]
    config = config_class(**SMALL, num_hidden_layers=2)
    config.sliding_window = 2
    config.validate()
    assert config.types_of_layers == ["sliding_attention"] * 2
    named = config_class(
        **SMALL, num_hidden_layers=2, sliding_window=2, layer_types=["sliding_attention"] * 2
    )
    model_class = modeling.AutoModel._model_mapping[config_class]
    ids = torch.randint(3, 61, (1, 9))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if member == "seq2seq" else {})
    results = []
    for each in (config, named):
        torch.manual_seed(0)
        with torch.no_grad():
            results.append(model_class(each).eval()(**inputs).last_hidden_state)
    assert_close(*results)


def test_what_forward_takes_beside_is_transformers():
    for model in MODELS:
        assert inspect.signature(model.forward).parameters["kwargs"].annotation == Unpack[TransformersKwargs]


def test_generation_is_a_direct_base(writer):
    assert GenerationMixin in type(writer).__bases__


@pytest.mark.parametrize("task", ["SequenceClassification", "TokenClassification"])
def test_heads_are_found_by_the_name_of_their_class(task):
    for member in ("Encoder", "Decoder", "Seq2Seq"):
        config = getattr(modeling, f"Tercet{member}Config")(**SMALL, num_hidden_layers=1)
        model = getattr(modeling, f"Tercet{member}For{task}")(config)
        assert any(type(child).__name__.endswith("ClassificationHead") for child in model.children())


def test_tables_of_transformers_know_what_each_model_is_for():
    names = {
        "MODEL_MAPPING_NAMES": "TercetEncoderModel",
        "MODEL_FOR_PRETRAINING_MAPPING_NAMES": "TercetEncoderForPreTraining",
        "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES": "TercetEncoderForNextSentencePrediction",
    }
    for table, name in names.items():
        assert getattr(modeling_auto, table)["tercet_encoder"] == name


@torch.no_grad()
def test_who_sees_the_arguments_of_forward_finds_a_cache_of_transformers(writer):
    ids = torch.randint(3, 61, (2, 5))
    stages = decompose_prefill_decode(writer, {"input_ids": ids})
    module, arguments = stages["decode"]
    assert {type(layer) for layer in layers_of(arguments["past_key_values"])} == {DynamicLayer}
    exported = DynamoExporter().export(module, copy.deepcopy(arguments), DynamoConfig(dynamic=False))
    program = getattr(exported, "program", exported).module()
    plain = plain_copy(arguments, module.config)
    expected = module(**copy.deepcopy(arguments)).logits
    assert_close(program(**plain)["logits"], expected, rtol=1e-4, atol=1e-5)


def plain_copy(arguments: dict, config) -> dict:
    """Copy arguments, without flags, with the keys and values so far in a new dynamic cache."""
    given = {name: copy.deepcopy(each) for name, each in arguments.items() if not isinstance(each, bool)}
    cache = given["past_key_values"]
    if not isinstance(cache, EncoderDecoderCache):
        fresh = DynamicCache(config=config)
        for number, layer in enumerate(cache.layers):
            fresh.update(layer.keys, layer.values, number)
        given["past_key_values"] = fresh
    return given


@torch.no_grad()
def test_a_cache_that_generation_gives_back_is_transformers(writer):
    ids = torch.randint(3, 61, (2, 5))
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False}
    result = writer.generate(ids, **options, return_dict_in_generate=True)
    assert {type(layer) for layer in layers_of(result.past_key_values)} == {DynamicLayer}
    assert "key_buffer" not in vars(layers_of(result.past_key_values)[0])
