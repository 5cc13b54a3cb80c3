"""transformers' own test classes, and small models and batches in the form that they ask for.

The classes come from the source distribution of the installed version. It holds those that the test files of
all models share, without the two that these inherit from: exports and generation. Laws of ours take their
place, unless TRANSFORMERS_TESTS names a whole checkout. Each law is what a stock model does: whoever
generates in another way gets the same text, and a graph of a model answers like the model, with caches of
transformers' own.
"""

import copy
import importlib
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
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
        """Yield each generative model in evaluation mode, and a batch of prompts."""
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


NAME = "transformers_tests"
"""Under which the folder `tests` is imported, so that no other folder of that name is in its way."""

STAND_INS = {
    "exporters.test_export": {"ExportTesterMixin": ExportLaws},
    "generation.test_utils": {"GenerationTesterMixin": GenerationLaws},
}
"""Classes of ours by the module and the name under which transformers' classes import theirs."""


def load(folder: Path) -> ModuleType:
    """Import `test_modeling_common` from a folder `tests`, with our laws where modules are missing."""
    package = ModuleType(NAME)
    package.__path__ = [str(folder)]
    sys.modules[NAME] = package
    for module_name, classes in STAND_INS.items():
        if not (folder / f"{module_name.replace('.', '/')}.py").is_file():
            stand_in(f"{NAME}.{module_name}", classes)
    return importlib.import_module(f"{NAME}.test_modeling_common")


def stand_in(name: str, classes: dict[str, type]) -> None:
    """Provide a module, and the package it lies in, that holds these classes alone."""
    package, module = ModuleType(name.rpartition(".")[0]), ModuleType(name)
    package.__path__ = []
    vars(module).update(classes)
    sys.modules |= {package.__name__: package, name: module}


common = load(Path(os.environ["TRANSFORMERS_TESTS"]))
ModelTesterMixin = common.ModelTesterMixin
GenerationTesterMixin = sys.modules[f"{NAME}.generation.test_utils"].GenerationTesterMixin

SIZE = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
"""Of every model."""

LABELS = "next_sentence_label"


class Tester:
    """A configuration, and batches for it."""

    is_training = True
    batch_size, seq_length, num_choices = 3, 7, 4
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4

    def __init__(self, config_class: type, **fields: Any):
        self.config_class, self.fields = config_class, fields
        self.encoder_seq_length = self.decoder_seq_length = self.key_length = self.seq_length
        self.out_features = None

    def get_config(self):
        """Build the configuration."""
        return self.config_class(**(SIZE | self.fields))

    def prepare_config_and_inputs_for_common(self):
        """Build the configuration and a batch, padded on the right."""
        config = self.get_config()
        size = (self.batch_size, self.seq_length)
        ids = common.ids_tensor(size, config.vocab_size - 3) + 3
        if config.is_encoder_decoder:
            ids[:, -1] = 2  # BART reads labels of sequences from the end of the text
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if config.is_encoder_decoder:
            inputs["decoder_input_ids"] = common.ids_tensor(size, config.vocab_size - 3) + 3
            inputs["decoder_attention_mask"] = torch.ones_like(ids)
        return config, inputs


class Suite(ModelTesterMixin):
    """transformers' shared tests. Abstract: a test class names configuration and models."""

    config_class: type
    fields: dict[str, Any] = {}
    test_resize_embeddings = True

    def setUp(self):
        """Build what the tests take their models and batches from."""
        self.model_tester = Tester(self.config_class, **self.fields)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class.__name__.endswith("ForPreTraining"):
            size = (self.model_tester.batch_size, self.model_tester.seq_length)
            inputs |= {"labels": torch.zeros(size).long(), LABELS: torch.zeros(size[0]).long()}
        return inputs


class GenerativeSuite(Suite, GenerationTesterMixin):
    """The same for members that write. Abstract."""
