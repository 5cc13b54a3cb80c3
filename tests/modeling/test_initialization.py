"""Weights before anything is learned: however a model comes about, each is drawn as its kind is."""

import pytest
import torch
from torch import nn

from tercet.modeling import (
    TercetDecoderForSequenceClassification,
    TercetEncoderForSequenceClassification,
    TercetSeq2SeqForSequenceClassification,
)


@pytest.mark.parametrize("origin", ["built", "loaded"])
@pytest.mark.parametrize("variant", ["modern", "bert", "t5", "electra", "qwen"])
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
