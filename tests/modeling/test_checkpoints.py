"""Files and memory: what a checkpoint may hold or lack, and what stands for the same weight."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

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


@pytest.mark.parametrize("variant", ["unordered", "bert"])
def test_untied_and_biased_heads_grow_with_the_vocabulary(member, variant, builder):
    model = builder(member, variant, head_bias=True, tie_word_embeddings=False)
    head = model.lm_head.weight.detach().clone()
    model.resize_token_embeddings(70)
    assert model.lm_head.weight.shape[0] == model.lm_head.bias.shape[0] == model.config.vocab_size == 70
    assert torch.equal(model.lm_head.weight[:61], head)
    ids = torch.full((1, 3), 69)
    model(input_ids=ids, labels=ids).loss.backward()


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
