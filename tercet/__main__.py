"""The command line's entry: what went wrong becomes one line, and the exit code says whose fault it was."""

import atexit
import os
import select
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TextIO

from . import calls
from .command_line import parse
from .configs.messages import LinesError, is_panic
from .configs.processes import safe_path
from .configs.terminal import plain_streams
from .finished_reports import ReportError

WRONG_USAGE = (ValueError, FileNotFoundError)
"""Errors that are the user's, and say what to do."""

EXIT_CODES = {
    0: "done",
    1: "failure, or a check failed",
    2: "wrong usage: of an option, a recipe, a file",
    130: "interrupted",
    141: "nobody reads the output any more, as behind a pipe into `head`",
}
"""What the exit code of a command says."""

LONGEST = 1200
"""Characters of a message, which may quote what somebody has written."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `--debug` lets exceptions through with their traceback.

    Without arguments, those of the process are meant, and it ends with the command.
    """
    calls.bound_spinning()
    hide_bars()
    calls.imports_stay = arguments is None
    status = run_one(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        end_process(status)
    return status


def run_one(arguments: Sequence[str]) -> int:
    """Run one command, and tell what its output was if nobody reads it any more; return the exit code."""
    try:
        try:
            with plain_streams():
                return run_command(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here an error can still be told, and not when Python ends
    except BrokenPipeError as error:
        if sys.stdout is None or not is_unread(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return 141


def hide_bars() -> None:
    """Keep libraries from drawing progress bars where no terminal shows them; to be called before they load.

    Our own bars look for themselves. What the user has set stays.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        for library in ("HF_HUB", "HF_DATASETS"):  # transformers follows the first
            os.environ.setdefault(f"{library}_DISABLE_PROGRESS_BARS", "1")


def run_command(arguments: Sequence[str]) -> int:
    """Run one command, and say in one line what went wrong."""
    options = parse(arguments)
    try:
        with warnings_in_lines(options.command), safe_path():
            options.run(options)
        leave_processes()
    except KeyboardInterrupt as interruption:
        remedy = "interrupted; continue with --resume" if "resume" in options else "interrupted"
        print(f"tercet {options.command}: {str(interruption) or remedy}", file=sys.stderr)
        return 130
    except BaseException as error:
        if options.debug or is_unread(error) or not (isinstance(error, Exception) or is_panic(error)):
            raise
        print(f"tercet {options.command}: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, WRONG_USAGE) or is_named(error) else 1
    return 0


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


def leave_processes() -> None:
    """Leave the group of a launch that succeeded."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def end_process(status: int) -> NoReturn:
    """End this process as Python does, but for its teardown, which would take all apart that was imported.

    The threads of gloo live as long as anything refers to their group, as the parts of a sharded model do.
    One that needs Python in the teardown aborts the process, and a launch fails after a whole run.
    """
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()  # trackers send their last values here
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(status)


def one_line(error: BaseException) -> str:
    """Print an error in one line, with its type and the way to its traceback if it is not the user's."""
    if isinstance(error, LinesError):
        return str(error)
    message = " ".join(str(error).split())
    if isinstance(error, OSError) and is_named(error):
        message = f"{error.filename}: {error.strerror}"
    elif not (isinstance(error, WRONG_USAGE) or is_said_in_full(error)):
        message = f"{type(error).__name__}: {message} (run again with --debug for the traceback)"
    if len(message) > LONGEST:
        message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
    return message


def is_named(error: BaseException) -> bool:
    """Return whether the system names a file or folder that it does not open, or not as what it is."""
    return isinstance(error, OSError) and isinstance(error.filename, str) and error.strerror is not None


def is_said_in_full(error: BaseException) -> bool:
    """Return whether an error that is not the user's says already what helps."""
    if not isinstance(error, OSError):
        return isinstance(error, ReportError)
    from .data.files.atomic_writes import WriteError

    return isinstance(error, WriteError)


def is_unread(error: BaseException) -> bool:
    """Return whether an error says that whoever read the output has left; other pipes may break, too."""
    if not isinstance(error, BrokenPipeError):
        return False
    try:
        output = select.poll()
        output.register(sys.stdout.fileno(), select.POLLOUT)
    except (AttributeError, ValueError, OSError):  # no such call on this system, or no file behind the output
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


if __name__ == "__main__":
    sys.exit(main())
