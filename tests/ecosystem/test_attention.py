"""Attention kernels: chosen when a model is built or loaded, or later, or brought along, they agree."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from ..tolerances import CLOSE


def kernels_of(model) -> set[str]:
    """Name the kernels of a model, its stacks and its attention modules."""
    return {module.config._attn_implementation for module in model.modules() if hasattr(module, "config")}


def read(outputs, batch) -> torch.Tensor:
    """Keep logits of real tokens."""
    return outputs.logits if "decoder_input_ids" in batch else outputs.logits[batch["attention_mask"].bool()]


@pytest.mark.ecosystem("transformers", '`attn_implementation="eager"` and `"sdpa"`')
def test_kernels_agree_however_they_are_chosen(member, layout, build, batch_for, tmp_path):
    model, batch = build(member, **layout), batch_for(member)
    expected = read(model(**batch), batch)
    model.save_pretrained(tmp_path)
    changed = build(member, **layout)
    changed.set_attn_implementation("eager")
    for other in (
        build(member, **layout, attn_implementation="eager"),
        type(model).from_pretrained(tmp_path, attn_implementation="eager"),
        changed,
    ):
        assert kernels_of(other) == {"eager"}
        assert_close(read(other(**batch), batch), expected, **CLOSE)
    assert kernels_of(model) == {"sdpa"}


@pytest.mark.slow  # it compiles
@pytest.mark.ecosystem("transformers", '`attn_implementation="flex_attention"`')
@pytest.mark.parametrize("layout", ["classic", "sliding"], indirect=True)
def test_flex_attention_reads_what_sdpa_does(member, layout, build, batch_for):
    """It wants heads of 16 channels, and on a CPU no gradient."""
    model, batch = build(member, **layout, head_dim=16), batch_for(member)
    expected = read(model(**batch), batch)
    model.set_attn_implementation("flex_attention")
    with torch.no_grad():
        assert_close(read(model(**batch), batch), expected, **CLOSE)


@pytest.mark.ecosystem("transformers", "`output_attentions=True` under every kernel")
@pytest.mark.parametrize("kernel", ["eager", "sdpa", "flex_attention"])
def test_attentions_are_those_of_the_definition(member, kernel, build, batch_for):
    model, batch = build(member), batch_for(member)
    model.set_attn_implementation("eager")
    expected = model(**batch, output_attentions=True)
    model.set_attn_implementation(kernel)
    found = model(**batch, output_attentions=True)
    for prefix in ("encoder_", "decoder_", "cross_") if member == "seq2seq" else ("",):
        name = f"{prefix}attentions"
        assert_close(found[name], expected[name], **CLOSE)
        for weights in found[name]:  # (B, H, T, S)
            assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.ecosystem("transformers", "`AttentionInterface.register`")
def test_kernels_can_be_brought_along(member, layout, build, batch_for):
    model, batch = build(member, **layout), batch_for(member)
    expected, calls = read(model(**batch), batch), []

    def kernel(module, query, key, value, attention_mask, *, scaling, **kwargs):
        calls.append(module)
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
        scores = query @ key.mT * scaling
        scores = scores if attention_mask is None else scores + attention_mask
        return (scores.softmax(-1) @ value).transpose(1, 2), None

    AttentionInterface.register("brought_along", kernel)
    AttentionMaskInterface.register("brought_along", eager_mask)
    model.set_attn_implementation("brought_along")
    assert_close(read(model(**batch), batch), expected, **CLOSE)
    assert len(calls) == (6 if member == "seq2seq" else 2)


def test_kernels_without_biases_are_refused(member, layouts, build):
    with pytest.raises(ValueError, match="does not support the bias"):
        build(member, **layouts["biased"]).set_attn_implementation("flex_attention")
