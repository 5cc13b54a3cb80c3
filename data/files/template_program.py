"""The program in which templates are filled in, so that whatever a template asks for comes to an end.

A template is a program, and a short one can ask for more than any machine has: `{{ 9**(9**9) }}`. Jinja's
sandbox keeps it from files, modules and the insides of objects. From more memory and processor time than one
rendering may take, the kernel keeps the process.

    request   kind, source, items, seconds that each may take
    answers   for each item, up to the first that fails: whether it is an error, the value or what is wrong

    kind         source                              item                             value
    text         a task's template                   a row, or `None` for its names   a text
    expression   a task's                            the same                         any
    chat         a tokenizer's, its special tokens   a `Chat`                         a text, spans of answers

Transformers' own function renders chats, and is imported for the first of them. `template_process.py` starts
this file as a program: it imports Jinja, and nothing of the library.
"""

import pickle
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO, NamedTuple

from jinja2 import StrictUndefined, Undefined, meta
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_BYTES = 2**29
"""Of the process's memory, which holds what a rendering makes on its way; macOS has no such limit."""

MOST_CHARACTERS = 2**26
"""Of what a template gives."""

Row = dict[str, Any]
"""The values of one row, by the names of the columns."""


class WrittenNumber(float):
    """A number of a table, which compares and computes as one, and is shown as it is written there."""

    text: str

    def __new__(cls, text: str) -> "WrittenNumber":
        number = super().__new__(cls, text)
        number.text = text.strip()
        return number

    def __reduce__(self) -> tuple[type["WrittenNumber"], tuple[str]]:
        return WrittenNumber, (self.text,)

    def __str__(self) -> str:
        return self.text


class Chat(NamedTuple):
    """A dialogue that a tokenizer's chat template writes."""

    messages: list[dict[str, str]]
    """Each with a `role` and a `content`."""
    is_prompt: bool = False
    """Whether the generation prompt follows."""
    marks_answers: bool = False
    """Whether the spans of what stands between `{% generation %}` and its end are asked for."""


class RequestReader(pickle.Unpickler):
    """Reads what the process that asks has written, in which this file has another name."""

    def find_class(self, module: str, name: str) -> Any:
        own = {WrittenNumber.__name__: WrittenNumber, Chat.__name__: Chat}
        return own.get(name) or super().find_class(module, name)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    limit_memory()
    while True:
        try:
            kind, source, items, seconds = RequestReader(requests).load()
        except EOFError:
            return
        if kind == "chat":
            import_transformers()
        for item in items:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
            try:
                is_error, answer = False, pickle.dumps((False, KINDS[kind](source, item)))
            except MemoryError:
                problem = f"it needs more than {MOST_BYTES // 2**20:,} MiB of memory"
                is_error, answer = True, pickle.dumps((True, problem))
            except Exception as error:  # whatever an expression may do with a value
                is_error, answer = True, pickle.dumps((True, str(error) or type(error).__name__))
            signal.setitimer(signal.ITIMER_PROF, 0)
            answers.write(answer)
            answers.flush()  # whatever becomes of the next item
            if is_error:
                break


def limit_memory(used: int = 0) -> None:
    """Let the process have `MOST_BYTES` of memory more than it uses."""
    with suppress(ValueError):  # macOS refuses
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, most))


@cache
def import_transformers() -> None:
    """Import what renders chats, whose own memory does not count."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    import transformers.utils.chat_template_utils  # noqa: F401

    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as pages:  # of Linux alone
        limit_memory(int(pages.read().split()[0]) * resource.getpagesize())


def write_text(source: str, row: Row | None) -> Any:
    """Fill in a row, or list the names in a template."""
    return filled_in(source, row, is_expression=False)


def evaluate(source: str, row: Row | None) -> Any:
    """Compute an expression of a row, or list the names in it."""
    return filled_in(source, row, is_expression=True)


def filled_in(source: str, row: Row | None, *, is_expression: bool) -> Any:
    """Fill in a row, or list the names in a template."""
    names, evaluate = compiled(source, is_expression)
    if row is None:
        return names
    value = listed(evaluate({"row": row, **row}))
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, Undefined):
            str(part)  # a strict one raises, and says what it is
    require_bound(value if isinstance(value, str) else repr(value))
    return value


def require_bound(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it makes more than {MOST_CHARACTERS:,} characters")


@cache
def compiled(source: str, is_expression: bool) -> tuple[set[str], Callable[[Row], Any]]:
    """Return the names of the columns that a template shows, and what fills it in."""
    text = f"{{{{ {source} }}}}" if is_expression else source
    names = meta.find_undeclared_variables(ENVIRONMENT.parse(text)) - {"row", *ENVIRONMENT.globals}
    if is_expression:
        return names, ENVIRONMENT.compile_expression(source, undefined_to_none=False)
    return names, ENVIRONMENT.from_string(text).render


def listed(value: Any) -> Any:
    """Return a value, or as a list what a filter gives one by one."""
    is_given_one_by_one = isinstance(value, Iterator) and not isinstance(value, LoopContext)
    return [listed(part) for part in value] if is_given_one_by_one else value


def required(value: Any) -> Any:
    """Return a value that a text shall show, or raise a `ValueError` if there is none."""
    if is_missing(value):
        raise ValueError("a value is null" if value is None else "a value is NaN")
    return listed(value)


def is_missing(value: Any) -> bool:
    """Return whether a row has no value here: null, or the NaN that tables write for it."""
    return value is None or (isinstance(value, float) and value != value)


ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, keep_trailing_newline=True, finalize=required
)
"""The sandbox of tasks, without `lipsum`, whose text is another each time."""
del ENVIRONMENT.globals["lipsum"]


def write_chat(source: tuple[str, dict[str, Any]], chat: Chat) -> tuple[str, list[tuple[int, int]]]:
    """Write a dialogue as its text, with the spans of characters that the template marks as answers."""
    from transformers.utils.chat_template_utils import render_jinja_template

    template, special_tokens = source
    texts, spans = render_jinja_template(
        conversations=[chat.messages],
        chat_template=template,
        return_assistant_tokens_mask=chat.marks_answers,
        add_generation_prompt=chat.is_prompt,
        **special_tokens,
    )
    require_bound(texts[0])
    return texts[0], [(int(begin), int(end)) for begin, end in (spans[0] if chat.marks_answers else ())]


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "text": write_text,
    "expression": evaluate,
    "chat": write_chat,
}
"""Kind of a request -> what makes the value of an item."""


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # whatever a library prints is no answer
    serve(sys.stdin.buffer, answers)
