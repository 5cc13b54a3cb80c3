"""What the site offers to language models: all of its pages are listed, the guides are there in full."""

import re

import pytest
import yaml

from docs.site.language_models import summary, texts_for_language_models
from docs.site.module_pages import ROOT

SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PATHS = re.findall(r"[\w/-]+\.md", str(SETTINGS["nav"]))


@pytest.fixture
def pages():
    return {path: f"# Of {path}\n\nWhat [{path}](x.md) is about.\n\nThe rest of {path}.\n" for path in PATHS}


def test_every_page_of_the_navigation_is_listed_with_its_summary(pages):
    listed = texts_for_language_models(pages)["llms.txt"]
    assert listed.startswith(f"# {SETTINGS['site_name']}\n\n> {SETTINGS['site_description']}\n")
    for path in PATHS:
        assert f"({path.removesuffix('.md')}.html): What {path} is about.\n" in listed


def test_guides_are_there_in_full_and_evidence_is_not(pages):
    full = texts_for_language_models(pages)["llms-full.txt"]
    assert "The rest of training.md." in full
    assert "The rest of reference/pretrain.md." in full
    assert "The rest of decisions.md." not in full


def test_a_page_that_is_missing_is_an_error(pages):
    del pages["training.md"]
    with pytest.raises(KeyError, match=r"training\.md"):
        texts_for_language_models(pages)


def test_every_written_page_begins_with_a_sentence():
    written = [path for path in PATHS if (ROOT / "docs" / path).exists()]
    for path in written:
        assert re.search(r"\w{3}.*[.:]$", summary((ROOT / "docs" / path).read_text(encoding="utf-8"))), path
