"""Templates of a task, in Jinja: sandboxed, bounded, strict about names, checked before anything is read.

Names are those of a row's columns. `row` is the row itself, for names that are none.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from jinja2 import TemplateError, Undefined, meta

from ..interop.messages import first_line
from ..text.bad_records import foreign_character
from .template_budget import budget_of, whole
from .template_sandbox import BudgetedEnvironment

Row = dict[str, Any]
"""The values of one row, by the names of the columns."""

MARK = "\0"
"""What stands for the hole of a text, once a row is filled in."""


def required(value: Any) -> Any:
    """Return a value that a text shall show, or raise a `ValueError` if there is none."""
    if is_missing(value):
        raise ValueError("a value is null" if value is None else "a value is NaN")
    return value


def is_missing(value: Any) -> bool:
    """Tell whether a row has no value here: null, or the NaN that tables write for it."""
    return value is None or (isinstance(value, float) and value != value)


def defined(value: Any) -> Any:
    """Return what an expression gives, or raise an `UndefinedError` if it names what a row does not have."""
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, Undefined):
            str(part)  # a strict one raises, and says what it is
    return value


def readable(value: Any) -> Any:
    """Return a text, or texts, that a tokenizer reads, or raise a `ValueError`: JSON can write others."""
    for part in value if isinstance(value, list | tuple) else [value]:
        foreign = foreign_character(part) if isinstance(part, str) else ""
        if foreign not in ("", MARK):
            raise ValueError(f"it has {foreign!r}, which is no character")
    return value


ENVIRONMENT = BudgetedEnvironment(finalize=required)


class Template:
    """A text with holes, or an expression.

    Args:
        name: Key of the recipe, for messages.
        source: What the recipe says there.
        is_expression: Whether it gives a value rather than a text.
        hole: Characters of the source for which a text has `MARK`, since a row may hold the same ones.

    Raises:
        ValueError: It is no Jinja.
    """

    def __init__(self, name: str, source: str, *, is_expression: bool = False, hole: str = ""):
        self.name, self.source = name, source
        self.text = f"{{{{ {source} }}}}" if is_expression else source.replace(hole, MARK) if hole else source
        try:
            self._compile(is_expression)
        except (
            TemplateError,
            RecursionError,
            SyntaxError,
            MemoryError,
        ) as error:  # all are the source's fault
            raise ValueError(
                f"{name} = {source!r} is not a valid template ({first_line(error)}): correct it"
            ) from None

    def _compile(self, is_expression: bool) -> None:
        with budget_of(self.text):
            self.names = meta.find_undeclared_variables(ENVIRONMENT.parse(self.text)) - {"row"}
            self.evaluate = (
                ENVIRONMENT.compile_expression(self.source, undefined_to_none=False)
                if is_expression
                else ENVIRONMENT.from_string(self.text).render
            )

    def require_columns(self, source: str, columns: Iterable[str]) -> None:
        """Raise a `ValueError` if the template names a column that rows do not have."""
        columns = list(columns)
        for missing in sorted(self.names - set(columns) - set(ENVIRONMENT.globals)):
            near = get_close_matches(missing, columns, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(columns)}"
            raise ValueError(f"{self.name} names {missing!r}, which {source} has no column for; {hint}")

    def __call__(self, row: Row) -> Any:
        """Fill in a row.

        Raises:
            ValueError: The row has no value for a name, or none that the template can use, or filling it in
                makes more or takes longer than it may (`template_budget`).
        """
        try:
            with budget_of(self.text):
                return readable(whole(defined(self.evaluate({**row, "row": row}))))
        except Exception as error:  # whatever an expression may do with a value
            raise ValueError(
                f"{self.name} = {self.source!r} cannot be rendered ({first_line(error)}): correct the row, "
                f"or the template"
            ) from None
