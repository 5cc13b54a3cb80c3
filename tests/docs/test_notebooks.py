"""A tutorial's notebook has the page's programs in their order, and a cell runs as the page's fence does."""

import json
from pathlib import Path, PurePosixPath

import pytest

from docs.site.fences import fences
from docs.site.notebooks import notebooks, offer

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "tutorials").glob("*.md"))
MAGIC = {"python": "", "sh": "%%bash\n", "yaml": "%%writefile "}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_has_the_programs_of_its_page(page):
    notebook = json.loads(notebooks()[f"tutorials/{page.stem}.ipynb"])
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    run = [fence for fence in fences(page) if fence.language in MAGIC]
    assert len(code) == len(run)
    for source, fence in zip(code, run, strict=True):
        assert source.startswith(MAGIC[fence.language])
        assert source.endswith(fence.text.rstrip("\n"))
    prose = "\n\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    assert "](../" not in prose
    assert prose.startswith(page.read_text(encoding="utf-8").partition("\n")[0])


def test_cells_of_python_run_one_after_another(tmp_path, monkeypatch):
    """Those that need no model: the rest is run from the page, with fewer steps (test_tutorials.py)."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads(notebooks()["tutorials/task.ipynb"])["cells"]
    code = next(cell["source"] for cell in cells if cell["cell_type"] == "code")
    exec(compile(code, "notebook", "exec"), {})
    assert (tmp_path / "docstrings.csv").read_text(encoding="utf-8").startswith("text,label\n")


def test_a_tutorial_offers_its_notebook():
    assert offer(PurePosixPath("docs/tutorials/task.md"), "# My task\n\nText\n") == (
        "# My task\n\n[Download this page as a notebook](task.ipynb)\n\nText\n"
    )
    assert offer(PurePosixPath("docs/finetuning.md"), "# Fine\n") == "# Fine\n"
