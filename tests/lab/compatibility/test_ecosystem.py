"""The table of what works: what tests say of a cell, and what several versions of transformers do."""

import pytest

from lab.compatibility import ecosystem

TESTS = """
import pytest

from lab.compatibility import ecosystem

cell = pytest.mark.ecosystem

@cell("peft", "adapters")
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("size", [1, 2])
def test_one(member, size):
    assert member == "encoder" or size == 1

@cell("peft", "others", member="decoder")
@pytest.mark.skip(reason="needs a GPU")
def test_two():
    pass

@cell("trl", "steps", member="decoder")
def test_three():
    pytest.skip("no time")

@cell("trl", "fixtures", member="decoder")
def test_four(absent):
    pass

def test_that_is_no_cell():
    raise ValueError
"""


def test_a_cell_works_if_all_its_tests_do(tmp_path, capsys):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    ecosystem\n")
    (tmp_path / "test_cells.py").write_text(TESTS)
    cells = ecosystem.Cells()
    pytest.main(["-q", "-p", "no:cacheprovider", str(tmp_path)], plugins=[cells])
    found = {(row["what"], row["member"]): row["verdict"] for row in cells.verdicts()}
    assert found == {
        ("adapters", "encoder"): ecosystem.YES,
        ("adapters", "decoder"): ecosystem.NO,
        ("others", "decoder"): "needs a GPU",
        ("steps", "decoder"): "no time",
        ("fixtures", "decoder"): ecosystem.NO,
    }


def result(version, **verdicts):
    return {
        "versions": {"transformers": version},
        "cells": [
            {"library": "peft", "what": "adapters", "member": member, "verdict": verdict}
            for member, verdict in verdicts.items()
        ],
    }


def test_versions_are_told_apart_where_they_differ():
    table = ecosystem.render(
        [result("5.23.0", encoder="yes", decoder="yes"), result("5.17.0", encoder="yes", decoder="**no**")]
    )
    assert table.splitlines()[-1] == "| adapters | yes | yes (5.23.0); **no** (5.17.0) |"


def test_a_library_has_columns_for_the_members_that_were_tried():
    table = ecosystem.render([result("5.23.0", tagger="yes", encoder="yes")])
    assert table.splitlines()[-3:] == [
        "| what | encoder | tagger |",
        "|---|---|---|",
        "| adapters | yes | yes |",
    ]


def test_nothing_fails_that_the_page_shows():
    assert ecosystem.NO not in ecosystem.render(ecosystem.read_results())
