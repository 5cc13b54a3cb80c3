"""Templates of a task, in Jinja: sandboxed, bounded, strict about names, checked before anything is read.

Names are those of a row's columns. `row` is the row itself, for names that are none.

The sandbox has a budget: what a template makes and how long it works has a bound. Operators and calls pass
through it anyway, filters are wrapped. Loops, `~` and lists, which Jinja compiles to plain Python, are
rewritten to filters that count. `lipsum`, whose text is another each time, is left out. Costs are characters
of what operators, methods and filters make, an upper bound that is known before they begin. Work that grows
with a square counts less, since a processor compares and copies many characters at a time.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from difflib import get_close_matches
from functools import wraps
from typing import Any, Literal

from jinja2 import StrictUndefined, TemplateError, Undefined, meta, nodes
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.visitor import NodeTransformer

from ..ground.messages import first_line
from ..text.bad_records import foreign_character
from .template_budget import budget_of, counted, require_bits, size, spend, take_step, whole, width

AT_A_TIME = 64
"""Characters that are compared or copied in the time that one is made."""
NUMBER = re.compile(r"\d{1,18}")


def widths_in(pattern: Any) -> int:
    """Add up the widths that a format asks for.

    >>> widths_in("%5d and %-1000s")
    1005
    """
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    return sum(map(int, NUMBER.findall(text))) if isinstance(text, str) else 0


def spend_on_formatting(pattern: Any, values: Any) -> None:
    """Spend what `pattern % values` costs: each place may show the longest value, as wide as it says."""
    places = pattern.count("%" if isinstance(pattern, str) else b"%")
    values = list(values.values()) if isinstance(values, Mapping) else values
    values = values if isinstance(values, tuple | list) else [values]
    longest = max((shown(value) for value in values), default=0)
    has_stars = b"*" in pattern if isinstance(pattern, bytes) else "*" in pattern
    stars = sum(map(width, values)) if has_stars else 0
    spend(len(pattern) + places * longest + widths_in(pattern) + stars)


def shown(value: Any) -> int:
    """Bound the characters that a value shows."""
    if isinstance(value, str | bytes):
        return len(value)
    whole(value)
    return 400 if isinstance(value, int | float) else len(str(value))


def spend_on_operator(operator: str, left: Any, right: Any) -> None:
    """Spend what an operator costs.

    Raises:
        ValueError: It costs too much.
    """
    are_whole = isinstance(left, int) and isinstance(right, int)
    if operator == "**":
        if are_whole:
            require_bits(left.bit_length() * max(right, 0))
    elif operator == "*":
        if are_whole:
            require_bits(left.bit_length() + right.bit_length())
        for values, times in ((left, right), (right, left)):
            if isinstance(values, str | bytes):
                spend(len(values) * width(times))
            elif isinstance(values, list | tuple) and isinstance(times, int):
                spend(len(values) * max(times, 0))
    elif operator == "%" and isinstance(left, str | bytes):
        spend_on_formatting(left, right)


def _square(text: Any, other: Any = None, *others: Any) -> int:
    """Search from the end, or for many characters: each place may be compared with all of another text."""
    return size(text) * size(other) // AT_A_TIME


def _replaced(text: Any, old: Any = "", new: Any = "", count: Any = None) -> int:
    if not (isinstance(text, str | bytes) and isinstance(old, type(text))):
        return size(text)
    places = text.count(old)  # pyright: ignore[reportArgumentType]
    return size(text) + places * size(new)


def _joined(separator: Any, values: Any = ()) -> int:
    return len(values) * size(separator) if isinstance(values, Sized) else 0


def _translated(text: Any, table: Any = None) -> int:
    return size(text) * max(map(size, table.values()), default=0) if isinstance(table, Mapping) else 0


def _encoded(text: Any, *arguments: Any, **others: Any) -> int:
    """Some encodings (punycode) take a time that grows with the square."""
    return size(text) ** 2 // AT_A_TIME if arguments or others else size(text) * 4


def _wide(text: Any, wanted: Any = 0, *others: Any) -> int:
    return size(text) + width(wanted)


METHODS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _wide),
    **dict.fromkeys(("strip", "lstrip", "rstrip", "rfind", "rindex", "rsplit", "rpartition"), _square),
    **dict.fromkeys(("encode", "decode"), _encoded),
    "expandtabs": lambda text, tabsize=8: size(text) * max(1, width(tabsize)),
    "replace": _replaced,
    "join": _joined,
    "translate": _translated,
    "to_bytes": lambda number, length=1, *others, **more: width(length),
    "strftime": lambda moment, pattern="": widths_in(pattern),
}
"""Name of a method -> what a call costs, beside what it gives."""


def _joined_by(values: Any, d: Any = "", attribute: Any = None) -> int:
    return _joined(d, values)


def _indented(s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> int:
    wide = len(width) if isinstance(width, str) else abs(width) if isinstance(width, int) else 0
    return size(s) + (s.count("\n") + 1) * wide if isinstance(s, str) else 0


def _wrapped(
    s: Any, width: Any = 79, break_long_words: Any = True, wrapstring: Any = None, *others: Any, **more: Any
) -> int:
    if not isinstance(s, str):
        return 0
    wide = max(1, width) if isinstance(width, int) else 1
    longest = max(map(len, s.split()), default=0)
    lines = 2 * len(s) // wide + s.count("\n") + 1
    return len(s) * 8 + longest**2 // (AT_A_TIME * wide) + lines * size(wrapstring)


def _filled(value: Any, linecount: Any = 1, fill_with: Any = None) -> int:
    return width(linecount) if fill_with is not None else 0


def _json(value: Any, indent: Any = None) -> int:
    return (1 + width(indent) * 64) * (1 if size(value) else _places(value))


def _places(value: Any) -> int:
    values = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    )
    return 1 + sum(map(_places, values))


def _links(value: Any, *arguments: Any, **others: Any) -> int:
    return size(value) * (8 + sum(map(size, (*arguments, *others.values()))))


def _rounded(value: Any, precision: Any = 0, method: Any = "common") -> int:
    if width(precision) > 400:
        raise ValueError(f"round({precision}) asks for more digits than a number has")
    return 0


def _summed(iterable: Any, attribute: Any = None, start: Any = 0) -> int:
    if not isinstance(start, int | float):
        raise ValueError("sum adds numbers: join lists and texts with `+`")
    return 0


def _formatted(value: Any, *arguments: Any, **others: Any) -> int:
    if isinstance(value, str):
        spend_on_formatting(value, others or arguments)
    return 0


FILTERS: dict[str, Callable[..., int]] = {
    "batch": _filled,
    "center": _wide,
    "format": _formatted,
    "indent": _indented,
    "join": _joined_by,
    "pprint": lambda value: 16 * _places(value),
    "replace": lambda s, old="", new="", count=None: _replaced(s, old, new),
    "round": _rounded,
    "slice": lambda value, slices=1, fill_with=None: width(slices) * AT_A_TIME,
    "striptags": lambda value: size(value) * (value.count("<") if isinstance(value, str) else 0) // AT_A_TIME,
    "sum": _summed,
    "tojson": _json,
    "trim": _square,
    "urlize": _links,
    "wordwrap": _wrapped,
}
"""Name of a filter -> what it costs, beside what it is given and gives."""


COUNTED, WHOLE, JOINED = "counted steps", "whole value", "joined texts"
"""Names of filters that no template can spell."""


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox in which a template spends from its `budget_of`.

    Args:
        finalize: What is done with a value that is shown.
    """

    intercepted_binops = frozenset({"**", "*", "+", "%"})

    def __init__(self, finalize: Callable[[Any], Any]):
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            finalize=lambda value: whole(finalize(value)),
        )
        self.filters = {name: _budgeted(name, function) for name, function in self.filters.items()}
        self.filters |= {COUNTED: counted, WHOLE: whole, JOINED: _join}
        del self.globals["lipsum"]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute what an operator gives, if the budget allows for it."""
        take_step()
        spend_on_operator(operator, left, right)
        return whole(super().call_binop(context, operator, left, right))

    def call(  # pyright: ignore[reportIncompatibleMethodOverride]
        __self,  # noqa: N805 - as in Jinja, a template's keyword may be called `self`
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Call a method, a macro or `loop`, if the budget allows for it."""
        take_step()
        if isinstance(__obj, LoopContext):
            return super().call(__context, __obj, *map(counted, args), **kwargs)
        args = tuple(map(whole, args))
        kwargs = {name: whole(value) for name, value in kwargs.items()}
        cost = METHODS.get(getattr(__obj, "__name__", ""))
        if cost is not None:
            owner = getattr(__obj, "__self__", None)
            spend(size(owner))
            _spend_on(cost, owner, *args, **kwargs)
        return whole(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Give what formats a text in place of its method `format`, within the budget."""
        original = super().wrap_str_format(value)
        if original is None:
            return None
        text, is_mapping = value.__self__, value.__name__ == "format_map"
        formatter = _BudgetedFormatter(self)

        def format_text(*args: Any, **kwargs: Any) -> str:
            return formatter.vformat(text, *(((), args[0]) if is_mapping else (args, kwargs)))

        return format_text

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        return super()._generate(_Counting().visit(source), name, filename, defer_init)


class _Counting(NodeTransformer):
    """Rewrite what Jinja compiles to plain Python, so that it counts."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - Jinja's name
        """Count the steps of a loop."""
        self.generic_visit(node)
        node.iter = _filter(node.iter, COUNTED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        """Count the characters of `a ~ b`."""
        self.generic_visit(node)
        return _filter(nodes.Tuple(node.nodes, "load", lineno=node.lineno), JOINED)

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        """Count what a list shows, since each of its parts may be another such list."""
        self.generic_visit(node)
        return _filter(node, WHOLE)

    visit_Dict = visit_List  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        """Count what a tuple shows, unless it is what a loop assigns to."""
        self.generic_visit(node)
        return _filter(node, WHOLE) if node.ctx == "load" else node


class _BudgetedFormatter(SandboxedFormatter):
    """The sandbox's formatter of `str.format`, within the budget."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format a value as wide as is said, if the budget allows for it."""
        whole(value)
        spend(widths_in(format_spec))
        return whole(super().format_field(value, format_spec))


def _filter(node: nodes.Node, name: Literal["counted steps", "whole value", "joined texts"]) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _join(values: tuple[Any, ...]) -> str:
    return "".join(str(value) for value in whole(values))


def _budgeted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a filter spend what it costs, what it is given and what it gives."""
    first = int(hasattr(function, "jinja_pass_arg"))

    @wraps(function)
    def spending(*args: Any, **kwargs: Any) -> Any:
        take_step()
        passed, given = args[:first], [whole(value) for value in args[first:]]
        if name in FILTERS:
            _spend_on(FILTERS[name], *given, **kwargs)
        return whole(function(*passed, *given, **{key: whole(value) for key, value in kwargs.items()}))

    return spending


def _spend_on(cost: Callable[..., int], *args: Any, **kwargs: Any) -> None:
    try:
        characters = cost(*args, **kwargs)
    except TypeError:  # arguments that it does not have, or of other types: it refuses them itself
        return
    spend(characters)


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
    """Return whether a row has no value here: null, or the NaN that tables write for it."""
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
