"""Weights before anything is learned: however a model comes about, each is drawn as its kind is."""

import pytest
import torch
from torch import nn

from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetDecoderForSequenceClassification,
    TercetDecoderModel,
    TercetEncoderForMaskedLM,
    TercetEncoderForSequenceClassification,
    TercetEncoderModel,
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqModel,
)

from ..corners import corners

BASES = {"encoder": TercetEncoderModel, "decoder": TercetDecoderModel, "seq2seq": TercetSeq2SeqModel}
WITH_HEAD = {
    "encoder": TercetEncoderForMaskedLM,
    "decoder": TercetDecoderForCausalLM,
    "seq2seq": TercetSeq2SeqForConditionalGeneration,
}


@pytest.mark.parametrize(
    ("variant", "origin"),
    corners(
        ("modern", "bert", "t5", "electra", "qwen", "primer", "gated"),
        ("built", "loaded"),
        keep=lambda variant, origin: origin == "built" or variant in ("bert", "gated"),
    ),
)
def test_without_a_range_every_weight_is_zero_or_one(architecture, variant, origin, task_builder):
    """Also what a checkpoint lacks, and all is lacking in this one."""
    config = task_builder(architecture, variant, initializer_range=1e-12).config
    torch.manual_seed(0)
    missing = {"pretrained_model_name_or_path": None, "config": config, "state_dict": {}}
    model = architecture(config) if origin == "built" else architecture.from_pretrained(**missing)
    for name, module in model.named_modules():
        of_weight = 1.0 if isinstance(module, nn.LayerNorm | nn.RMSNorm) else 0.0
        for kind, parameter in module.named_parameters(recurse=False):
            expected = of_weight if kind == "weight" else 0.0
            assert (parameter - expected).abs().max() < 1e-9, f"{name}.{kind}"


def test_the_range_is_the_deviation_of_what_is_drawn(architecture, task_builder):
    model = architecture(task_builder(architecture, hidden_size=128, initializer_range=0.5).config)
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.Embedding):
            continue
        depth = 2 * 2 if name.endswith(("o_proj", "down_proj")) else 1
        deviation = 0.5 / depth**0.5
        count = module.weight.numel()
        assert module.weight.std().item() == pytest.approx(deviation, rel=4 / count**0.5), name
        assert abs(module.weight.mean().item()) < 4 * deviation / count**0.5, name


@pytest.mark.parametrize(
    "task",
    [
        TercetEncoderForSequenceClassification,
        TercetDecoderForSequenceClassification,
        TercetSeq2SeqForSequenceClassification,
    ],
)
def test_weights_of_another_shape_are_drawn_anew_if_that_is_allowed(task, task_builder, examples, tmp_path):
    model = task_builder(task, num_labels=2)
    model.save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        task.from_pretrained(tmp_path, num_labels=40)
    loaded, report = task.from_pretrained(
        tmp_path, num_labels=40, ignore_mismatched_sizes=True, output_loading_info=True
    )
    another = {name for name, *_ in report["mismatched_keys"]}
    assert another == {name for name, value in loaded.state_dict().items() if value.shape[0] == 40}
    for name, value in loaded.state_dict().items():
        assert name in another or torch.equal(value, model.state_dict()[name]), name
    deviation = model.config.initializer_range
    assert loaded.classifier.out_proj.weight.std().item() == pytest.approx(deviation, rel=0.1)
    loaded(**examples(task)).loss.backward()


ZERO = {"zero_init_residual": True, "initializer_range": 0.3}


def sublayers_of(model) -> list[nn.Module]:
    """List what adds to the residual stream."""
    kinds = ("self_attention", "cross_attention", "feed_forward")
    return [module for name, module in model.named_modules() if name.endswith(kinds)]


def test_sublayers_that_start_at_zero_leave_the_stream_as_it_is(member, variant, task_builder, examples):
    """So Fixup begins (Zhang et al., 2019, section 3), whatever the place of the norm."""
    architecture = BASES[member]
    model = architecture(task_builder(architecture, variant, **ZERO).config).eval()
    results = []
    for sublayer in sublayers_of(model):
        sublayer.register_forward_hook(lambda _, __, result: results.append(result))
    model(**examples(architecture))
    assert len(results) == {"encoder": 4, "decoder": 4, "seq2seq": 10}[member]
    assert not any((result[0] if isinstance(result, tuple) else result).any() for result in results)


def test_only_the_last_layers_of_sublayers_start_otherwise(architecture, task_builder):
    torch.manual_seed(0)
    usual = architecture(task_builder(architecture).config)
    torch.manual_seed(0)
    zero = architecture(task_builder(architecture, **ZERO).config)
    for (name, expected), found in zip(usual.named_parameters(), zero.parameters(), strict=True):
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            assert expected.any()
            assert not found.any(), name
        else:
            assert torch.equal(found, expected), name


def test_a_few_steps_reach_every_weight_of_what_starts_at_zero(member, task_builder, examples):
    """The first step moves what is zero, the next what is before it; a third reaches into the encoder."""
    architecture = WITH_HEAD[member]
    model = architecture(task_builder(architecture, **ZERO).config).train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3 if member == "seq2seq" else 2):
        model(**examples(architecture)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def test_weights_that_are_loaded_do_not_become_zero(member, task_builder, tmp_path):
    architecture = BASES[member]
    model = task_builder(architecture)
    model.save_pretrained(tmp_path)
    assert "zero_init_residual" not in (tmp_path / "config.json").read_text()
    loaded = architecture.from_pretrained(tmp_path, zero_init_residual=True)
    assert loaded.config.zero_init_residual
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
    loaded.save_pretrained(tmp_path / "again")
    assert architecture.from_pretrained(tmp_path / "again").config.zero_init_residual
