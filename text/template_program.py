"""The process in which templates are filled in, so that whatever a template asks for comes to an end.

A template is a program, and a short one can ask for more than any machine has: `{{ 9**(9**9) }}`. Jinja's
sandbox keeps it from files, modules and the insides of objects. From more memory and processor time than one
rendering may take, the kernel keeps the process. It serves all templates, one rendering after another; where
it had to be ended, the next rendering starts another one.

    request   source, whether it is an expression, a row (`None` asks which names the template has), seconds
    answer    whether it is an error, and the value or what is wrong

This file is the program that runs there, too, and starts fast: it imports Jinja, and nothing of the library.
"""

import atexit
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock
from typing import Any, BinaryIO

from jinja2 import StrictUndefined, Undefined, meta
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_SECONDS = 2.0
"""Of the processor's time for one rendering, however busy the machine is."""

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
        """Read it."""
        number = super().__new__(cls, text)
        number.text = text.strip()
        return number

    def __reduce__(self) -> tuple[type["WrittenNumber"], tuple[str]]:
        """Be the same again in another process."""
        return WrittenNumber, (self.text,)

    def __str__(self) -> str:
        """Show it as it is written."""
        return self.text


class Reader(pickle.Unpickler):
    """Reads what the other process has written, in which this file may be the main program."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class by its name."""
        return WrittenNumber if name == WrittenNumber.__name__ else super().find_class(module, name)


class TemplateProcess:
    """The process, which starts when it is first needed and ends with this one."""

    def __init__(self):
        self.process: Popen[bytes] | None = None
        self.lock = Lock()

    def ask(self, source: str, row: Row | None, *, is_expression: bool) -> Any:
        """Fill in a row, or return the names in a template.

        Raises:
            ValueError: It is no template, cannot be filled in, or takes more than it may.
        """
        request = pickle.dumps((source, is_expression, row, MOST_SECONDS))
        with self.lock:
            process = self.started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(request)
                process.stdin.flush()
                is_error, value = Reader(process.stdout).load()
            except (EOFError, BrokenPipeError):
                signal_number = -process.wait()
                self.close()
                if signal_number == signal.SIGPROF:
                    raise ValueError(f"it takes more than {MOST_SECONDS:g} seconds") from None
                raise ValueError(f"it has ended its process ({signal_number})") from None
            except BaseException:  # an answer that nobody has read would be taken for the next one's
                self.close()
                raise
        if is_error:
            raise ValueError(value)
        return value

    def started(self) -> Popen[bytes]:
        """Return the process that runs."""
        if self.process is None:
            program = [sys.executable, "-P", __file__]
            self.process = Popen(program, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
            atexit.register(self.close)
        return self.process

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
            atexit.unregister(self.close)

    def forget(self) -> None:
        """Leave the process to the one that this one was forked from: two cannot ask over the same pipes."""
        atexit.unregister(self.close)
        self.process, self.lock = None, Lock()


PROCESS = TemplateProcess()
"""That of all templates of this program."""

os.register_at_fork(after_in_child=PROCESS.forget)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    with suppress(ValueError):  # macOS refuses
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    while True:
        try:
            source, is_expression, row, seconds = Reader(requests).load()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
        try:
            answer = pickle.dumps((False, answer_to(source, is_expression, row)))
        except MemoryError:
            answer = pickle.dumps((True, f"it needs more than {MOST_BYTES // 2**20:,} MiB of memory"))
        except Exception as error:  # whatever an expression may do with a value
            answer = pickle.dumps((True, str(error) or type(error).__name__))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(answer)
        answers.flush()


def answer_to(source: str, is_expression: bool, row: Row | None) -> Any:
    """Fill in a row, or list the names in a template."""
    names, evaluate = compiled(source, is_expression)
    if row is None:
        return names
    value = listed(evaluate({"row": row, **row}))
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, Undefined):
            str(part)  # a strict one raises, and says what it is
    if len(value if isinstance(value, str) else repr(value)) > MOST_CHARACTERS:
        raise ValueError(f"it makes more than {MOST_CHARACTERS:,} characters")
    return value


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
"""The sandbox, without `lipsum`, whose text is another each time."""
del ENVIRONMENT.globals["lipsum"]


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
