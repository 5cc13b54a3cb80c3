"""Results as HTML: nothing that a person or a model wrote becomes markup."""

import re
from dataclasses import replace

import pytest

from tercet.reports.blocks import Entry, Note, Passage, Ranking, Run, Token, Tokens
from tercet.reports.page import as_html as html_of
from tercet.tools.play.loaded_model import LoadedModel
from tercet.tools.play.page import as_html, header
from tercet.tools.play.sessions import Session

EVIL = '<img src=x onerror="alert(1)">'
RESULTS = [
    Ranking(EVIL, [Entry(EVIL, 0.5)]),
    Passage(EVIL, [Run(EVIL), Run(EVIL, "new"), Run(EVIL, "labelled", EVIL)]),
    Tokens(EVIL, [Token(EVIL, 1, 0.5), Token(EVIL, 2)]),
    Note(EVIL),
]


@pytest.mark.parametrize("result", [*RESULTS, EVIL], ids=lambda result: type(result).__name__)
def test_texts_are_escaped(result, load):
    written = as_html([(load("encoder"), result if isinstance(result, str) else [result])])
    assert "<img" not in written
    assert "&lt;img" in written


def test_what_a_run_says_of_itself_is_escaped(load):
    model = load("encoder")
    run = replace(model.run, recipe={"model": {"path": EVIL}, "objective": {"kind": EVIL}})
    evil = LoadedModel(EVIL, model.checkpoint, model.model, run, None)
    written = header([evil]) + as_html([(evil, "no")])
    assert "<img" not in written


def test_what_a_tab_says_of_a_model_is_escaped(load):
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'tercet[play]'")
    from tercet.tools.play.page import build_page

    decoder = load("decoder")
    evil = LoadedModel(EVIL, decoder.checkpoint, decoder.model, decoder.run, None)
    evil.title = EVIL
    components = build_page(Session([load("encoder"), evil])).get_config_file()["components"]
    written = [str(each["props"].get("value")) for each in components if each["type"] == "html"]
    assert any("&lt;img" in each for each in written)
    assert not any("<img" in each for each in written)


def test_a_bar_is_as_long_as_its_share():
    written = html_of(Ranking("Best", [Entry("a", 0.5), Entry("b", 0.25), Entry("c", -1, is_share=False)]))
    assert re.findall(r"width:([\d.]+)%", written) == ["50.0", "25.0", "0.0"]
    assert re.findall(r'"number">([^<]+)<', written) == ["50.0 %", "25.0 %", "-1.000"]


def test_models_have_columns_and_one_alone_has_the_whole_width(load):
    answers = [(load("encoder"), RESULTS), (load("decoder"), "Too long.")]
    assert as_html(answers).count('<section class="answer">') == 2
    assert 'class="refusal" role="alert">Too long.' in as_html(answers)
    assert 'class="answers alone"' in as_html(answers[:1])


def test_the_header_says_what_the_models_are(load):
    written = header([load("encoder"), load("spans")])
    assert "<h1>encoder and spans</h1>" in written
    assert "An encoder." in written
    assert "2 + 2 of width 32" in written
