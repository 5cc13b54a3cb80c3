"""Templates of a task, in Jinja: sandboxed, bounded, strict about names, checked before anything is read.

Names are those of a row's columns. `row` is the row itself, for names that are none, unless a column
is called so.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ...configs.messages import first_line
from ...data.files.problems import foreign_character
from ...data.files.template_process import PROCESS
from ...data.files.template_program import Row
from ..tasks.recipes import TemplateFields

MARK = "\0"
"""What stands for the hole of a text, once a row is filled in."""


class Template:
    """A text with holes, or an expression.

    Args:
        name: Key of the recipe, for messages.
        source: What the recipe says there.
        is_expression: Whether it gives a value rather than a text.
        hole: Characters of the source for which a text has `MARK`, since a row may hold the same ones.
    """

    def __init__(self, name: str, source: str, *, is_expression: bool = False, hole: str = ""):
        self.name, self.source, self.is_expression = name, source, is_expression
        self.text = source.replace(hole, MARK) if hole else source
        try:
            self.names: set[str] = PROCESS.ask(self.text, None, is_expression=is_expression)
        except ValueError as error:
            raise ValueError(
                f"{name} = {source!r} is not a valid template ({first_line(error)}): correct it"
            ) from None

    def require_columns(self, source: str, columns: Iterable[str]) -> None:
        """Raise a `ValueError` if the template names a column that rows do not have."""
        columns = list(columns)
        for missing in sorted(self.names - set(columns)):
            near = get_close_matches(missing, columns, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(columns)}"
            raise ValueError(f"{self.name} names {missing!r}, which {source} has no column for; {hint}")

    def __call__(self, row: Row) -> Any:
        """Fill in a row.

        Raises:
            ValueError: The row has no value for a name, or none that the template can use, or filling it in
                makes more or takes longer than it may (`template_process`).
        """
        try:
            return readable(PROCESS.ask(self.text, row, is_expression=self.is_expression))
        except ValueError as error:
            raise ValueError(
                f"{self.name} = {self.source!r} cannot be rendered ({first_line(error)}): correct the row, "
                f"or the template"
            ) from None


def readable(value: Any) -> Any:
    """Return a text, or texts, that a tokenizer reads, or raise a `ValueError`: JSON can write others."""
    for part in value if isinstance(value, list | tuple) else [value]:
        foreign = foreign_character(part) if isinstance(part, str) else ""
        if foreign not in ("", MARK):
            raise ValueError(f"it has {foreign!r}, which is no character")
    return value


def templates_of(fields: TemplateFields, values: Mapping[str, Any]) -> dict[str, Template]:
    """Build the templates of a task, by the fields of its recipe."""
    expressions = {*fields.expressions, *(name for name, flag in fields.lists.items() if values[flag])}
    sources = {name: values.get(name) for name in (*fields.texts, *fields.expressions)}
    return {
        name: Template(
            f"task.{name}",
            source,
            is_expression=name in expressions,
            hole="" if name in expressions else fields.hole,
        )
        for name, source in sources.items()
        if isinstance(source, str)  # choices may be a list
    }
