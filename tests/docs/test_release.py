"""The README of a release leads to the repository, if the metadata say where that is."""

from docs.site.module_pages import ROOT
from docs.site.release import LINK, complete_links

METADATA = "[metadata]\nname = x\nversion = 0.1.0\n"
URLS = "project_urls =\n    Repository = https://example.org/me/tercet\n"


def test_all_links_of_the_readme_are_completed(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "setup.cfg").write_text(METADATA)
    assert LINK.search(readme.read_text(encoding="utf-8"))
    assert "project_urls" in (complete_links(tmp_path) or "")
    assert readme.read_text(encoding="utf-8") == (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "setup.cfg").write_text(METADATA + URLS)
    assert complete_links(tmp_path) is None
    text = readme.read_text(encoding="utf-8")
    assert not LINK.search(text)
    assert "](https://example.org/me/tercet/raw/v0.1.0/docs/report.png)" in text
    assert "](https://example.org/me/tercet/blob/v0.1.0/docs/hybrid.md)" in text
