"""The command line's entry: what went wrong becomes one line, and the exit code says whose fault it was.

Exit codes: 0 done, 1 failure, 2 wrong usage (of an option, a recipe, a file), 130 interrupted.
"""

import sys
from collections.abc import Sequence

from .command_line import parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `--debug` lets exceptions through with their traceback."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        options.run(options)
    except KeyboardInterrupt as interruption:
        print(f"tercet {options.command}: {interruption or 'interrupted'}", file=sys.stderr)
        return 130
    except Exception as error:
        if options.debug:
            raise
        print(f"tercet {options.command}: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, (ValueError, FileNotFoundError)) else 1
    return 0


def one_line(error: Exception) -> str:
    """Say an error in one line, with its type and the way to its traceback if it is not the user's fault."""
    message = " ".join(str(error).split())
    if isinstance(error, (ValueError, FileNotFoundError)) or is_said_in_full(error):
        return message
    return f"{type(error).__name__}: {message} (run again with --debug for the traceback)"


def is_said_in_full(error: Exception) -> bool:
    """Tell whether an error of the system's says already what helps."""
    if not isinstance(error, OSError):
        return False
    from .training.disk import WriteError

    return isinstance(error, WriteError)


if __name__ == "__main__":
    sys.exit(main())
