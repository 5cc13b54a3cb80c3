"""What the process of templates answers, and that only values come back from it."""

import datetime
import io
import os
import pickle

import pytest

from tercet.data.files.template_process import PROCESS, AnswerReader
from tercet.data.files.template_program import WrittenNumber


def test_items_are_answered_up_to_the_first_that_fails():
    rows = [{"n": 1}, {"n": 2}, {"n": 0}, {"n": 4}]
    assert PROCESS.ask_all("expression", "4 / n", rows) == ([4.0, 2.0], "division by zero")
    assert PROCESS.ask_all("text", "{{ n }}", rows) == (["1", "2", "0", "4"], "")


@pytest.mark.parametrize("value", [["a", 1.5, {"b": None}], datetime.date(2026, 1, 2), {1, 2}, b"c"])
def test_values_come_back(value):
    assert AnswerReader(io.BytesIO(pickle.dumps(value))).load() == value
    assert str(AnswerReader(io.BytesIO(pickle.dumps(WrittenNumber("1.50")))).load()) == "1.50"


class Call:
    """Ask whoever unpickles it to call a function."""

    def __init__(self, function):
        self.function = function

    def __reduce__(self):
        return self.function, ("echo a template has escaped",)


@pytest.mark.parametrize(
    "function", [os.system, eval, exec, getattr, os.open], ids=lambda each: each.__name__
)
def test_nothing_is_called_to_make_an_answer(function):
    with pytest.raises(pickle.UnpicklingError, match="which is no value"):
        AnswerReader(io.BytesIO(pickle.dumps(Call(function)))).load()
