"""Other people's text means nothing in Markdown but itself."""

import re

import pytest

from tercet.configs.markdown import Code, as_code, escaped, in_fence, table

NASTY = [
    *("<script>alert(1)</script>", "a|b", "`code`", "[x](y.html)", "*a*_b_", "one\ntwo\r\nthree", "a\u2028b"),
    *("\\", "&lt;", "```", "#", "~~gone~~", "$x$", "![i](http://x/y.png)"),
]


def read_back(text):
    """Undo escapes, as a reader of Markdown does."""
    return re.sub(r"\\(.)", r"\1", text)


@pytest.mark.parametrize("text", NASTY)
def test_a_text_stays_itself_and_on_one_line(text):
    shown = escaped(text)
    assert len(shown.splitlines()) == 1
    assert read_back(shown) == text.replace("\r\n", "\n").replace("\n", " ").replace("\u2028", " ")
    unescaped = [c for i, c in enumerate(shown) if c in "<>|`*_[]&$#~" and shown[i - 1 : i] != "\\"]
    assert not unescaped


@pytest.mark.parametrize("text", NASTY)
def test_a_row_has_as_many_cells_as_columns(text):
    lines = table([text, "other"], [[text, "1"], [Code(text), "2"]]).splitlines()
    assert len(lines) == 4
    for line in lines:
        bars = [i for i, c in enumerate(line) if c == "|" and line[i - 1 : i] != "\\"]
        assert len(bars) == 3, line


def test_code_is_enclosed_by_more_backquotes_than_it_has():
    assert as_code("a`b") == "``a`b``"
    assert as_code("`a`") == "`` `a` ``"
    assert in_fence("```", "yaml") == "````yaml\n```\n````"
