"""Laws of generation and of exports, for models that transformers' shared test classes are run on.

Each is what a stock model does: whoever generates in another way gets the same text, and a graph of a model
answers like the model, with caches of transformers' own.
"""

import copy
import inspect
from typing import Any, Unpack

import torch
from torch.testing import assert_close
from transformers import DynamicCache, GenerationConfig, GenerationMixin
from transformers.cache_utils import EncoderDecoderCache
from transformers.exporters.configs import DynamoConfig
from transformers.exporters.exporter_dynamo import DynamoExporter
from transformers.exporters.utils import decompose_prefill_decode
from transformers.utils.generic import TransformersKwargs

NEW = 5
"""Tokens that are generated."""


class SharedLaws:
    """What both kinds of laws need. Abstract: the classes below are mixed into transformers' own."""

    model_tester: Any
    all_generative_model_classes: Any
    all_model_classes: Any
    _prepare_for_class: Any
    skipTest: Any  # noqa: N815 (unittest's own name)

    def each(self):
        """Give each generative model in evaluation mode, and a batch of prompts."""
        for model_class in self.all_generative_model_classes:
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            config.eos_token_id = None
            torch.manual_seed(0)
            model = model_class(config).eval()
            names = ("input_ids", "attention_mask")
            yield model, {name: inputs[name] for name in names if name in inputs}


class GenerationLaws(SharedLaws):
    """Ways to generate."""

    def generate(self, model, inputs, **options: Any):
        """Generate greedily, unless options say otherwise."""
        options = {"do_sample": False, "max_new_tokens": NEW, "min_new_tokens": NEW} | options
        return model.generate(**copy.deepcopy(inputs), **options)

    def test_generation_mixin_is_a_direct_base(self):
        for model_class in self.all_generative_model_classes:
            assert GenerationMixin in model_class.__bases__

    def test_forward_names_the_keywords_of_transformers(self):
        for model_class in self.all_model_classes:
            parameter = inspect.signature(model_class.forward).parameters["kwargs"]
            assert parameter.annotation == Unpack[TransformersKwargs], model_class

    def test_greedy_generation_is_one_forward_pass_after_another(self):
        for model, inputs in self.each():
            text = self.generate(model, inputs)
            assert_close(text, self.generate(model, inputs, use_cache=False))
            static = self.generate(model, inputs, cache_implementation="static", disable_compile=True)
            assert_close(text, static)

    def test_beams_and_samples_have_their_shapes(self):
        for model, inputs in self.each():
            beams = self.generate(model, inputs, num_beams=3, num_return_sequences=2)
            size = len(inputs["input_ids"])
            assert len(beams) == 2 * size
            assert_close(beams, self.generate(model, inputs, num_beams=3, num_return_sequences=2))
            assert len(self.generate(model, inputs, do_sample=True, num_return_sequences=2)) == 2 * size

    def test_a_plain_cache_that_is_given_is_filled(self):
        for model, inputs in self.each():
            cache = DynamicCache(config=model.config.get_text_config(decoder=True))
            if model.config.is_encoder_decoder:
                cache = EncoderDecoderCache(cache, DynamicCache(config=model.config))
            text = self.generate(model, inputs, past_key_values=cache)
            assert_close(text, self.generate(model, inputs))
            assert cache.get_seq_length() >= NEW

    def test_a_text_goes_on_from_its_cache(self):
        for model, inputs in self.each():
            if model.config.is_encoder_decoder:
                self.skipTest("an encoder reads its text anew")
            inputs = {"input_ids": inputs["input_ids"]}
            whole = self.generate(model, inputs, max_new_tokens=2 * NEW, min_new_tokens=2 * NEW)
            half = self.generate(model, inputs, return_dict_in_generate=True)
            rest = {"input_ids": half.sequences, "past_key_values": half.past_key_values}
            assert_close(self.generate(model, rest), whole)

    def test_what_is_recorded_while_generating_is_transformers(self):
        for model, inputs in self.each():
            model.set_attn_implementation("eager")
            options = {"output_attentions": True, "output_hidden_states": True, "output_scores": True}
            result = self.generate(model, inputs, return_dict_in_generate=True, **options)
            assert len(result.scores) == NEW
            name = "decoder_attentions" if model.config.is_encoder_decoder else "attentions"
            assert len(result[name]) == NEW


class ExportLaws(SharedLaws):
    """Graphs of `transformers.exporters`."""

    def test_an_exported_model_answers_like_the_model(self):
        for model_class in self.all_model_classes:
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            config.use_cache = False
            torch.manual_seed(0)
            model = model_class(config).eval()
            inputs = self._prepare_for_class(inputs, model_class)
            program = exported(model, inputs)
            same(program(**copy.deepcopy(inputs)), model(**copy.deepcopy(inputs)))

    def test_exported_generation_answers_like_the_model(self):
        for model, inputs in self.each():
            config = GenerationConfig(do_sample=False, eos_token_id=None, pad_token_id=0)
            if model.config.is_encoder_decoder:
                config.decoder_start_token_id = model.config.decoder_start_token_id
            stages = decompose_prefill_decode(model, inputs, generation_config=config)
            for stage, arguments in stages.values():
                require_plain_caches(arguments)
                program = exported(stage, arguments)
                inputs = {name: each for name, each in arguments.items() if not isinstance(each, bool)}
                same(program(**copy.deepcopy(inputs)), stage(**copy.deepcopy(arguments)))


@torch.no_grad()
def exported(model, inputs):
    """Export a model with these arguments, and give what runs the graph."""
    program: Any = DynamoExporter().export(model, copy.deepcopy(inputs), DynamoConfig(dynamic=False))
    return getattr(program, "program", program).module()


def require_plain_caches(arguments) -> None:
    """Assert that a cache among the arguments has layers of transformers' own."""
    cache = arguments.get("past_key_values")
    parts = [cache.self_attention_cache] if isinstance(cache, EncoderDecoderCache) else [cache]
    for layer in (layer for part in parts if part is not None for layer in part.layers):
        assert type(layer).__module__.startswith("transformers."), type(layer)


def same(graph, model) -> None:
    """Assert that a graph and a model answer alike, to float32."""
    for name in ("logits", "last_hidden_state", "start_logits"):
        if name in model.keys():  # noqa: SIM118 (a ModelOutput iterates over its values)
            assert_close(graph[name], model[name], rtol=1e-4, atol=1e-5)
