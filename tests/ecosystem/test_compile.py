"""`torch.compile`: the whole forward pass is one graph, for batches of any shape, and computes the same."""

import shutil

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from ..corners import corners
from ..tolerances import CLOSE

MEMBERS = ("encoder", "decoder", "seq2seq")


@pytest.fixture(autouse=True)
def no_graphs():
    """Forget the graphs of other tests."""
    torch._dynamo.reset()


def gradients(model, inputs) -> dict[str, torch.Tensor]:
    """Take the gradients of the loss of a batch, where the labels are what is read."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    labels = inputs.get("decoder_input_ids", ids.masked_fill(mask == 0, -100))
    model.zero_grad()
    model(**inputs, labels=labels).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("member", corners(MEMBERS, keep=lambda member: member == "encoder"))
@pytest.mark.ecosystem("torch", "`torch.compile(fullgraph=True)`: the gradients")
def test_a_compiled_model_learns_the_same(member, build, batch_for):
    model, inputs = build(member).train(), batch_for(member)
    expected = gradients(model, inputs)
    model.compile(fullgraph=True, backend="aot_eager")
    assert_close(gradients(model, inputs), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("member", "layout"),
    corners(MEMBERS, ("modern", "biased"), keep=lambda *point: point == ("decoder", "biased")),
    indirect=["layout"],
)
@pytest.mark.ecosystem("torch", "`torch.compile(fullgraph=True, dynamic=True)`: one graph for all shapes")
def test_one_graph_reads_batches_of_all_shapes(member, layout, build, batch_for):
    model, counter = build(member, **layout), CompileCounter()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    with torch.no_grad():
        for shape in [(2, 7), (3, 9), (5, 12)]:
            inputs = batch_for(member, *shape)
            assert_close(compiled(**inputs).logits, model(**inputs).logits, **CLOSE)
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's default compiler needs a C++ compiler")
@pytest.mark.ecosystem("torch", "`torch.compile()` by the default compiler")
def test_the_default_compiler_computes_the_same(member, build, batch_for):
    model, inputs = build(member), batch_for(member)
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)(**inputs).logits
        assert_close(compiled, model(**inputs).logits, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["biased"], indirect=True)
@pytest.mark.ecosystem("torch", "`torch.compile(fullgraph=True)` with a `StaticCache`", member="decoder")
def test_a_compiled_step_needs_no_positions(layout, build, batch_for):
    """A static cache tells its length by a tensor, whose value no graph can ask for."""
    model, ids = build("decoder", **layout), batch_for("decoder")["input_ids"]
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    cache = StaticCache(config=model.config, max_cache_len=16)
    with torch.no_grad():
        steps = [
            compiled(input_ids=part, past_key_values=cache).logits for part in ids.split([5, 1, 1], dim=1)
        ]
        assert_close(torch.cat(steps, dim=1), model(input_ids=ids).logits, **CLOSE)


@pytest.mark.parametrize("layout", ["biased"], indirect=True)
@pytest.mark.ecosystem("torch", "`torch.compile(fullgraph=True)` with a `StaticCache`", member="seq2seq")
def test_a_compiled_step_reads_the_source(layout, build, batch_for):
    model, inputs = build("seq2seq", **layout), batch_for("seq2seq")
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    config = model.config.get_text_config(decoder=True)
    cache = EncoderDecoderCache(StaticCache(config=config, max_cache_len=16), DynamicCache(config=config))
    with torch.no_grad():
        expected = model(**inputs).logits
        target = inputs.pop("decoder_input_ids")
        source = {
            "encoder_outputs": model.get_encoder()(**inputs),
            "attention_mask": inputs["attention_mask"],
        }
        steps = [
            compiled(**source, decoder_input_ids=part, past_key_values=cache).logits
            for part in target.split([4, 1, 1], dim=1)
        ]
        assert_close(torch.cat(steps, dim=1), expected, **CLOSE)
