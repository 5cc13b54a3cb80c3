"""Models that leave Python: a graph of torch, or of ONNX, which reads batches of any shape."""

import numpy as np
import pytest
import torch
from torch.export import Dim
from torch.testing import assert_close

from tercet.modeling import (
    TercetDecoderForMaskedLM,
    TercetEncoderForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
)
from tercet.modeling.heads.seq2seq_tasks import TercetSeq2SeqTaskModel

from ..architectures import ARCHITECTURES

SHAPES = [(3, 12), (1, 5)]
"""Other batches than the one with which a graph is made."""


LAYOUTS = pytest.mark.parametrize(
    "layout", ["modern", pytest.param("biased", marks=pytest.mark.slow)], indirect=True
)
MEMBERS = pytest.mark.parametrize(
    "member",
    ["decoder", *(pytest.param(each, marks=pytest.mark.slow) for each in ("encoder", "seq2seq"))],
    indirect=True,
)


def axes(inputs) -> dict:
    """Leave the size of a batch open, and the lengths of its sources and targets."""
    size, length, target_length = map(Dim, ("size", "length", "target_length"))
    return {name: {0: size, 1: target_length if "decoder" in name else length} for name in inputs}


def real(logits, inputs) -> np.ndarray:
    """Keep logits of real tokens: nobody promises anything about pads, which may see nothing at all."""
    mask = inputs["attention_mask"].bool().numpy()
    return np.asarray(logits) if "decoder_input_ids" in inputs else np.asarray(logits)[mask]


@torch.no_grad()
@LAYOUTS
@MEMBERS
@pytest.mark.ecosystem("torch", "`torch.export.export`, saved and loaded")
def test_an_exported_program_computes_the_same(member, layout, build, batch_for, tmp_path):
    model, inputs = build(member, **layout, use_cache=False), batch_for(member)
    program = torch.export.export(model, (), inputs, dynamic_shapes=axes(inputs))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for shape in SHAPES:
        inputs = batch_for(member, *shape)
        assert_close(loaded(**inputs)["logits"], model(**inputs).logits, rtol=1e-5, atol=1e-6)


QUICK = [
    TercetEncoderForSequenceClassification,
    TercetDecoderForMaskedLM,
    TercetSeq2SeqForTokenClassification,
]
SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ARCHITECTURES if each not in QUICK]


@torch.no_grad()
@pytest.mark.parametrize("has_mask", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("architecture", [*QUICK, *SLOW])
def test_every_head_reads_batches_of_any_size_and_length(architecture, has_mask, build, batch_for):
    member = architecture.config_class.model_type.removeprefix("tercet_")
    model = build(architecture, num_hidden_layers=1, use_cache=False)

    def inputs_for(*shape) -> dict[str, torch.Tensor]:
        inputs = batch_for(member, *shape)
        if not has_mask:
            del inputs["attention_mask"]
        if issubclass(architecture, TercetSeq2SeqTaskModel):
            inputs.pop("decoder_input_ids")  # the decoder reads the source again
        if architecture.__name__.endswith("MultipleChoice"):
            inputs = {name: torch.stack([ids, ids.flip(0)], dim=1) for name, ids in inputs.items()}
        return inputs

    inputs = inputs_for(2, 7)
    shapes = {
        name: {0: of_each[0], ids.dim() - 1: of_each[1]}
        for (name, ids), of_each in zip(inputs.items(), axes(inputs).values(), strict=True)
    }
    program = torch.export.export(model, (), inputs, dynamic_shapes=shapes).module()
    for shape in SHAPES:
        found, expected = program(**inputs_for(*shape)), model(**inputs_for(*shape))
        for name, value in expected.items():
            assert_close(found[name], value, rtol=1e-4, atol=1e-5)


@torch.no_grad()  # With gradients torch 2.13 takes another kernel for biases, and mistakes its strides.
@LAYOUTS
@MEMBERS
@pytest.mark.filterwarnings("ignore")
@pytest.mark.ecosystem("onnxruntime", "`torch.onnx.export(dynamo=True)`")
def test_onnxruntime_computes_what_torch_does(member, layout, build, batch_for, tmp_path):
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    model, inputs = build(member, **layout, use_cache=False), batch_for(member)
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        model,
        (),
        path,
        kwargs=inputs,
        dynamic_shapes=axes(inputs),
        output_names=["logits"],
        dynamo=True,
        optimize=False,
        verbose=False,
    )
    session = runtime.InferenceSession(path)
    for shape in SHAPES:
        inputs = batch_for(member, *shape)
        (logits,) = session.run(["logits"], {name: ids.numpy() for name, ids in inputs.items()})
        expected = model(**inputs).logits
        np.testing.assert_allclose(real(logits, inputs), real(expected, inputs), rtol=1e-3, atol=1e-4)


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.ecosystem("transformers", "`OnnxExporter().export(...)`")
def test_a_graph_of_transformers_exporter_computes_the_same(member, build, batch_for):
    pytest.importorskip("transformers.exporters.runners", reason="transformers runs its graphs from 5.23 on")
    from transformers.exporters.configs import OnnxConfig
    from transformers.exporters.exporter_onnx import OnnxExporter

    model, inputs = build(member, use_cache=False), batch_for(member)
    graph = OnnxExporter().export(model, inputs, config=OnnxConfig(dynamic=True))
    for shape in SHAPES:
        inputs = batch_for(member, *shape)
        found = graph(**inputs).logits
        assert_close(real(found, inputs), real(model(**inputs).logits, inputs), rtol=1e-4, atol=1e-4)
