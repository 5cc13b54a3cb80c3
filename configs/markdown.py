"""Other people's text in Markdown: labels, names and paths mean nothing but themselves, wherever they stand.

One place for all reports and cards, after CommonMark's rules for escapes and code (spec 0.31, sections 2.4
and 6.1) and GitHub's for tables.
"""

import re
from collections.abc import Sequence

MARKS = "\\`*_[]<>|#&~$"
"""Characters that Markdown, or HTML in it, could take for marks."""

BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""Ends of lines, by any reader's opinion: they would end a cell, or a quotation."""


class Code(str):
    """A cell that is set as code."""


def escaped(text: str) -> str:
    r"""Write a text on one line so that it is read as it is.

    >>> print(escaped("<b>|a_b|"))
    \<b\>\|a\_b\|
    """
    return "".join(
        f"\\{character}" if character in MARKS else character for character in BREAKS.sub(" ", text)
    )


def as_code(text: str) -> str:
    """Set a text as code on one line, whatever backquotes it has."""
    text = BREAKS.sub(" ", text)
    quotes = fence(text, 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{quotes}{space}{text}{space}{quotes}"


def fence(text: str, least: int = 3) -> str:
    """Return as many backquotes as stand nowhere in a text, so that they can enclose it."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def in_fence(text: str, language: str) -> str:
    quotes = fence(text)
    return f"{quotes}{language}\n{text}\n{quotes}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], rule: Sequence[str] | None = None) -> str:
    """Write a table of other people's text, in which `Code` is set as code; `rule` aligns the columns."""
    lines = [map(cell, columns), rule or [":---"] * len(columns), *(map(cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Write a cell of a table: in code, too, a bar would end it."""
    return as_code(text).replace("|", "\\|") if isinstance(text, Code) else escaped(text)
