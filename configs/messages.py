"""Messages for users: others' messages in one line, lists that end, and no noise from libraries.

None of these is imported before it is needed: commands answer wrong recipes at once.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import RLock

LONGEST = 200
"""Characters of a foreign message that fit into one of ours."""


class LinesError(ValueError):
    """An error whose few lines are shown as they are; all others become one line."""


def first_line(error: BaseException | None) -> str:
    """Return the first line of what an error says, or what it is called if it says nothing.

    Of a configuration's field it is the whole last line, without the kind of error: others name the check.
    """
    from huggingface_hub.errors import StrictDataclassError  # takes half a second

    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, StrictDataclassError):
        return re.sub(r"^\w+Error: ", "", lines[-1].strip())
    return lines[0] if len(lines[0]) <= LONGEST else f"{lines[0][:LONGEST]} ..."


def shortened(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    rest = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def counted(number: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "row"), counted(1600, "training row")
    ('1 row', '1,600 training rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@contextmanager
def in_part(part: str) -> Iterator[None]:
    """Let errors say in which part of a recipe the keys are that they name.

    >>> with in_part("general"):
    ...     raise ValueError("corpus.streaming is true: set corpus.streaming=false")
    Traceback (most recent call last):
    ValueError: general: corpus.streaming is true: set corpus.streaming=false
    """
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(f"{part}: {error}") from error


_ONE_AT_A_TIME = RLock()


@contextmanager
def quietly() -> Iterator[None]:
    """Silence what transformers reports of a model that is examined here anyway, and its progress bars.

    One thread at a time: what is switched is the process's. So is what `from_pretrained` puts in the place of
    `PreTrainedModel.tie_weights` meanwhile, and two that load at once would leave there.
    """
    from transformers.utils import logging

    with _ONE_AT_A_TIME:
        verbosity, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if shows_progress:
                logging.enable_progress_bar()


def is_panic(error: BaseException) -> bool:
    """Return whether an error is one that a library in Rust ends its program with: no `Exception`."""
    return type(error).__name__ == "PanicException"


@contextmanager
def panics_told(who: str) -> Iterator[None]:
    """Raise a `ValueError` that names `who` where a library in Rust panics, without what that prints."""
    with TemporaryFile() as printed:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(printed.fileno(), 2)
        try:
            yield
        except BaseException as error:
            if not is_panic(error):
                raise
            printed.truncate(0)
            raise ValueError(
                f"{who} is damaged (tokenizers: {first_line(error)}): copy or save it again"
            ) from None
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            printed.seek(0)
            if said := printed.read():
                os.write(2, said)
