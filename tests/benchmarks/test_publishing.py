"""The table and its place on a page."""

import pytest


@pytest.fixture
def sides():
    return {
        "stock": {"seconds": [4.0, 2.0, 5.0], "memory_mib": 300.0, "precision": "fp32"},
        "stock-tuned": {"seconds": [2.0, 2.0, 2.0], "memory_mib": 200.0, "precision": "bf16"},
        "stock-compiled": {"seconds": [4.0, 4.0, 4.0], "memory_mib": 200.0, "precision": "bf16"},
        "tercet": {"seconds": [1.0, 1.0, 1.0], "memory_mib": 100.0, "precision": "bf16"},
    }


def test_ratios_are_those_of_the_medians(module, sides):
    module("publishing").summarize(sides, 100, flops_per_token=2.0, peaks={"fp32": 100.0, "bf16": 400.0})
    assert sides["stock"]["tokens_per_second"] == 25
    assert (sides["stock"]["slowest"], sides["stock"]["fastest"]) == (20, 50)
    assert sides["tercet"]["ratio_to_stock"] == 4
    assert sides["tercet"]["ratio_to_best_stock"] == 2
    assert sides["tercet"]["utilization"] == sides["stock"]["utilization"] == 0.5


def test_only_what_stands_between_the_marks_is_replaced(module, tmp_path):
    reporting, page = module("publishing"), tmp_path / "page.md"
    begin, end = reporting.marks_of("pretraining.py")
    page.write_text(f"a\n{begin}\nold\n{end}\nz\n")
    for text in ("new", "newer"):
        reporting.write_between_marks(page, text, "pretraining.py")
        assert page.read_text() == f"a\n{begin}\n{text}\n{end}\nz\n"


def test_a_page_without_marks_is_refused(module, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no place for the table"):
        module("publishing").write_between_marks(page, "new", "pretraining.py")
    assert page.read_text() == "nothing"
