"""What is saved comes back: weights, ties, types, shards, and code for machines without Tercet.

Files and memory: what a checkpoint may hold or lack, and what stands for the same weight.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig

from ..architectures import CONFIGURATIONS, LOADED
from ..corners import corners
from .conftest import VARIANTS


@pytest.mark.parametrize(("auto", "architecture"), LOADED, ids=lambda part: part.__name__)
def test_every_auto_class_loads_what_was_saved(auto, architecture, builder, tmp_path):
    member = architecture.config_class.model_type.removeprefix("tercet_")
    model = architecture(builder(member, "grouped").config).eval()
    model.save_pretrained(tmp_path)
    loaded, report = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is architecture
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    expected = model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())


def test_ties_survive(member, builder, tmp_path):
    model = builder(member)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.get_input_embeddings().weight
    if member == "seq2seq":
        assert loaded.model.decoder.embeddings.embed_tokens.weight is loaded.lm_head.weight


def tables_of(model) -> tuple[torch.nn.Parameter, torch.nn.Parameter, torch.nn.Parameter]:
    """Tables of the source's token vectors, the target's, and the LM head's."""
    stacks = (model.get_encoder(), model.get_decoder())
    return (*(stack.get_input_embeddings().weight for stack in stacks), model.lm_head.weight)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("shared", [None, True, False])
def test_source_target_and_head_share_what_the_configuration_says(is_tied, shared, builder, tmp_path):
    model = builder("seq2seq", tie_word_embeddings=is_tied, share_encoder_decoder_embeddings=shared)
    is_shared = is_tied if shared is None else shared
    model.save_pretrained(tmp_path)
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    bare = type(model.model).from_pretrained(tmp_path)
    for source, target, head in (tables_of(model), tables_of(loaded)):
        assert (source is target) == is_shared
        assert (head is target) == is_tied
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
    assert all(
        torch.equal(value, bare.state_dict()[name]) for name, value in model.model.state_dict().items()
    )
    saved = load_file(tmp_path / "model.safetensors")
    assert (
        sum(value.shape == model.lm_head.weight.shape for value in saved.values()) == 3 - is_shared - is_tied
    )
    with torch.device("meta"):
        planned = type(model)(model.config)
    assert sum(p.numel() for p in planned.parameters()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_what_is_shared_grows_and_shrinks_together(is_tied, shared, builder, tmp_path):
    fields = {"tie_word_embeddings": is_tied, "share_encoder_decoder_embeddings": shared, "head_bias": True}
    model = builder("seq2seq", **fields)
    ids = torch.randint(3, 40, (1, 5))
    before = model(input_ids=ids, decoder_input_ids=ids).logits
    for size in (80, 50):
        model.resize_token_embeddings(size)
        source, target, head = tables_of(model)
        assert len(source) == len(target) == len(head) == model.lm_head.out_features == size
        assert (source is target, head is target) == (shared, is_tied)
        after = model(input_ids=ids, decoder_input_ids=ids).logits
        torch.testing.assert_close(after[..., :50], before[..., :50], rtol=1e-4, atol=1e-5)
        encoder = model.get_encoder()
        encoder.save_pretrained(tmp_path)
        alone = type(encoder).from_pretrained(tmp_path)
        assert torch.equal(alone.get_input_embeddings().weight, source)


def test_a_head_needs_a_way_to_the_vectors_it_is_tied_to(member, builder):
    with pytest.raises(ValueError, match=r"embedding_size \(20\).*hidden_size \(32\).*head_transform=True"):
        builder(member, embedding_size=20)
    model = builder(member, embedding_size=20, tie_word_embeddings=False)
    assert model.lm_head.weight.shape == (61, 32)
    assert model.get_input_embeddings().weight.shape == (61, 20)


@pytest.mark.parametrize(
    ("variant", "dtype"),
    corners(
        VARIANTS,
        (torch.bfloat16, torch.float16),
        keep=lambda variant, dtype: dtype == torch.bfloat16 or variant in ("modern", "bert", "t5"),
    ),
)
def test_half_precision_loads_and_runs(member, variant, dtype, builder, tmp_path):
    model = builder(member, variant)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=dtype)
    ids = torch.randint(3, 61, (2, 5))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if member == "seq2seq" else {})
    logits = loaded(**inputs).logits
    assert logits.dtype == dtype
    expected = model(**inputs).logits
    assert (logits.float() - expected).norm() / expected.norm() < 0.1


def test_shards_come_back_whole(member, builder, tmp_path):
    model = builder(member)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = type(model).from_pretrained(tmp_path)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("variant", ["modern", "bert", "unordered", "electra"])
def test_the_vocabulary_can_grow_and_shrink(member, variant, builder):
    model = builder(member, variant)
    ids = torch.randint(3, 40, (1, 5))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if member == "seq2seq" else {})
    before = model(**inputs).logits
    for size in (80, 50):
        model.resize_token_embeddings(size)
        after = model(**inputs).logits
        assert after.shape[-1] == size == model.config.vocab_size
        torch.testing.assert_close(after[..., :50], before[..., :50], rtol=1e-4, atol=1e-5)
        if member == "seq2seq":
            assert model.get_decoder().get_input_embeddings().num_embeddings == size
        if variant != "unordered":
            assert model.lm_head.weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("variant", ["bert", "llama", "qwen", "primer"])
def test_a_configuration_comes_back(member, variant, builder, tmp_path):
    config = builder(member, variant).config
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is type(config)
    assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict() | {"_name_or_path": ""}


SERIALIZED = Path(__file__).with_name("serialized_configurations.json")


@pytest.mark.parametrize("kind", CONFIGURATIONS, ids=lambda kind: kind.model_type)
def test_what_a_configuration_writes_is_what_it_has_always_written(kind):
    written = json.loads(kind().to_json_string())
    del written["transformers_version"]
    assert written == json.loads(SERIALIZED.read_text(encoding="utf-8"))[kind.model_type]


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_folder_without_code_speaks_of_none(kind, tmp_path):
    """Every configuration can be asked for `auto_map`, as TRL does; what one is told, others do not know."""
    config, other = kind(), kind()
    assert config.auto_map == {}
    config.auto_map["AutoModel"] = "mine.Model"
    assert other.auto_map == {}
    for each, expected in ((config, {"AutoModel": "mine.Model"}), (other, {})):
        each.save_pretrained(tmp_path)
        assert json.loads((tmp_path / "config.json").read_text()).get("auto_map", {}) == expected
        assert kind.from_pretrained(tmp_path).auto_map == expected
        assert ("auto_map" in each.to_dict()) == bool(expected)


TIED = ["modern", "unordered", "electra"]
"""With one table of token vectors for all, a head of its own, and narrow vectors."""


def assert_same_weights(left, right) -> None:
    expected = right.state_dict()
    assert left.state_dict().keys() == expected.keys()
    for name, value in left.state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("variant", TIED)
def test_ties_are_exactly_those_that_are_declared(architecture, variant, task_builder):
    model = task_builder(architecture, variant)
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    tied = [group for group in names.values() if len(group) > 1]
    declared = model.all_tied_weights_keys
    assert set().union(*tied) == {*declared, *declared.values()}
    assert all({declared.get(name, name) for name in group} & group for group in tied)


@pytest.mark.parametrize("variant", TIED)
def test_a_file_holds_each_weight_once(architecture, variant, task_builder, tmp_path):
    model = task_builder(architecture, variant)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert sum(value.numel() for value in saved.values()) == model.num_parameters()
    assert not saved.keys() & model.all_tied_weights_keys.keys()
    assert_same_weights(architecture.from_pretrained(tmp_path), model)


@pytest.mark.parametrize("variant", TIED)
def test_torch_saves_and_loads_as_well(architecture, variant, task_builder, examples, tmp_path):
    model, inputs = task_builder(architecture, variant), examples(architecture)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    torch.save(model, tmp_path / "model.pt")
    other = architecture(model.config).eval()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for loaded in (other, torch.load(tmp_path / "model.pt", weights_only=False)):
        assert_same_weights(loaded, model)
        assert torch.equal(loaded(**inputs)[0], model(**inputs)[0])


def test_weights_need_not_lie_in_order(member, builder, tmp_path):
    model = builder(member, "unordered")
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data = parameter.data.T.contiguous().T
    assert not model.get_input_embeddings().weight.is_contiguous()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in expected.items())


def test_a_tied_model_may_part_and_go_on(member, builder, tmp_path):
    """The vectors of tokens become those of the head, and are its own from then on."""
    model = builder(member)
    model.save_pretrained(tmp_path / "tied")
    state = dict(model.state_dict())
    parted = type(model)(builder(member, tie_word_embeddings=False).config)
    parted.load_state_dict(state)
    parted.save_pretrained(tmp_path / "parted")
    loaded = type(model).from_pretrained(tmp_path / "parted")
    assert loaded.lm_head.weight is not loaded.get_input_embeddings().weight
    assert_same_weights(loaded, model)


def test_a_head_takes_a_checkpoint_without_one_and_says_what_is_new(architecture, task_builder, tmp_path):
    model = task_builder(architecture)
    if model.base_model is model:
        pytest.skip("it has no head")
    model.base_model.save_pretrained(tmp_path)
    loaded, report = architecture.from_pretrained(tmp_path, output_loading_info=True)
    heads = {name for name in model.state_dict() if not name.startswith("model.")}
    assert report["missing_keys"] == heads - model.all_tied_weights_keys.keys()
    assert not report["unexpected_keys"]
    assert_same_weights(loaded.base_model, model.base_model)


def test_a_model_without_head_takes_a_checkpoint_with_one(architecture, task_builder, tmp_path):
    model = task_builder(architecture)
    model.save_pretrained(tmp_path)
    base, report = type(model.base_model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert_same_weights(base, model.base_model)


def test_a_file_may_name_what_is_not_there(member, builder, tmp_path):
    model = builder(member)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    name = next(name for name in saved if "q_proj" in name)
    save_file(
        {"of_nobody": torch.ones(2)} | {key: value for key, value in saved.items() if key != name},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    _, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert report["unexpected_keys"] == {"of_nobody"}
    assert report["missing_keys"] == {name}


@pytest.mark.parametrize("variant", TIED)
def test_token_vectors_can_be_exchanged(architecture, variant, task_builder, examples):
    model = task_builder(architecture, variant)
    table = model.get_input_embeddings()
    assert isinstance(table, nn.Embedding)
    other = nn.Embedding.from_pretrained(table.weight.detach().flip(0))
    model.set_input_embeddings(other)
    assert model.get_input_embeddings() is other
    model.tie_weights()
    if model.config.tie_word_embeddings and (head := model.get_output_embeddings()) is not None:
        assert head.weight is model.get_input_embeddings().weight
    model(**examples(architecture))


def test_the_type_of_the_weights_is_remembered(architecture, task_builder, tmp_path):
    task_builder(architecture).to(torch.bfloat16).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert architecture.from_pretrained(tmp_path).dtype == torch.bfloat16
    assert architecture.from_pretrained(tmp_path, dtype=torch.float32).dtype == torch.float32
    assert architecture.from_pretrained(tmp_path, torch_dtype=torch.float16).dtype == torch.float16


def test_models_are_loaded_where_others_are_made(architecture, task_builder, tmp_path):
    model = task_builder(architecture)
    model.save_pretrained(tmp_path)
    with torch.device("cpu"):
        assert_same_weights(architecture.from_pretrained(tmp_path), model)


def test_a_model_for_pretraining_is_one_for_masks_without_unexpected_keys(tmp_path, builder):
    from tercet.modeling import TercetEncoderForMaskedLM, TercetEncoderForPreTraining

    config = builder("encoder", "modern").config
    TercetEncoderForPreTraining(config).save_pretrained(tmp_path)
    architecture: Any = TercetEncoderForMaskedLM
    _, report = architecture.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
