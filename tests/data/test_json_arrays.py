"""Items of an array are those that `json` finds, wherever portions end; a bad one costs no other."""

import io
import json

import pytest

from tercet.data.documents import open_documents
from tercet.data.files import reading
from tercet.data.files.problems import DamageError, Limit
from tercet.data.files.reading import items_of

ITEMS = [
    {"text": 'a ], "b", \\', "n": [1, [2, {"x": {}}]]},
    {"text": '\n{"\\\\"', "more": {"[": "]"}},
    [],
    3,
    "x, y",
    {"text": "é😀"},
]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("indent", [None, 1])
def test_items_are_those_of_the_array(at_once, indent, monkeypatch):
    monkeypatch.setattr(reading, "AT_ONCE", at_once)
    for ascii_only in (True, False):
        written = json.dumps(ITEMS, indent=indent, ensure_ascii=ascii_only)
        found = list(items_of(io.StringIO(written[1:] + " \n"), Limit()))
        assert [json.loads(item) for _, item in found] == ITEMS
        lines = written.split("\n")
        assert all(item.strip()[:9] in "\n".join(lines[line - 1 :]) for line, item in found)


def test_lines_are_those_on_which_items_begin():
    written = '\n {"a":\n 1}, {"b": 2},\n\n {"c": 3}\n]'
    assert [line for line, _ in items_of(io.StringIO(written), Limit(), 4)] == [5, 6, 8]


@pytest.mark.parametrize("written", ["]", " ]\n", "\n\n]"])
def test_an_empty_array_has_no_items(written):
    assert list(items_of(io.StringIO(written), Limit())) == []


@pytest.mark.parametrize(("written", "line"), [("1,\n2", 2), ("1]\n\n, 3]", 3), ('"a, ]', 1)])
def test_an_array_that_does_not_end_or_goes_on_is_damaged(written, line):
    with pytest.raises(DamageError) as caught:
        list(items_of(io.StringIO(written), Limit()))
    assert caught.value.number == line


def test_bad_items_cost_no_others(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text(
        '[{"text": "a"},\n{"text": tru},\n"b",\n{"text": "'
        + "c" * 99
        + '"},\n{"text": "\\ud800"}, {"text": "d"}]'
    )
    with pytest.raises(ValueError, match=r"rows.json, line 2: not valid JSON \(Expecting value"):
        list(open_documents(file))
    with pytest.warns(
        UserWarning, match=r"skipped 4 of 6 .*line 3: not keys .*line 4: has more than 50 char"
    ):
        assert list(open_documents(file, skip_bad_records=True, largest_record=50)) == ["a", "d"]
