"""Pages in a real browser without a window, at the widths of a phone and of a desk: nothing is cut off."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tercet.reports.blocks import (
    Bar,
    Beside,
    Card,
    Cards,
    Example,
    Figure,
    Heading,
    Line,
    Maps,
    Prose,
    Report,
    Run,
    Table,
    Verdicts,
)
from tercet.reports.charts import draw_confusions, draw_learning
from tercet.reports.page import as_page
from tercet.reports.verdicts import Verdict

WORD = "a_name_that_is_much_longer_than_any_line_of_a_phone_has_room_for_" * 2
BARS = [
    Bar("DistilBERT over BERT-base, published", 0.61, "39% less, 1.63x as fast", interval=(0.5, 0.7)),
    Bar("none", 0.0, "0%"),
    Bar(WORD, 1.0, "100%", strong=True, interval=(1.0, 1.0)),
]


@pytest.fixture(scope="module")
def checks():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield import_module("page_checks")


@pytest.fixture(scope="module")
def opened(checks):
    try:
        with checks.browser() as program:
            yield program
    except checks.BrowserMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def page(tmp_path):
    """Write a page of everything, with the longest names and numbers."""
    lines = [Line("prompt", [Run(WORD), Run("right", "right"), Run(WORD, "wrong")])]
    names = [f"label {number}" for number in range(50)]
    matrix = draw_confusions(names, np.eye(50, dtype=int), tmp_path / "a.png")
    curve = draw_learning(
        {"seed 0": [(0, 0.5), (1, 0.8)]}, {"majority class": 0.5}, "seed 0", "x", tmp_path / "b.png"
    )
    blocks = [
        Verdicts([Verdict(f"Better than {WORD}.", "better"), Verdict("Not measurably better.")]),
        *(Heading(f"Heading {number}") for number in range(3)),
        Cards([Card(WORD, "1,234,567.89", f"of {WORD}", BARS)] * 3),
        Table(["", *["a column"] * 12], [[WORD, *["1234.5678"] * 12]] * 3),
        Figure("a.png", matrix, "a matrix"),
        Figure("b.png", curve, "a curve"),
        Prose(f"`{WORD}`"),
        Beside([("Right", [Example(lines, BARS)]), ("Wrong", [Example(lines)] * 2)]),
    ]
    file = tmp_path / "page.html"
    file.write_text(as_page(Report(f"A title {WORD}", WORD, blocks)), encoding="utf-8")
    return file


@pytest.mark.slow
def test_a_page_of_long_names_fits_every_screen(page, opened, checks):
    for width in checks.WIDTHS.values():
        assert checks.problems_of(opened, page, width) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "problem"),
    [
        (".cards { grid-template-columns: 900px; }", "the page is"),
        (".bar { grid-template-columns: 1fr; } .bar .number { margin-top: -30px; }", "on top of each other"),
        (".track { width: 2px; }", "a track of 2 px"),
        (".card p { white-space: nowrap; }", "wider than its box"),
        ("figure svg { min-width: 0 !important; width: 200px !important; }", "px high in a chart"),
    ],
)
def test_what_is_wrong_is_found(page, opened, checks, style, problem):
    """The checks can fail: each finds what a wrong style sheet would do."""
    page.write_text(page.read_text().replace("</style>", f"{style}</style>"), encoding="utf-8")
    assert any(problem in each for each in checks.problems_of(opened, page, checks.WIDTHS["phone"]))


@pytest.mark.slow
def test_one_report_of_each_kind_fits_every_screen(opened, checks, tmp_path, monkeypatch):
    pages = import_module("report_pages").write_pages(
        tmp_path, steps=4, modules={"train": 60, "validation": 30}
    )
    assert len(pages) == 9
    for kind, file in pages.items():
        for width in checks.WIDTHS.values():
            assert checks.problems_of(opened, file, width) == [], (kind, width)


def test_a_click_shows_the_map_of_a_head_and_of_a_view(opened, checks, tmp_path):
    heads = [[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5], [0.9, 0.1]]]
    maps = Maps("Attention", ["a", "b"], ["c", "d: e"], {"this model": [heads], "random": [heads[::-1]]})
    file = tmp_path / "maps.html"
    file.write_text(as_page(Report("Maps", "", [maps])), encoding="utf-8")
    assert checks.problems_of(opened, file, checks.WIDTHS["phone"]) == []
    seen = """
      const of = selector => [...document.querySelectorAll(selector)];
      if (arguments[0]) of(arguments[0])[1].click();
      return [of('.chosen')[0].textContent, of('rect title')[3].textContent, of('.largest')[0].textContent];
    """
    assert opened.execute_script(seen, "") == [
        "Attention: this model, layer 1, head 1",
        "b → d: e: 0.0 %",
        "100.0 %",
    ]
    clicked = opened.execute_script(seen, ".heads button")
    assert clicked == ["Attention: this model, layer 1, head 2", "b → d: e: 10.0 %", "90.0 %"]
    clicked = opened.execute_script(seen, ".views button")
    assert clicked == ["Attention: random, layer 1, head 2", "b → d: e: 0.0 %", "100.0 %"]
    assert (
        opened.execute_script("return document.querySelectorAll('rect')[1].getAttribute('fill-opacity')")
        == "0.750"
    )
