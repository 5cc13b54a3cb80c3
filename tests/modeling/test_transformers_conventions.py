"""What users of transformers count on: compilation, checkpointing, recordings, kernels.

What transformers' own tests ask of every model, each cause of a failure there by itself.

What modeling/ knows of transformers' private methods, and of which versions.
"""

import copy
import inspect
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Unpack

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.testing import assert_close
from transformers import AutoModel, DynamicCache, GenerationMixin
from transformers.cache_utils import DynamicLayer, EncoderDecoderCache
from transformers.exporters.configs import DynamoConfig
from transformers.exporters.exporter_dynamo import DynamoExporter
from transformers.exporters.utils import decompose_prefill_decode
from transformers.models.auto import modeling_auto
from transformers.utils.generic import TransformersKwargs

import tercet.modeling
from tercet import modeling
from tercet.modeling import TercetEncoderForPreTraining
from tercet.modeling.compatibility import CACHE

from ..architectures import AUTO_CLASSES
from ..corners import corners
from ..tolerances import CLOSE
from .conftest import MODELS, VARIANTS


def inputs_of(batch) -> dict:
    """Padded ids, mask and labels, which suit every member."""
    ids, mask = batch.padded()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


QUICK = (("encoder", "big_bird"), ("encoder", "sliding_t5"), ("encoder", "electra"))
"""Beside the modern variant, those of the default suite: patterns, biases, other parts around the blocks."""

COMPILED = [
    pytest.param(*point, marks=() if point[1] == "modern" or point[:2] in QUICK else pytest.mark.slow)
    for point in product(MODELS, VARIANTS, (False, True))
    if point[1] == "modern" or point[2] == (point[0] != "decoder")
]
"""It takes seconds: every variant in every member, a decoder as it is used and the others in training."""


@pytest.mark.parametrize(("member", "variant", "training"), COMPILED)
def test_the_forward_pass_compiles_without_graph_breaks(member, variant, training, builder, batch):
    torch._dynamo.reset()
    model = builder(member, variant).train(training)
    inputs = inputs_of(batch)
    compiled = torch.compile(model, fullgraph=True, backend="eager")(**inputs)
    assert_close(compiled.loss, model(**inputs).loss, **CLOSE)


@pytest.mark.parametrize(
    "variant", corners(("modern", "t5", "sliding", "sliding_t5"), keep=lambda variant: "_" in variant)
)
def test_packed_sequences_compile_without_graph_breaks(variant, builder, batch):
    torch._dynamo.reset()
    for member in ("encoder", "decoder"):
        model = builder(member, variant)
        compiled = torch.compile(model, fullgraph=True, backend="eager")(**batch.packed())
        assert_close(compiled.logits, model(**batch.packed()).logits, **CLOSE)


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("is_reentrant", [True, False])
@pytest.mark.parametrize("variant", ["modern", "t5", "primer"])
def test_gradient_checkpointing_changes_no_gradient(member, variant, is_reentrant, is_packed, builder, batch):
    model = builder(member, variant).train()
    inputs = inputs_of(batch)
    if is_packed and member != "seq2seq":
        inputs = batch.packed() | {"labels": batch.packed()["input_ids"]}

    def gradients():
        model.zero_grad()
        model(**inputs).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = gradients()
    model.gradient_checkpointing_enable({"use_reentrant": is_reentrant})
    assert_close(gradients(), expected)


@pytest.mark.parametrize("variant", ["modern", "t5", "bert"])
def test_gradients_of_single_samples_add_up_to_those_of_the_batch(member, variant, builder):
    model = builder(member, variant).train()
    # Of equal length: transformers looks into a padding mask to build its own, which `vmap` forbids.
    ids = torch.randint(3, 61, (3, 8), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "labels": ids.flip(1)}
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss_of(parameters, sample):
        rows = {name: value[None] for name, value in sample.items()}
        return functional_call(model, parameters, (), rows | {"reduction": "sum"}).loss

    of_samples = vmap(grad(loss_of), in_dims=(None, 0), randomness="different")(parameters, inputs)
    model(**inputs, reduction="sum").loss.backward()
    for name, parameter in model.named_parameters():
        assert_close(of_samples[name].sum(0), parameter.grad, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_attentions_are_recorded_whatever_the_kernel(member, kernel, builder, batch):
    model = builder(member, "grouped", kernel)
    inputs = inputs_of(batch)
    outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    assert_close(outputs.logits, model(**inputs).logits, **CLOSE)
    prefix = "decoder_" if member == "seq2seq" else ""
    attentions, states = outputs[f"{prefix}attentions"], outputs[f"{prefix}hidden_states"]
    assert len(attentions) == 2
    assert len(states) == 3
    assert attentions[0].shape == (5, 4, 9, 9)
    assert_close(attentions[0].sum(-1), torch.ones(5, 4, 9))
    if member == "seq2seq":
        assert outputs.cross_attentions[0].shape == outputs.encoder_attentions[0].shape == (5, 4, 9, 9)
        assert outputs.encoder_attentions[0][1, :, :, 3:].max() == 0
        assert len(outputs.encoder_hidden_states) == 3


def test_the_configuration_can_ask_for_recordings(member, builder, batch):
    model = builder(member, kernel="eager")
    model.config.output_attentions = True
    assert model(**inputs_of(batch))["cross_attentions" if member == "seq2seq" else "attentions"] is not None


def test_the_kernel_can_be_changed_later(member, builder, batch):
    model = builder(member, kernel="sdpa")
    expected = model(**inputs_of(batch)).logits
    model.set_attn_implementation("eager")
    kernels = {
        module.config._attn_implementation for module in model.modules() if hasattr(module, "is_causal")
    }
    assert kernels == {"eager"}
    assert_close(model(**inputs_of(batch)).logits, expected, **CLOSE)


@pytest.mark.slow
def test_flex_attention_equals_sdpa(builder, batch):
    """Compiled, as it is used; `test_flex_attention.py` has all patterns. On a CPU it does not train."""
    for member in ("encoder", "decoder"):
        model = builder(member, "modern", kernel="sdpa", hidden_size=64)
        ids, mask = batch.padded("left")
        padded = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        packed = model(**batch.packed()).logits
        model.set_attn_implementation("flex_attention")
        with torch.no_grad():
            assert_close(model(input_ids=ids, attention_mask=mask).logits[mask.bool()], padded, **CLOSE)
            assert_close(model(**batch.packed()).logits, packed, **CLOSE)


IDS = torch.ones(1, 3, dtype=torch.long)
REFUSED = {
    "no input": ("encoder", {}, {}, "either input_ids or inputs_embeds: both are missing"),
    "two inputs": (
        "encoder",
        {},
        {"input_ids": IDS, "inputs_embeds": torch.ones(1, 3, 32)},
        "both are given",
    ),
    "no rows": ("encoder", {}, {"input_ids": IDS[:0]}, r"size \(0, 3\): give one row or more"),
    "no tokens": ("encoder", {}, {"input_ids": IDS[:, :0]}, r"size \(1, 0\): give one row or more"),
    "unknown token": (
        "encoder",
        {},
        {"input_ids": 61 * IDS},
        "input_ids hold 61, but the model has 61 tokens",
    ),
    "negative token": ("encoder", {}, {"input_ids": -IDS}, "input_ids hold -1, but the model has 61 tokens"),
    "segments": (
        "encoder",
        {"type_vocab_size": 0},
        {"input_ids": IDS, "token_type_ids": IDS},
        "type_vocab_size is 0",
    ),
    "too long": (
        "decoder",
        {"position_embedding_type": "learned"},
        {"input_ids": IDS.repeat(1, 11)},
        r"33 tokens is longer than max_position_embeddings \(32\)",
    ),
    # GPT-2 refuses it, too, where it was built without cross-attention.
    "source": (
        "decoder",
        {},
        {"input_ids": IDS, "encoder_hidden_states": torch.ones(1, 2, 32)},
        "encoder_hidden_states are given to a stack without",
    ),
    "no target": ("seq2seq", {}, {"input_ids": IDS}, "decoder_input_ids is missing"),
}
"""What is wrong -> member, fields of its configuration, inputs, and words of the refusal."""


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_inputs_are_refused_with_a_remedy(case, builder):
    member, fields, inputs, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        builder(member, **fields)(**inputs)


def test_a_decoder_of_seq2seq_needs_its_source(builder):
    with pytest.raises(ValueError, match="encoder_hidden_states are missing"):
        builder("seq2seq").model.decoder(input_ids=IDS)


def test_two_means_have_no_common_number_of_items():
    """With two terms, Trainer itself must divide by the accumulation steps."""
    assert TercetEncoderForPreTraining.accepts_loss_kwargs is False


@pytest.mark.parametrize("variant", ["modern", "t5"])
def test_the_definition_keeps_double_precision(variant, builder, batch):
    model = builder("decoder", variant, "eager").double()
    ids, mask = batch.padded("left")
    padded = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    alone = torch.cat([model(input_ids=row[None]).logits[0] for row in batch.sequences])
    assert_close(padded, alone, rtol=1e-6, atol=1e-6)


SMALL = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 37, "num_attention_heads": 4}


WRITERS = {
    "decoder": (modeling.TercetDecoderConfig, modeling.TercetDecoderForCausalLM),
    "seq2seq": (modeling.TercetSeq2SeqConfig, modeling.TercetSeq2SeqForConditionalGeneration),
}


REGISTERED = [model for models in AUTO_CLASSES.values() for model in models]


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
    model_class = AutoModel._model_mapping[config_class]
    ids = torch.randint(3, 61, (1, 9))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if member == "seq2seq" else {})
    results = []
    for each in (config, named):
        torch.manual_seed(0)
        with torch.no_grad():
            results.append(model_class(each).eval()(**inputs).last_hidden_state)
    assert_close(*results)


def test_what_forward_takes_beside_is_transformers():
    for model in REGISTERED:
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
    assert {type(layer) for layer in layers_of(arguments[CACHE])} == {DynamicLayer}
    exported = DynamoExporter().export(module, copy.deepcopy(arguments), DynamoConfig(dynamic=False))
    program = getattr(exported, "program", exported).module()
    plain = plain_copy(arguments, module.config)
    expected = module(**copy.deepcopy(arguments)).logits
    assert_close(program(**plain)["logits"], expected, rtol=1e-4, atol=1e-5)


def plain_copy(arguments: dict, config) -> dict:
    """Copy arguments, without flags, with the keys and values so far in a new dynamic cache."""
    given = {name: copy.deepcopy(each) for name, each in arguments.items() if not isinstance(each, bool)}
    cache = given[CACHE]
    if not isinstance(cache, EncoderDecoderCache):
        fresh = DynamicCache(config=config)
        for number, layer in enumerate(cache.layers):
            fresh.update(layer.keys, layer.values, number)
        given[CACHE] = fresh
    return given


@torch.no_grad()
def test_a_cache_that_generation_gives_back_is_transformers(writer):
    ids = torch.randint(3, 61, (2, 5))
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False}
    result = writer.generate(ids, **options, return_dict_in_generate=True)
    assert {type(layer) for layer in layers_of(result.past_key_values)} == {DynamicLayer}
    assert "key_buffer" not in vars(layers_of(result.past_key_values)[0])


def test_private_methods_of_transformers_are_not_overridden():
    found = set()
    root = Path(tercet.modeling.__file__).parent
    for path in root.rglob("[!_]*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for kind in vars(import_module(f"tercet.modeling.{module}")).values():
            if not inspect.isclass(kind) or not kind.__module__.startswith("tercet.modeling"):
                continue
            theirs = [base for base in kind.__mro__ if base.__module__.startswith("transformers.")]
            found |= {
                name
                for name, value in vars(kind).items()
                if name.startswith("_") and not name.startswith("__") and inspect.isfunction(value)
                if any(name in vars(base) for base in theirs)
            }
    assert found == {"_init_weights"}  # which is how models of other libraries say it, too
