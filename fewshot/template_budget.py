"""What filling in a template may cost: characters made, steps taken and seconds of the processor.

A template is a program, and a short one can ask for more than any machine has: `{{ 9**(9**9) }}`. Whatever
can grow or repeat spends from a budget before it does, so that each rendering ends within seconds, in any
thread. A step (of a loop, of a call) counts as many characters as the template's source has, and some more.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.runtime import LoopContext

MOST_CHARACTERS = 2**26
"""Characters that one rendering makes at most, those of intermediate values included."""
MOST_SECONDS = 2.0
"""Of the processor's time in the thread that renders, however busy the machine is."""
MOST_BITS = 2**16
"""Of a whole number: twenty thousand digits."""
STEP = 64
"""Characters that a step counts as, beside those of the source."""
PLACE = 16
"""Characters that a value counts as, be it a part of a list, beside those of a text."""
SPENT_BETWEEN_LOOKS = 64
"""How often the budget is spent from between two looks at the clock."""


class Budget:
    """What is left for one rendering.

    Args:
        step: What a step counts as.
    """

    def __init__(self, step: int):
        self.step, self.left, self.times = step, MOST_CHARACTERS, 0
        self.deadline = time.thread_time() + MOST_SECONDS

    def spend(self, characters: int) -> None:
        """Take what something costs.

        Raises:
            ValueError: So much is not left.
        """
        self.left -= characters
        if self.left < 0:
            raise ValueError(f"it makes more than {MOST_CHARACTERS:,} characters or as much work")
        self.times += 1
        if self.times % SPENT_BETWEEN_LOOKS == 0 and time.thread_time() > self.deadline:
            raise ValueError(f"it takes more than {MOST_SECONDS:g} seconds")


BUDGET: ContextVar[Budget] = ContextVar("budget")
"""That of the template which this thread is filling in, or compiling."""


@contextmanager
def budget_of(source: str) -> Iterator[None]:
    """Give a template its budget for one rendering."""
    token = BUDGET.set(Budget(len(source) + STEP))
    try:
        yield
    finally:
        BUDGET.reset(token)


def spend(characters: int) -> None:
    """Take from the budget of the template that is being filled in."""
    BUDGET.get().spend(characters)


def take_step() -> None:
    """Take a step."""
    budget = BUDGET.get()
    budget.spend(budget.step)


def counted(values: Iterable[Any]) -> Iterator[Any]:
    """Go through values, a step for each."""
    for value in values:
        take_step()
        yield value


def whole(value: Any) -> Any:
    """Count all characters that a value shows, at every place at which it does, and give it back.

    An iterator is read into a list.

    Raises:
        ValueError: They are too many, or a number is too large.
    """
    if isinstance(value, Iterator) and not isinstance(value, LoopContext):
        return [whole(each) for each in counted(value)]
    if isinstance(value, str | bytes):
        spend(len(value))
    elif isinstance(value, range):
        spend(len(value) * PLACE)
    elif isinstance(value, int):
        require_bits(value.bit_length())
    elif isinstance(value, Mapping):
        for key, each in value.items():
            whole(key)
            whole(each)
    elif isinstance(value, list | tuple | Set):
        for each in value:
            whole(each)
    spend(PLACE)
    return value


def require_bits(bits: int) -> None:
    """Raise a `ValueError` if a whole number has too many."""
    if bits > MOST_BITS:
        raise ValueError(f"it makes a number of more than {MOST_BITS:,} bits")


def width(value: Any) -> int:
    """Give what an argument that is a whole number asks for; nothing if it is none."""
    return abs(value) if isinstance(value, int) else 0


def size(value: Any) -> int:
    """Return the length of an argument that is a text; nothing if it is none."""
    return len(value) if isinstance(value, str | bytes) else 0
