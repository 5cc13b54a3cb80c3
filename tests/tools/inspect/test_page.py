"""The page shows what the functions give, of every member, and refuses what it cannot show."""

import json
import re

import pytest
import torch

from tercet.__main__ import main
from tercet.reports.blocks import Figure, Heading, Maps, Prose, Table
from tercet.reports.page import as_page
from tercet.tools.doctor.examined_model import ExaminedModel
from tercet.tools.inspect.attention_maps import attention_maps
from tercet.tools.inspect.page import BY_DISTANCE, RANDOM, TRAINED, describe, inspect_model, read

from .conftest import build

TEXT = "The animal did not cross the street because it was too wide."


def examined(name, tokenizer):
    return ExaminedModel(name, build(name, vocab_size=len(tokenizer)), tokenizer)


def of_kind(report, kind):
    return [block for block in report.blocks if isinstance(block, kind)]


def test_a_decoder_has_maps_lens_and_ablation(tokenizer):
    model = examined("decoder", tokenizer)
    report = describe(model, TEXT)
    (maps,) = of_kind(report, Maps)
    ids = torch.tensor(
        [[1, *tokenizer(TEXT)["input_ids"]]]
    )  # the token that opened texts in training is put there
    expected = attention_maps(model.model, {"input_ids": ids})["self"]
    assert list(maps.views) == [TRAINED, RANDOM, BY_DISTANCE]
    torch.testing.assert_close(torch.tensor(maps.views[TRAINED]), torch.stack([each[0] for each in expected]))
    assert maps.rows == maps.columns == ["[BOS]", *TEXT.replace(".", " .").split()]
    headings = [block.text for block in of_kind(report, Heading)]
    assert headings == ["Where heads look", "What each layer would predict", "What heads do"]
    (table,) = of_kind(report, Table)
    assert (len(table.rows), len(table.columns)) == (len(maps.rows), 1 + 3)
    assert len(of_kind(report, Figure)) == 2
    page = as_page(report)
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page)
    first = torch.tensor(json.loads(data))[0, 1, 2] / 1000
    torch.testing.assert_close(first, expected[1][0, 2].flatten(), atol=5.1e-4, rtol=0)
    assert page.count("<rect") >= len(maps.rows) ** 2
    assert not re.search(r'(src|href)="(?!#)', page)


def test_a_translator_has_three_kinds_of_maps_and_writes_or_reads_a_target(tokenizer):
    model = examined("t5", tokenizer)
    given = describe(model, TEXT, "it was too low.")
    assert [maps.title for maps in of_kind(given, Maps)] == [
        "Attention of the encoder",
        "Attention of the decoder",
        "Attention of the decoder to the encoder",
    ]
    _, decoder, cross = of_kind(given, Maps)
    assert decoder.rows == decoder.columns == cross.rows == ["[PAD]", "it", "was", "too", "low"]
    assert cross.columns == TEXT.replace(".", " .").split()
    assert list(cross.views) == [TRAINED, RANDOM]
    written = read(model, tokenizer, TEXT, None)["decoder_input_ids"]
    assert written[0, 0] == 0
    assert 1 < written.shape[1] <= 64


def test_a_model_without_head_says_what_is_left_out(tokenizer):
    model = build("bert", vocab_size=len(tokenizer)).bert
    said = [block.text for block in of_kind(describe(ExaminedModel("bert", model, tokenizer), TEXT), Prose)]
    assert any("`BertModel` has no head that predicts tokens" in text for text in said)
    assert any("gives no logits of several classes" in text for text in said)


def test_what_cannot_be_shown_is_refused(tokenizer):
    model = examined("bert", tokenizer)
    with pytest.raises(ValueError, match="the text has 70 tokens, and the page shows 1 to 64: give another"):
        describe(model, "it " * 70)
    with pytest.raises(ValueError, match="--target is given, but bert is no sequence-to-sequence model"):
        describe(model, TEXT, "it")
    with pytest.raises(ValueError, match="bert has no tokenizer"):
        describe(ExaminedModel("bert", model.model, None), TEXT)


def test_the_command_writes_a_page_once(tokenizer, tmp_path, capsys):
    folder, page = tmp_path / "model", tmp_path / "pages" / "page.html"
    build("llama", vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    words = ["inspect", str(folder), TEXT, "--output", str(page)]
    assert main(words) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert "LlamaForCausalLM of" in page.read_text(encoding="utf-8")
    assert main(words) == 2
    assert "exists already: choose another --output, or add --overwrite" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path / "page.txt")]) == 2
    assert "is no page: give it a name that ends in .html" in capsys.readouterr().err


def test_weights_that_are_missing_are_not_made_up(tokenizer, tmp_path):
    build("bert", vocab_size=len(tokenizer)).bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(
        ValueError, match=r"lacks \d+ tensors .*of BertForMaskedLM, which would be drawn at random"
    ):
        inspect_model(str(tmp_path), TEXT, str(tmp_path / "page.html"))
    assert not (tmp_path / "page.html").exists()
