"""The table of certificates: a row for each model and way with the largest differences, and all hold."""

import json
from dataclasses import replace

import pytest

from lab.compatibility import certificates
from tercet.modeling.stock.bart import BART
from tercet.modeling.stock.bert import ROBERTA
from tercet.modeling.stock.certificate import TOLERANCE, Certificate, Difference
from tercet.modeling.stock.gpt import GPT2
from tercet.modeling.stock.t5 import T5_ENCODER


@pytest.fixture
def small(monkeypatch):
    """Make the models so small that they take no time."""
    monkeypatch.setitem(certificates.SIZES, "vocab_size", 31)
    monkeypatch.setitem(certificates.SIZES, "num_hidden_layers", 1)


def only(architecture, *names: str):
    """Keep the base model of an architecture, and those of its others that are named."""
    base, *others = architecture.counterparts
    return replace(architecture, counterparts=(base, *(each for each in others if each.stock in names)))


def test_program_writes_a_row_for_each_model_and_way(small, monkeypatch, tmp_path, capsys):
    gpt2 = only(GPT2, "GPT2LMHeadModel")
    monkeypatch.setattr(certificates, "ARCHITECTURES", {"gpt2": gpt2})
    monkeypatch.setattr(certificates, "RESULTS", tmp_path)
    certificates.main()
    assert capsys.readouterr().out.startswith("With tercet ")
    rows, head = json.loads((tmp_path / "certificates.json").read_text())["rows"], certificates.HEAD
    assert [row[:4] for row in rows] == [
        ["gpt2", f"`{each.stock}`", f"`{each.ours}`", way]
        for each in gpt2.counterparts
        for way in ("in", "out")
    ]
    assert {len(row) for row in rows} == {len(head)}
    assert [bool(cell) for cell in rows[0][4:]] == [True, True, False, False, False]
    assert rows[2][-1] == "0 differ"


@pytest.mark.parametrize(
    "architecture",
    [
        only(ROBERTA, "RobertaForMaskedLM"),
        only(BART, "BartForQuestionAnswering"),
        only(T5_ENCODER, "T5ForTokenClassification"),
    ],
    ids=lambda architecture: architecture.model_type,
)
def test_models_of_the_table_are_one(small, architecture):
    for cells in certificates.rows_of(architecture):
        figures = [float(cell) for cell in cells[4:8] if cell]
        assert len(figures) >= 2
        assert max(figures) < TOLERANCE, cells


def test_largest_difference_of_each_respect_is_shown():
    differences = tuple(
        Difference(what, "text", precision, largest, scale)
        for what, precision, largest, scale in (
            ("predictions, padded", "float64", 1e-16, 1.0),
            ("predictions, packed", "float64", 6e-15, 2.0),
            ("predictions, padded", "float32", 4e-7, 0.5),
            ("gradients", "float32", 5e-8, 1.0),
            ("gradients", "float64", 5e-3, 1.0),
            ("different texts", "float32", 2.0, 0.0),
        )
    )
    certificate = Certificate("GPT2Model", "TercetDecoderModel", {}, {}, differences, {})
    cells = certificates.row(GPT2, GPT2.counterparts[0], "out", certificate)
    assert cells[3:] == ["out", "3.0e-15", "4.0e-07", "", "5.0e-08", "2 differ"]
