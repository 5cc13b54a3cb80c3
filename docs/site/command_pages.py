"""The reference of commands, from the parser that reads them."""

from argparse import Action, ArgumentParser, _SubParsersAction

from tercet.__main__ import EXIT_CODES
from tercet.command_line import build_parser


def command_page() -> str:
    """Write the page about all commands."""
    parser = build_parser()
    lines = ["# Commands", "", *_blocks(parser.description or ""), ""]
    lines += ["`tercet --version` prints the version, and `tercet COMMAND --help` what this page says.", ""]
    lines += ["| exit code | meaning |", "|---|---|"]
    lines += [*(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()), ""]
    for name, command in subcommands(parser).items():
        lines += describe_command(name, command)
    return "\n".join(lines)


def subcommands(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    groups = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    return {name: command for group in groups for name, command in group.choices.items()}


def describe_command(name: str, command: ArgumentParser) -> list[str]:
    """Describe one command: its usage, what it does, its arguments and examples."""
    about, _, examples = (command.description or "").partition("Examples:\n")
    actions = [action for action in command._actions if action.dest != "help"]
    lines = [f"## tercet {name}", "", f"`{usage(name, actions)}`", "", *_blocks(about), ""]
    if examples:
        lines += ["```sh", *(line.strip() for line in examples.splitlines() if line.strip()), "```", ""]
    lines += ["| argument | meaning |", "|---|---|"]
    return [*lines, *(f"| `{spelled(action)}` | {meaning(action)} |" for action in actions), ""]


def usage(name: str, actions: list[Action]) -> str:
    """Write a command with all of its arguments in one line."""
    words = [spelled(action) if action.nargs != "*" else f"[{spelled(action)} ...]" for action in actions]
    optional = [
        f"[{word}]" if action.option_strings else word for word, action in zip(words, actions, strict=True)
    ]
    positional = [word for word, action in zip(optional, actions, strict=True) if not action.option_strings]
    return " ".join(["tercet", name, *positional, *(word for word in optional if word not in positional)])


def spelled(action: Action) -> str:
    """Write an argument as one types it: `RECIPE`, or `--output DIR`."""
    if not action.option_strings:
        return str(action.metavar or action.dest)
    values = (
        "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())
    )
    return action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {values}"


def meaning(action: Action) -> str:
    """Return an argument's help with its default filled in, safe in a cell of a table."""
    return ((action.help or "") % {**vars(action), "prog": "tercet"}).replace("|", "\\|")


def _blocks(text: str) -> list[str]:
    """Turn a docstring into Markdown: paragraphs stay, and what is set off stays as it is written."""
    lines = []
    for block in text.strip().split("\n\n"):
        is_set_off = all(line.startswith("  ") for line in block.splitlines())
        lines += ["```text", block, "```", ""] if is_set_off else [block, ""]
    return lines[:-1]
