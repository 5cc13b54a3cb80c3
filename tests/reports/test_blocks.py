"""A report says the same as Markdown and as a page, and other people's text stays text in both."""

import re

import pytest

from tercet.reports.blocks import (
    Bar,
    Beside,
    Card,
    Cards,
    Example,
    Examples,
    Figure,
    Heading,
    Line,
    Maps,
    Prose,
    Report,
    Run,
    Table,
    Verdicts,
    bars_of,
)
from tercet.reports.curves import COLOURS, Panel, apart, draw
from tercet.reports.page import as_html, as_page, template
from tercet.reports.text import MARKDOWN, as_markdown, for_terminal, run
from tercet.reports.verdicts import Verdict

STYLE = template("page.css").render()
HOSTILE = "<b>*a*</b> | [x](y) & `z`"
REPORT = Report(
    "Title",
    "About it.",
    [
        Verdicts([Verdict("Better than a guess.", "better")]),
        Heading("Chapter"),
        Heading("Chapter"),
        Heading("The <b>end</b>"),
        Beside([("Right ones", [Example([Line("text", [Run("good", "right")])])]), ("Wrong ones", [])]),
        Prose("A paragraph with `code`."),
        Table(["", "loss"], [["untrained", "9.0"], ["trained", "3.0"]], strong=1),
        Cards([Card("Encoder", "40%", "of guesses", [Bar("trained", 0.4, "40%", strong=True)])]),
        Examples([Example([Line("text", [Run("a "), Run("hidden", "truth"), Run(" word")])])]),
        Examples([Example([Line("text", [Run(HOSTILE)])], [Bar("<i>", 0.5, "50%")])], are_narrow=True),
    ],
)


def test_page_and_markdown_say_the_same():
    page = re.sub(r"<[^>]*>", " ", as_page(REPORT).partition("<main>")[2])
    markdown = as_markdown(REPORT)
    for text in (
        "Title",
        "About it.",
        "Chapter",
        "untrained",
        "9.0",
        "Encoder",
        "of guesses",
        "hidden",
        "Better than a guess.",
        "Right ones",
    ):
        assert text in page
        assert text in markdown


def test_text_of_others_stays_text():
    page, markdown = as_page(REPORT), as_markdown(REPORT)
    assert "&lt;b&gt;*a*&lt;/b&gt; | [x](y) &amp; `z`" in page
    assert r"\<b\>\*a\*\</b\> \| \[x\](y) \& \`z\`" in markdown
    assert "<b>" not in page + markdown
    assert "&lt;i&gt;" in page


def test_strong_row_is_marked():
    assert "| **trained** | **3.0** |" in as_markdown(REPORT)
    assert '<tr class="strong"><td>trained</td>' in as_page(REPORT)


def test_bars_have_one_scale_with_their_intervals():
    values = {"own": 50.0, "other": 25.0, "none": None, "below": -3.0}
    bars = bars_of(values, "own", {"own": (40.0, 100.0), "other": (25.0, 25.0), "none": None})
    assert [bar.share for bar in bars] == [0.5, 0.25, 0.0, 0.0]
    assert [bar.interval for bar in bars] == [(0.4, 1.0), None, None, None]
    assert [bar.shown for bar in bars] == ["50", "25", "-", "-3"]
    assert [bar.strong for bar in bars] == [True, False, False, False]


def test_columns_line_up_in_a_terminal_alone():
    table = Table(["a", "bc"], [["d", "1"]], strong=0)
    assert for_terminal([table]).splitlines() == ["| a | bc |", "| - | -: |", "| d |  1 |"]
    assert as_markdown(Report("t", "a", [table])).splitlines()[-1] == "| **d** | **1** |"


def test_white_space_stays_outside_of_marks():
    assert run(Run(" the cat ", "right"), MARKDOWN) == " **the cat** "
    assert run(Run("  ", "wrong"), MARKDOWN) == "  "


def test_chart_is_a_png_and_a_drawing_in_the_colours_of_the_page(tmp_path):
    curve = [(0.0, 9.0), (1.0, 4.0)]
    svg = draw([Panel("loss", curve, curve, {"unigram": 6.5})], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert svg.startswith("<svg viewBox")
    assert "unigram 6.50" in svg
    assert "var(--first)" in svg
    assert not any(value in svg for value in COLOURS.values())
    assert all(f"{name}:" in STYLE for name in COLOURS)
    ids, links = re.findall(r'id="([^"]*)"', svg), re.findall(r'(?:href="#|url\(#)([^")]*)', svg)
    assert set(links) <= set(ids)
    assert all(name.startswith("curves-") for name in ids)


def test_labels_of_a_chart_do_not_overlap():
    places = apart({"unigram": 0.693, "held out": 0.692, "trigram": 2.0}, distance=0.1)
    assert places == pytest.approx({"held out": 0.692, "unigram": 0.792, "trigram": 2.0})


def test_figure_is_a_file_in_markdown_and_a_drawing_on_the_page():
    report = Report("T", "a", [Figure("curves.png", "<svg></svg>", "Loss curves")])
    assert "![Loss curves](curves.png)" in as_markdown(report)
    assert '<figure role="img" aria-label="Loss curves"><svg></svg></figure>' in as_page(report)


NASTY = [
    "<script>x</script>",
    "a|b",
    "one\ntwo",
    "`a",
    "[x](y.html)",
    "<img src=x onerror=y>",
    'q" onload="z',
]


@pytest.mark.parametrize("text", NASTY)
def test_other_peoples_text_is_read_as_it_is_in_every_block(text):
    bars = [Bar(text, 0.5, text)]
    report = Report(
        text,
        text,
        [
            Heading(text),
            Prose(text if "[" not in text and "`" not in text else "words"),
            Table([text, text], [[text, text], [text, text]], strong=1),
            Figure("x.png", "<svg></svg>", text),
            Cards([Card(text, text, text if "`" not in text and "[" not in text else "", bars)]),
            Examples([Example([Line(text, [Run(text), Run(text, "blank"), Run(text, "wrong")])], bars)]),
        ],
    )
    page, markdown = as_page(report), as_markdown(report)
    assert not any(mark in page.replace(STYLE, "") for mark in ("<script", "<img", 'q" onload', 'y.html">'))
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<(script|img)|(?<!\\)\]\(y\.html\)", outside)
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}


def test_prose_keeps_its_links_and_its_code():
    prose = Prose("More in [its report](runs/page.html), with `a|b` and f1_macro.")
    assert as_markdown(Report("t", "a", [prose])).splitlines()[-1] == (
        "More in [its report](runs/page.html), with `a|b` and f1\\_macro."
    )
    assert '<a href="runs/page.html">its report</a>, with <code>a|b</code>' in as_page(
        Report("t", "a", [prose])
    )


def test_every_heading_is_in_the_contents_and_has_an_anchor_of_its_own():
    page = as_page(REPORT)
    links = re.findall(r'<li><a href="#([^"]*)">', page)
    assert links == re.findall(r'<h2 id="([^"]*)"', page)
    assert len(set(links)) == len(links) == 3
    assert page.index('class="verdicts"') < page.index("<nav") < page.index("<h2")


def test_numbers_of_a_column_stand_below_each_other():
    table = Table(["", "score", "kept"], [["a", "0.5", "9.5%"], ["b", "12", "10%"], ["c", "-", "100%"]])
    page = as_page(Report("t", "a", [table]))
    zero = '<u style="visibility: hidden">.0</u>'  # in the cell: a notebook shows no page around it
    for cell in ("0.5", f"12{zero}", "-", "9.5%", f"10{zero}%", f"100{zero}%"):
        assert f"<td>{cell}</td>" in page


@pytest.mark.parametrize(
    ("interval", "drawn"),
    [
        ((0.25, 0.5), "left:min(25.0%,100% - 2px);width:25.0%"),
        ((-1.0, 2.0), "left:min(0.0%,100% - 2px);width:100.0%"),
    ],
)
def test_the_interval_of_a_bar_is_drawn_within_its_track(interval, drawn):
    page = as_page(Report("t", "a", [Cards([Card("c", "1", "", [Bar("b", 0.4, "40%", interval=interval)])])]))
    assert f'<b style="{drawn}">' in page


def test_maps_are_data_for_the_one_script_of_a_page_and_names_of_tokens_stay_text():
    weights = [[0.25, 0.75], [1.0, 0.0]]
    maps = Maps(
        "Attention", ["</script>", "b"], [HOSTILE, "b"], {"model": [[weights]], "random": [[weights[::-1]]]}
    )
    page = as_page(Report("Title", "About it.", [maps]))
    assert "[[[[250, 750, 1000, 0]]], [[[1000, 0, 250, 750]]]]" in page
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count("<rect") == 4  # also those without weight, which another map may have
    assert "<b>" not in page
    assert "<script" not in as_page(REPORT).replace(STYLE, "")


def test_a_cell_is_as_dark_as_its_weight_is_large():
    written = as_html(Maps("Map", ["a", "b"], ["a", "b"], {"model": [[[[0.8, 0.2], [0.4, 0.6]]]]}))
    assert re.findall(r'fill-opacity="([\d.]+)"', written) == ["1.000", "0.250", "0.500", "0.750"]
    assert "<title>b → a: 40.0 %</title>" in written


def test_tokens_that_run_from_right_to_left_leave_rows_before_columns():
    written = as_html(
        Maps("Map", ["\u05e9", "a"], ["\u05dc", "\u0661"], {"model": [[[[0.5, 0.5], [0.5, 0.5]]]]})
    )
    assert "<title>\u2068\u05e9\u2069 → \u2068\u05dc\u2069: 50.0 %</title>" in written
    assert "<title>a → \u2068\u0661\u2069: 50.0 %</title>" in written
