"""The command line: its words become the options of one of the commands in `commands.py`.

Shells complete commands, recipes and their keys with `argcomplete`, once they are told to:

    pip install 'tercet[completion]'
    eval "$(register-python-argcomplete tercet)"    # bash and zsh; a line for the shell's start-up file
"""

import os
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches

from . import __version__
from .commands import COMMANDS

ABOUT = """\
Pretrain, fine-tune, distill and prompt encoder, decoder and sequence-to-sequence Transformers.

Start with `tercet demo`, which needs no data and no network. Then choose a recipe from `tercet recipes`,
set its corpus to your text, and pretrain. The result is a folder that transformers' Auto classes load.
"""


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line; overrides and options may stand in any order. Wrong usage exits with code 2."""
    parser = build_parser()
    complete(parser)
    check_words(parser, arguments)
    check_command(parser, arguments)
    options, rest = parser.parse_known_args(arguments)
    unknown = [word for word in rest if word.startswith("-") or "overrides" not in options]
    if unknown:
        parser.error(f"unknown argument {unknown[0]!r}: {remedy_of(unknown[0], options)}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def remedy_of(word: str, options: Namespace) -> str:
    """Describe what to write instead of an unknown argument: the override that it names, if it names one."""
    from .configs.schema import DEVICE_KEYS, DEVICES
    from .kinds import kind_of

    name = word.lstrip("-").partition("=")[0].replace("-", "_")
    if name in DEVICE_KEYS and options.command != "plan":
        return DEVICES
    keys = kind_of(options.command).schema.dotted_keys() if "overrides" in options else []
    if found := [key for key in keys if name in (key, key.rpartition(".")[2])]:
        return f"values of a recipe are written without dashes, as in {found[0]}=..."
    return f"`tercet {options.command} --help` lists the known ones"


def check_words(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Refuse an argument that is empty, or that is no text; exits with code 2."""
    for word in arguments:
        if not word.strip():
            parser.error("an argument is empty: write a name there (is a variable of the shell not set?)")
        try:
            word.encode()
        except UnicodeEncodeError:
            parser.error(f"argument {word!r:.80} is not UTF-8: write it anew, or rename the file")


def check_command(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Answer an unknown command with the one that was probably meant; exits with code 2."""
    word = arguments[0] if arguments else "-"
    known = next(action.choices for action in parser._actions if action.dest == "command") or {}
    if word.startswith("-") or word in known:
        return
    near = " or ".join(get_close_matches(word, known, n=2))
    meant = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
    parser.error(f"unknown command {word!r}; {meant}")


def build_parser() -> ArgumentParser:
    """Build the parser of all commands."""
    parser = ArgumentParser(prog="tercet", description=ABOUT, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"tercet {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_to(commands)
    return parser


def complete(parser: ArgumentParser) -> None:
    """Answer a shell that asks how a word may go on, and exit; otherwise do nothing."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
