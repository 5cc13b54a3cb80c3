"""Tercet: encoder, decoder and sequence-to-sequence Transformers, three readings of one set of blocks.

Importing this package registers the family with transformers, so that `AutoModel` and its kin load it, and
offers the public names of `tercet.modeling`:

    >>> import tercet
    >>> from transformers import AutoConfig
    >>> AutoConfig.for_model("tercet_encoder") == tercet.TercetEncoderConfig()
    True
"""

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


if not is_command_line(sys.orig_argv):
    from .modeling import *  # noqa: F403
