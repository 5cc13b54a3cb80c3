"""A model that is wrong in one respect is found out by the examination of that, and by no other."""

from functools import partial
from inspect import signature

import pytest
import torch
from transformers import BertForMaskedLM, BertModel
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.models.bart import modeling_bart
from transformers.models.bert import modeling_bert
from transformers.models.llama import modeling_llama

from tercet.modeling import TercetDecoderForMaskedLM, TercetEncoderModel, sequences
from tercet.modeling.attention import patterns
from tercet.modeling.attention.patterns import FullAttention
from tercet.tools.doctor.diagnosis import diagnose

from .conftest import POSITIONS, WORDS

DENSE = "cls.predictions.transform.dense.weight"
EMBEDDINGS = "bert.embeddings.word_embeddings.weight"


ONES = torch.ones(2)


def untie(tensors):
    """Give the head weights of its own."""
    tensors["lm_head.weight"] = torch.randn(61, 32)


def spoil_row(tensors):
    """Let two numbers be none."""
    tensors[EMBEDDINGS][3, 5:7] = float("nan")


def finding_of(folder, name):
    return diagnose(str(folder)).findings[name]


@pytest.mark.parametrize(
    ("kind", "edit", "found", "measured"),
    [
        ("bert", lambda tensors: tensors.pop(DENSE), {"missing tensors": "failed"}, DENSE),
        ("decoder", lambda tensors: tensors.update(other=ONES), {"unexpected tensors": "warning"}, "other"),
        ("gpt2", untie, {"tied weights": "failed"}, "two tensors"),
        ("t5", untie, {}, ""),
        ("bert", spoil_row, {"finite weights": "failed"}, f"{EMBEDDINGS} (2 of 1,952)"),
    ],
)
def test_wrong_weights_are_found(kind, edit, found, measured, folder_of, edit_weights, complaints):
    folder = folder_of(kind)
    edit_weights(folder, edit)
    assert complaints(folder) == found
    assert all(measured in finding_of(folder, name).measured for name in found)


def test_a_tensor_of_another_shape_is_found(folder_of, edit_json, complaints):
    folder = folder_of("bert")
    edit_json(folder / "config.json", max_position_embeddings=48)
    assert complaints(folder) == {"missing tensors": "failed"}
    measured = finding_of(folder, "missing tensors").measured
    assert "position_embeddings.weight is (32, 32) in the file and (48, 32) by config.json" in measured


@pytest.mark.parametrize(
    ("rows", "found"), [(60, {"vocabulary": "failed"}), (61, {}), (128, {}), (129, {"spare rows": "warning"})]
)
def test_an_embedding_matrix_of_another_size_is_found(rows, found, folder_of, complaints):
    assert complaints(folder_of("encoder", vocab_size=rows)) == found


@pytest.mark.parametrize(
    ("kind", "options", "found"),
    [
        ("bert", {"mask_token": None}, {"mask token": "failed"}),
        ("gpt2", {"mask_token": None}, {}),
        ("bert_classifier", {"mask_token": None}, {}),
        ("decoder", {"pad_token": None}, {"pad token": "warning"}),
        ("llama", {"pad_token": "</s>"}, {"end and padding": "warning"}),
        ("gpt2", {"model_max_length": POSITIONS + 1}, {"longest input": "failed"}),
        ("gpt2", {"model_max_length": None}, {"longest input": "warning"}),
        ("bart", {"padding_side": "left"}, {"left padding": "failed"}),
    ],
)
def test_a_tokenizer_that_does_not_suit_is_found(kind, options, found, folder_of, complaints):
    fields = {"pad_token_id": 2} if "end and padding" in found else {}
    assert complaints(folder_of(kind, tokenizer=options, **fields)) == found


def test_special_ids_that_disagree_are_found_and_one_of_several_is_enough(folder_of, edit_json, complaints):
    folder = folder_of("decoder")
    edit_json(folder / "generation_config.json", eos_token_id=7)
    assert complaints(folder) == {"special ids": "failed"}
    assert finding_of(folder, "special ids").measured == "eos: config 2, generation config 7, tokenizer 2"
    for file in ("config.json", "generation_config.json"):
        edit_json(folder / file, eos_token_id=[2, 7])
    assert not complaints(folder)


def test_special_ids_beyond_the_embedding_matrix_are_found(folder_of, edit_json, complaints):
    folder = folder_of("bart")
    for file in ("config.json", "generation_config.json"):
        edit_json(folder / file, decoder_start_token_id=61)
    assert complaints(folder) == {"special ids": "failed"}
    assert "decoder_start outside the embedding matrix" in finding_of(folder, "special ids").measured


@pytest.mark.parametrize(("pad", "length"), [("<pad>", POSITIONS), ("<unk>", POSITIONS - 4)])
def test_a_model_whose_positions_begin_behind_the_pad_reads_fewer_tokens(pad, length, folder_of, complaints):
    for longest, expected in ((length, {}), (length + 1, {"longest input": "failed"})):
        tokenizer = {"pad_token": pad, "model_max_length": longest}
        folder = folder_of("roberta", tokenizer=tokenizer, pad_token_id=WORDS.index(pad))
        assert complaints(folder) == expected
    assert finding_of(folder, "longest input").remedy == f"tokenizer.model_max_length = {length}"


@pytest.fixture
def spoil(monkeypatch):
    """Give the function that replaces a model's forward by one that is given it and the inputs."""

    def spoil(model_class, spoilt):
        forward = model_class.forward

        def replaced(model, **inputs):
            return spoilt(partial(forward, model), inputs)

        replaced.__signature__ = signature(forward)
        monkeypatch.setattr(model_class, "forward", replaced)

    return spoil


@pytest.mark.parametrize(
    ("model_class", "side", "column"),
    [(BertModel, "right", 0), (BertModel, "left", -1), (TercetEncoderModel, "right", 0)],
)
def test_pads_that_are_read_are_found(side, column, model_class, folder_of, spoil, complaints):
    def without_mask(forward, inputs):
        if inputs.get("attention_mask", torch.zeros(1, 1))[:, column].all():
            del inputs["attention_mask"]
        return forward(**inputs)

    folder = folder_of("bert" if model_class is BertModel else "encoder")
    spoil(model_class, without_mask)
    assert complaints(folder) == {f"{side} padding": "failed"}


def test_a_model_that_raises_has_failed(folder_of, monkeypatch, complaints):
    folder, forward = folder_of("encoder"), TercetEncoderModel.forward

    def refusing(model, *args, **inputs):
        if model.training:
            raise RuntimeError("no training, please")
        return forward(model, *args, **inputs)

    refusing.__signature__ = signature(forward)
    monkeypatch.setattr(TercetEncoderModel, "forward", refusing)
    assert complaints(folder) == {"causality": "failed"}
    assert finding_of(folder, "causality").measured == "the model raises RuntimeError: no training, please"


@pytest.mark.parametrize(("kind", "module"), [("llama", modeling_llama), ("bart", modeling_bart)])
def test_a_decoder_that_sees_the_future_is_found(kind, module, folder_of, complaints, monkeypatch):
    folder = folder_of(kind)
    mask = partial(create_causal_mask, or_mask_function=lambda batch, head, query, key: key == query + 1)
    monkeypatch.setattr(module, "create_causal_mask", mask)
    assert complaints(folder) == {"causality": "failed"}
    assert "not causal alone, padded, in training" in finding_of(folder, "causality").measured


@pytest.mark.parametrize(
    ("kind", "module", "also"),
    [("bert", modeling_bert, {}), ("encoder", patterns, {"packed documents": "failed"})],
)
def test_an_encoder_that_sees_one_side_only_is_found(kind, module, also, folder_of, complaints, monkeypatch):
    """Packed, our kernel has no mask that could be wrong, so that packed is not as alone."""

    def one_sided(*args, and_mask_function=None, **kwargs):
        sees_past = lambda batch, head, query, key: key <= query  # noqa: E731
        return create_bidirectional_mask(*args, and_mask_function=sees_past, **kwargs)

    folder = folder_of(kind)
    monkeypatch.setattr(module, "create_bidirectional_mask", one_sided)
    assert complaints(folder) == {"causality": "failed"} | also


def test_an_encoder_that_is_causal_only_without_a_mask_is_found(folder_of, monkeypatch):
    """A kernel that gets no mask follows the layer's flag: so a batch of one text was read, and no other."""
    folder, build = folder_of("bert"), BertForMaskedLM.__init__

    def causal(model, *args, **kwargs):
        build(model, *args, **kwargs)
        for module in model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = True

    monkeypatch.setattr(BertForMaskedLM, "__init__", causal)
    measured = finding_of(folder, "causality").measured
    assert measured.endswith("not bidirectional alone")


def test_an_encoder_of_ours_that_is_causal_only_in_training_is_found(folder_of, monkeypatch):
    """Packed kernels, which training takes, ask the layer's pattern."""
    folder = folder_of("encoder")
    monkeypatch.setattr(FullAttention, "allows", lambda self, queries, keys: queries >= keys)
    monkeypatch.setattr(FullAttention, "is_full", lambda self, length: False)
    finding = finding_of(folder, "causality")
    assert finding.verdict == "failed"
    assert "in training" in finding.measured.partition("not bidirectional")[2]


def test_the_bidirectional_reading_of_a_decoder_is_an_encoder(folder_of, edit_json):
    folder = folder_of("decoder")
    edit_json(folder / "config.json", architectures=[TercetDecoderForMaskedLM.__name__])
    finding = finding_of(folder, "causality")
    assert (finding.verdict, finding.measured[:20]) == ("ok", "bidirectional alone,")


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_packed_documents_that_see_each_other_are_found(kind, folder_of, complaints, monkeypatch):
    folder = folder_of(kind)
    monkeypatch.setattr(sequences, "restarts", torch.zeros_like)
    assert complaints(folder) == {"packed documents": "failed"}
