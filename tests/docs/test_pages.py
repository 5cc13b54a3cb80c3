"""Written pages keep their text, and their links lead to pages of the site."""

from pathlib import PurePosixPath

import pytest

from docs.site.pages import WrittenPages, boosted, show_source


@pytest.mark.parametrize(
    ("place", "link", "target"),
    [
        ("docs/encoder.md", "interop.md#the-certificate", "interop.md#the-certificate"),
        ("docs/encoder.md", "../training/devices/cpu.py", "source/training/devices/cpu.py.md"),
        ("docs/encoder.md", "../README.md", "index.md"),
        ("docs/tutorials/task.md", "../finetuning.md", "../finetuning.md"),
        ("CONTRIBUTING.md", "docs/architecture.md", "architecture.md"),
        ("docs/encoder.md", "#variants", "#variants"),
        ("docs/encoder.md", "https://example.org/x", "https://example.org/x"),
    ],
)
def test_links_lead_to_pages_of_the_site(place, link, target):
    assert WrittenPages().target(PurePosixPath(place), link) == target


def test_linked_files_are_shown():
    pages = WrittenPages()
    pages.target(PurePosixPath("docs/encoder.md"), "../training/devices/cpu.py")
    assert pages.linked == {PurePosixPath("training/devices/cpu.py")}
    assert "python" in show_source(PurePosixPath("training/devices/cpu.py"))


def test_linked_folder_lists_its_modules():
    assert "- `devices/cpu.py`: " in show_source(PurePosixPath("training"))


def test_link_to_nothing_is_refused():
    with pytest.raises(ValueError, match="correct the link"):
        show_source(PurePosixPath("training/nothing.py"))


def test_fences_are_left_alone():
    page = WrittenPages().relocate(PurePosixPath("docs/encoder.md"))
    assert "    input_ids=torch.tensor([[5, 6, 7, 8, 9]]),\n" in page


def test_guides_outweigh_the_api_in_the_search():
    assert boosted("finetuning.md", "# Fine\n") == "# Fine\n"
    assert boosted("reference/api/text.md", "# Text\n") == "---\nsearch: {boost: 0.001}\n---\n\n# Text\n"
    assert boosted("reference/pretrain.md", "# Keys\n").startswith("---\nsearch: {boost: 0.5}\n")
