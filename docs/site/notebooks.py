"""The tutorials as notebooks: prose and shown output become Markdown, programs and commands become code.

A notebook is JSON (nbformat 4.5) and is made when the site is built, so that it cannot differ from its page.
"""

import json
import re
from pathlib import PurePosixPath
from typing import Any

from .module_pages import ROOT

FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)

CODE = {"python": "", "sh": "%%bash\n", "yaml": "%%writefile NAME\n"}
"""Language of a fence that is run -> how its cell begins. The first line of a recipe names its file."""

LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)\s]+\)")
"""A link to another page, which a notebook on its own does not have beside it."""

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebooks() -> dict[str, str]:
    """Return the notebooks of all tutorials by their path in the site."""
    pages = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    return {
        f"tutorials/{page.stem}.ipynb": json.dumps(
            as_notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False
        )
        + "\n"
        for page in pages
    }


def as_notebook(page: str) -> dict[str, Any]:
    """Turn a page into a notebook, whose cells of code are the page's programs in order."""
    cells = [cell(number, *source) for number, source in enumerate(cells_of(page))]
    return {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}


def cells_of(page: str) -> list[tuple[str, str]]:
    """Return the kind and the source of each cell; what is between two programs is one of Markdown."""
    found: list[tuple[str, str]] = []
    end = 0
    for fence in FENCE.finditer(page):
        if (code := CODE.get(fence["language"])) is None:
            continue
        found.append(("markdown", LINK.sub(r"\1", page[end : fence.start()])))
        text = fence["text"].rstrip("\n")
        name = text.partition("\n")[0].removeprefix("# ")
        found.append(("code", code.replace("NAME", name) + text))
        end = fence.end()
    found.append(("markdown", LINK.sub(r"\1", page[end:])))
    return [(kind, source.strip("\n")) for kind, source in found if source.strip()]


def cell(number: int, kind: str, source: str) -> dict[str, Any]:
    common = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
    return common | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def offer(place: PurePosixPath, text: str) -> str:
    """Let the page of a tutorial offer its notebook, below its title."""
    if place.parent != PurePosixPath("docs/tutorials"):
        return text
    title, rest = text.split("\n", 1)
    return f"{title}\n\n[Download this page as a notebook]({place.stem}.ipynb)\n{rest}"
