"""`tercet export --onnx`: graphs that onnxruntime computes as the model does."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForSequenceClassification,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.__main__ import main
from tercet.modeling import TercetEncoderForMultipleChoice, TercetEncoderForQuestionAnswering
from tercet.modeling.saved.sentence_vectors import SentenceVectors, find_vectors, sentence_files, write_files
from tercet.tools.import_export import onnx_graphs

runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")

SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
ENCODER, DECODER, SEQ2SEQ = (
    (TercetEncoderConfig, TercetEncoderForSequenceClassification),
    (TercetDecoderConfig, TercetDecoderForCausalLM),
    (TercetSeq2SeqConfig, TercetSeq2SeqForConditionalGeneration),
)


@pytest.fixture
def saved(tokenizer, tmp_path: Path):
    def save(config_class, model_class) -> Path:
        torch.manual_seed(0)
        model_class(config_class(**SIZES)).save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return save


def export(source: Path, *options: str) -> Path:
    target = source.with_name("graphs")
    assert main(["export", str(source), str(target), "--onnx", *options]) == 0
    return target


def session(path: Path):
    return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_graph_of_a_classifier_computes_its_logits_for_other_batches(saved, capsys) -> None:
    source = saved(*ENCODER)
    folder = export(source, "--int8")
    model = TercetEncoderForSequenceClassification.from_pretrained(source).eval()
    ids = torch.randint(5, 61, (3, 11))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    expected = model(ids, attention_mask=mask).logits.detach().numpy()
    inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    graph = session(folder / "model.onnx")
    names = {each.name for each in graph.get_inputs()}
    inputs |= {"token_type_ids": np.zeros_like(inputs["input_ids"])} if "token_type_ids" in names else {}
    (logits,) = graph.run(["logits"], inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    (coarse,) = session(folder / "model_int8.onnx").run(["logits"], inputs)
    np.testing.assert_allclose(coarse, expected, atol=0.05)
    assert np.abs(coarse - expected).max() > 0  # integers are coarser
    alone = {name: x[1:2, :6] for name, x in inputs.items()}
    (of_text,) = session(folder / "model_int8.onnx").run(["logits"], alone)
    np.testing.assert_allclose(of_text, coarse[1:2], atol=1e-5)
    facts = json.loads((folder / "certificate.json").read_text())
    held = [(each["file"], each["holds"]) for each in facts["graphs"]]
    assert held == [("model.onnx", True), ("model_int8.onnx", False)]
    assert all(each["alone"] < 1e-5 for each in facts["graphs"])
    assert "holds" not in facts  # of the folder as a whole
    assert json.loads((folder / "config.json").read_text())["model_type"] == "tercet_encoder"
    assert (folder / "tokenizer.json").exists()
    assert "| model_int8.onnx |" in capsys.readouterr().out


@pytest.mark.slow
def test_graphs_of_a_translator_write_what_it_writes(saved) -> None:
    source = saved(*SEQ2SEQ)
    folder = export(source)
    model = TercetSeq2SeqForConditionalGeneration.from_pretrained(source).eval()
    ids, mask = torch.randint(5, 61, (1, 9)), torch.ones(1, 9, dtype=torch.long)
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False, num_beams=1)[0]
    inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    (states,) = session(folder / "encoder_model.onnx").run(None, inputs)
    decoder, written = session(folder / "decoder_model.onnx"), [int(expected[0])]
    while len(written) < len(expected):
        (logits,) = decoder.run(
            ["logits"],
            {
                "input_ids": np.array([written]),
                "encoder_hidden_states": states,
                "encoder_attention_mask": inputs["attention_mask"],
            },
        )
        written.append(int(logits[0, -1].argmax()))
    assert written == expected.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "outputs"),
    [
        (DECODER, ["logits"]),
        ((TercetEncoderConfig, TercetEncoderForQuestionAnswering), ["start_logits", "end_logits"]),
        ((TercetEncoderConfig, TercetEncoderForMultipleChoice), ["logits"]),
    ],
)
def test_graphs_have_the_outputs_of_the_head(saved, kind, outputs) -> None:
    folder = export(saved(*kind))
    assert [each.name for each in session(folder / "model.onnx").get_outputs()] == outputs


def test_generation_defaults_and_how_vectors_are_made_go_along(saved, monkeypatch) -> None:
    source = saved(*DECODER)
    GenerationConfig(eos_token_id=[3, 5], repetition_penalty=1.05).save_pretrained(source)
    vectors = SentenceVectors("mean", "query: ", "passage: ", max_length=32)
    write_files(sentence_files(vectors, 16), source)
    monkeypatch.setattr(onnx_graphs, "write_graphs", lambda *arguments, **options: [])
    target = source.with_name("graphs")
    onnx_graphs.export_graphs(str(source), str(target))
    written = GenerationConfig.from_pretrained(target)
    assert (written.eos_token_id, written.repetition_penalty) == ([3, 5], 1.05)
    assert find_vectors(target, "") == find_vectors(source, "")


@pytest.mark.slow
def test_a_graph_that_differs_leaves_nothing_behind(saved, monkeypatch, capsys) -> None:
    source = saved(*ENCODER)
    monkeypatch.setattr(onnx_graphs, "TOLERANCE", 0.0)
    assert main(["export", str(source), str(source.with_name("graphs")), "--onnx"]) == 2
    assert "model.onnx computes outputs that differ" in capsys.readouterr().err
    assert not source.with_name("graphs").exists()


@pytest.mark.slow
def test_what_is_no_number_is_no_equal_output(saved, capsys) -> None:
    source = saved(*ENCODER)
    model = TercetEncoderForSequenceClassification.from_pretrained(source)
    torch.nn.init.constant_(next(iter(model.classifier.parameters())), torch.nan)
    graph = onnx_graphs.Graph(
        "model", model.eval(), [onnx_graphs.inputs_of(model, [[5, 6, 7], [8, 9]])], ["logits"]
    )
    path = source.with_name("model.onnx")
    onnx_graphs.trace(graph, path)
    assert onnx_graphs.measure(graph, path).difference == float("inf")


def test_missing_packages_are_named(saved, monkeypatch, capsys) -> None:
    source = saved(*ENCODER)
    monkeypatch.setattr(onnx_graphs, "find_spec", lambda name: None)
    assert main(["export", str(source), str(source.with_name("graphs")), "--onnx"]) == 2
    assert "pip install 'tercet[onnx]'" in capsys.readouterr().err


def test_integers_without_graphs_are_refused(saved, capsys) -> None:
    source = saved(*ENCODER)
    assert main(["export", str(source), str(source.with_name("graphs")), "--int8"]) == 2
    assert "--int8 is about graphs of ONNX: add --onnx" in capsys.readouterr().err
