"""Results of transformers' tests are read from pytest, and ours are compared with the stock models'."""

from importlib import import_module
from pathlib import Path

import pytest

RESULTS = """<testsuites><testsuite>
<testcase classname="members.DecoderTest" name="test_a"/>
<testcase classname="members.DecoderTest" name="test_b"><skipped message="no"/></testcase>
<testcase classname="members.DecoderTest" name="test_b"/>
<testcase classname="members.EncoderTest" name="test_c"><failure>trace</failure></testcase>
<testcase classname="members.EncoderTest" name="test_c"><skipped message="no"/></testcase>
<testcase classname="members.EncoderTest" name="test_d"><error>trace</error></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def conformance(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return import_module("conformance")


def test_the_worst_of_the_parts_of_a_test_counts(conformance, tmp_path):
    (tmp_path / "ours.xml").write_text(RESULTS)
    found = conformance.read(tmp_path / "ours.xml")
    assert found == {
        ("DecoderTest", "test_a"): "passed",
        ("DecoderTest", "test_b"): "skipped",
        ("EncoderTest", "test_c"): "failed",
        ("EncoderTest", "test_d"): "failed",
    }
    assert conformance.count(found) == {
        "DecoderTest": {"passed": 1, "skipped": 1},
        "EncoderTest": {"failed": 2},
    }


def test_a_skip_counts_where_the_stock_model_passes(conformance):
    ours = {("DecoderTest", name): "skipped" for name in ("passes", "skips", "fails", "has_none")}
    stock = {
        ("DecoderTest", name): kind
        for name, kind in [("passes", "passed"), ("skips", "skipped"), ("fails", "failed")]
    }
    assert conformance.unlike({"ours": ours, "stock": stock}) == [("DecoderTest", "passes")]


@pytest.mark.parametrize(
    ("ours", "told"),
    [
        ("passed", "No failure, and no skip that a stock model has not."),
        ("skipped", "skipped, where stock passes: DecoderTest::test_a"),
        ("failed", "failed: DecoderTest::test_a"),
    ],
)
def test_what_is_to_be_mended_is_listed_and_exits_with_1(
    conformance, monkeypatch, capsys, tmp_path, ours, told
):
    kinds = {"members.py": ours, "stock.py": "passed"}
    monkeypatch.setattr(conformance, "run", lambda name, *_: {("DecoderTest", "test_a"): kinds[name]})
    assert conformance.main(["--tests", str(tmp_path)]) == (ours != "passed")
    assert capsys.readouterr().out.splitlines()[-1] == told
