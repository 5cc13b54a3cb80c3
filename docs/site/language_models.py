"""The site for language models: `llms.txt` lists its pages, `llms-full.txt` has their text as Markdown.

The form is that of https://llmstxt.org: a title, a summary, and lists of links with what stands behind them.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import yaml

from .module_pages import ROOT

LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
LEFT_OUT = ("Evidence", "Studies", "Project")
"""Parts of the navigation that are listed as optional, and whose text is left out."""


def texts_for_language_models(pages: dict[str, str]) -> dict[str, str]:
    """Return both files by their names, from the site's pages by their paths."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}", ""]
    lines += ["The text of all pages but the optional ones: [llms-full.txt](llms-full.txt)", ""]
    text = []
    for part, named in parts(settings["nav"]):
        lines += [f"## {f'Optional: {part}' if part in LEFT_OUT else part}", ""]
        for title, path in named:
            lines.append(f"- [{title}]({PurePosixPath(path).with_suffix('.html')}): {summary(pages[path])}")
            if part not in LEFT_OUT:
                text.append(f"<!-- {path} -->\n\n{pages[path].strip()}\n")
        lines.append("")
    return {"llms.txt": "\n".join(lines), "llms-full.txt": "\n".join(text)}


def parts(
    navigation: list[dict[str, str | list[dict[str, str]]]],
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the parts of the navigation, each with the titles and paths of its pages."""
    for entry in navigation:
        for title, below in entry.items():
            pages = [{title: below}] if isinstance(below, str) else below
            yield title, [item for page in pages for item in page.items()]


def summary(page: str) -> str:
    r"""Return the first paragraph of a page without its links, in one line.

    >>> summary("# Taggers\n\n[Offer](x.ipynb)\n\nTag words\nwith [a model](b.md).\n\nMore.")
    'Tag words with a model.'
    """
    blocks = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE).split("\n\n")[1:]
    prose = (block for block in blocks if not re.match(r"$|[#|<!>]|- |\[[^\]]*\]\([^)]*\)$", block.strip()))
    return " ".join(LINK.sub(r"\1", next(prose, "")).split())
