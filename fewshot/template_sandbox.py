"""Jinja's sandbox with a budget: what a template makes and how long it works has a bound.

Operators and calls pass through the sandbox anyway, filters are wrapped. Loops, `~` and lists, which Jinja
compiles to plain Python, are rewritten to filters that count. `lipsum`, whose text is another each time, is
left out.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

from jinja2 import StrictUndefined, nodes
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.visitor import NodeTransformer

from .template_budget import counted, size, spend, take_step, whole
from .template_costs import FILTERS, METHODS, spend_on_operator, widths_in

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
