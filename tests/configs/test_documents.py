"""What a YAML document stands for is bounded, and what two keys become is one thing or an error."""

from time import perf_counter

import pytest
import yaml

from tercet.configs.documents import MOST_VALUES, read_document, write_document
from tercet.configs.recipe import read_overrides

FOLDED = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 10)]
)
"""Ten lines that stand for 9 ** 10 values."""

MERGED = "\n".join(
    ["a0: &a0 {x: 1}"]
    + [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, 10)]
)
"""The same by way of merged keys."""


def refusal(text: str) -> str:
    started = perf_counter()
    with pytest.raises(ValueError, match=r".") as caught:
        read_document(text)
    assert perf_counter() - started < 30
    return str(caught.value)


@pytest.mark.parametrize("text", [FOLDED, MERGED])
def test_aliases_that_stand_for_more_than_memory_holds_are_refused_at_once(text):
    assert refusal(text) == f"more than {MOST_VALUES:,} values, by way of aliases: write fewer (line 6)"
    with pytest.raises(ValueError, match="by way of aliases"):
        read_overrides(["model={" + text.replace("\n", ", ") + "}"])


def test_what_is_written_out_is_bounded_alike(monkeypatch):
    monkeypatch.setattr("tercet.configs.documents.MOST_VALUES", 10)
    assert len(read_document(f"[{'a, ' * 9}]")) == 9
    assert refusal(f"[{'a, ' * 10}]") == "more than 10 values: write fewer (line 1)"


def test_an_alias_counts_for_what_it_names(monkeypatch):
    monkeypatch.setattr("tercet.configs.documents.MOST_VALUES", 10)
    assert read_document("[&a [1, 2], *a, *a]") == [[1, 2]] * 3  # 1 + 3 * 3 values
    assert "by way of aliases" in refusal("[&a [1, 2], *a, *a, 1, *a]")


def test_a_long_row_of_digits_is_read_at_once():
    text = "1" * 100_000 + "x"
    started = perf_counter()
    assert read_document(text) == text
    assert perf_counter() - started < 10


@pytest.mark.parametrize(
    "text", ["{1: a, '1': b}", "{true: a, 'true': b}", "{null: a, 'null': b}", "{1: a, true: b}"]
)
def test_keys_that_would_become_one_are_refused(text):
    assert "is given twice (line 1)" in refusal(text)


def test_escapes_of_json_are_whole_characters():
    assert read_document(r'"\ud83d\ude00"') == "\N{GRINNING FACE}"
    assert "half of a character" in refusal(r'"\ude00"')


TEXTS = [
    *("08", "007", "0912345", "0_8", "1e3", "1E3", "1.5e3", "25921e05", "695e0514", "+.5", "-1e-3", "1_0.5"),
    *("0x1F", "0b1", "1:20", "2024-01-01", ".inf", ".NaN", "yes", "null", "~", "", "=", "<<", "- a", "a: b"),
    *("#2", "&a", "*a", "!!int 1", "\N{GRINNING FACE}", "two\nlines ", "next\x85line", "word " * 40),
]
NUMBERS = [8, -10, 10**30, 0.5, 1e3, 1e-5, 1e30, float("inf"), True, None]


def test_texts_that_look_like_numbers_are_read_as_the_texts_that_were_written():
    data = {"values": [*TEXTS, *NUMBERS], "texts": {text: text for text in TEXTS}}
    read = read_document(write_document(data))
    assert read == data
    assert [*map(type, read["values"])] == [*map(type, data["values"])]
    assert yaml.safe_load(write_document(TEXTS)) == TEXTS  # as do other programs
