"""The process of `template_program.py`, which fills in the templates of others: of tasks, and of chats.

One serves all templates, one rendering after another. Where it had to be ended, the next one starts another.
"""

import atexit
import os
import pickle
import signal
from collections.abc import Sequence
from subprocess import DEVNULL, PIPE
from threading import Lock
from typing import Any, NamedTuple

from ...configs.processes import Program, start_python
from . import template_program
from .template_program import Row, WrittenNumber

MOST_SECONDS = 2.0
"""Of the processor's time for one rendering, however busy the machine is."""


VALUES = {"builtins", "datetime", "decimal", "markupsafe", "uuid", "zoneinfo"}
"""Modules of the classes that an answer may consist of, beside texts, numbers, lists and dictionaries."""


class AnswerReader(pickle.Unpickler):
    """Reads values, and no others: of what made them, a template of somebody else decided."""

    def find_class(self, module: str, name: str) -> Any:
        if name == WrittenNumber.__name__:
            return WrittenNumber
        if module in VALUES and isinstance(found := super().find_class(module, name), type):
            return found
        raise pickle.UnpicklingError(f"it gives a {module}.{name}, which is no value")


class Answers(NamedTuple):
    """What became of the items of a request."""

    values: list[Any]
    """What was rendered of the first items, up to one that failed."""
    problem: str = ""
    """What is wrong with the next item; empty if all were filled in."""


class TemplateProcess:
    """The process, which starts when it is first needed and ends with this one."""

    def __init__(self):
        self.process: Program | None = None
        self.lock = Lock()

    def ask(self, source: str, row: Row | None, *, is_expression: bool) -> Any:
        """Fill in a row, or return the names in a template.

        Raises:
            ValueError: It is no template, cannot be filled in, or takes more than it may.
        """
        answers = self.ask_all("expression" if is_expression else "text", source, [row])
        if answers.problem:
            raise ValueError(answers.problem)
        return answers.values[0]

    def ask_all(self, kind: str, source: Any, items: Sequence[Any]) -> Answers:
        """Fill in items up to the first that fails; `template_program.py` lists the kinds."""
        request = pickle.dumps((kind, source, list(items), MOST_SECONDS))
        values: list[Any] = []
        with self.lock:
            process = self.started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(request)
                process.stdin.flush()
                while len(values) < len(items):
                    is_error, value = AnswerReader(process.stdout).load()
                    if is_error:
                        return Answers(values, value)
                    values.append(value)
                return Answers(values)
            except (EOFError, BrokenPipeError):
                signal_number = -process.wait()
                self.close()
                if signal_number == signal.SIGPROF:
                    return Answers(values, f"it takes more than {MOST_SECONDS:g} seconds")
                return Answers(values, f"it has ended its process ({signal_number})")
            except pickle.UnpicklingError as error:
                self.close()
                return Answers(values, str(error))
            except BaseException:  # an answer that nobody has read would be taken for the next one's
                self.close()
                raise

    def started(self) -> Program:
        if self.process is None:
            program = str(template_program.__file__)
            self.process = start_python(
                [program], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
            )
            atexit.register(self.close)
        return self.process

    def close(self) -> None:
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
