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
        ("members.DecoderTest", "test_a"): "passed",
        ("members.DecoderTest", "test_b"): "skipped",
        ("members.EncoderTest", "test_c"): "failed",
        ("members.EncoderTest", "test_d"): "failed",
    }
    assert conformance.count(found) == {
        "members.DecoderTest": {"passed": 1, "skipped": 1},
        "members.EncoderTest": {"failed": 2},
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


def test_our_models_alone_are_held_to_their_failures(conformance, monkeypatch, capsys, tmp_path):
    ran = []
    monkeypatch.setattr(
        conformance, "run", lambda name, *_: ran.append(name) or {("DecoderTest", "test_a"): "skipped"}
    )
    assert conformance.main(["--ours", "--tests", str(tmp_path)]) == 0
    assert ran == ["members.py"]
    assert capsys.readouterr().out.splitlines()[-1] == "No failure."


@pytest.fixture
def of_one_test(conformance, monkeypatch, tmp_path):
    """Let a side have one test, that says with what it runs, instead of transformers'."""
    monkeypatch.setattr(conformance, "HERE", tmp_path / "tests")
    (tmp_path / "tests").mkdir()
    (tmp_path / "packages").mkdir()
    (tmp_path / "conftest.py").write_text("from . import nothing")

    def run(text):
        (tmp_path / "tests" / "side.py").write_text(text)
        return conformance.run("side.py", tmp_path, tmp_path / "ours.xml")

    return run


def test_a_side_runs_with_the_versions_of_an_overlay_and_without_other_tests_settings(
    of_one_test, monkeypatch, tmp_path
):
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "newer.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "overlay"))
    assert of_one_test("def test_a(): import newer") == {("side", "test_a"): "passed"}


def test_results_of_an_earlier_run_are_not_read_again(of_one_test, monkeypatch, tmp_path):
    (tmp_path / "ours.xml").write_text(RESULTS)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    with pytest.raises(RuntimeError, match=r"pytest did not run side\.py: it ended with status 4"):
        of_one_test("def test_a(): pass")
