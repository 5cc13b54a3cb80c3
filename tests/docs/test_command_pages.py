"""The reference of commands says what the parser knows."""

from docs.site.command_pages import command_page, subcommands
from tercet.command_line import build_parser


def test_every_command_and_option_is_there():
    page = command_page()
    for name, command in subcommands(build_parser()).items():
        section = page.partition(f"## tercet {name}\n")[2].partition("\n## ")[0]
        for action in command._actions:
            if action.dest != "help":
                assert (action.option_strings or [str(action.metavar)])[-1] in section
                assert action.help


def test_usage_names_arguments_before_options():
    assert (
        "`tercet pretrain RECIPE [key=value ...] [--debug] [--overwrite] [--resume] [--explain]`"
        in command_page()
    )


def test_defaults_are_filled_in():
    assert "| `--output DIR` | where to write (runs/demo) |" in command_page()
