"""Tercet: encoder, decoder and sequence-to-sequence Transformers, three readings of one set of blocks.

Importing this package registers the family with transformers, so that `AutoModel` and its kin load it, and
offers the public names of `tercet.modeling`:

    >>> import tercet
    >>> from transformers import AutoConfig
    >>> AutoConfig.for_model("tercet_encoder") == tercet.TercetEncoderConfig()
    True
"""

import os
import sys
from importlib.metadata import version
from pathlib import Path

__version__ = version("tercet")


def is_command_line(arguments: list[str]) -> bool:
    """Whether an interpreter started with these arguments runs `tercet ...` or `python -m tercet ...`.

    The command line imports what a command needs when it runs: `tercet --help` does not wait for torch.
    """
    program = next((argument for argument in arguments[1:] if argument not in {"-u", "-m"}), "")
    return Path(program).stem == "tercet"


def bound_spinning() -> None:
    """Let threads that wait for each other soon sleep; to be called before torch is imported.

    GNU's OpenMP lets them spin 300,000 times, which takes the cores from other programs, and from the very
    thread that is waited for. After 10,000 nothing is lost on a quiet machine, and far less on a busy one
    (docs/performance.md). What the user has set stays.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "10000"


def hide_bars() -> None:
    """Keep libraries from drawing progress bars where no terminal shows them; to be called before they load.

    Our own bars look for themselves. What the user has set stays.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        for library in ("HF_HUB", "HF_DATASETS"):  # transformers follows the first
            os.environ.setdefault(f"{library}_DISABLE_PROGRESS_BARS", "1")


if is_command_line(sys.orig_argv):
    bound_spinning()
    hide_bars()
else:
    from .modeling import *  # noqa: F403
    from .registered_classes import publish_registered_classes

    publish_registered_classes()
