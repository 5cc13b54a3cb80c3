"""Warnings on the command line: each once, in one line, without the source that it comes from."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def warnings_in_lines(command: str) -> Iterator[None]:
    """Show warnings as lines of a command, as a context."""
    told: set[str] = set()
    earlier = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = " ".join(str(message).split())
        if text not in told:
            told.add(text)
            say(f"tercet {command}: warning: {text}", file or sys.stderr)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = earlier


def say(line: str, file: TextIO | None) -> None:
    """Print a line, above the progress bars if some are shown."""
    bars = sys.modules.get("tqdm")
    if file is None:
        return
    try:
        if bars is not None:
            bars.tqdm.write(line, file=file)
            return
    except RuntimeError:
        pass  # Other threads open and close bars meanwhile: those of huggingface_hub have their own lock.
    print(line, file=file, flush=True)
