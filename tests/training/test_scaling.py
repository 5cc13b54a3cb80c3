"""The page on scaling: launchers know its commands."""

import re
import shlex
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser
from torch.distributed.run import get_args_parser

from tercet.command_line import parse
from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
LAUNCHES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if "-m tercet " in line
]


@pytest.mark.parametrize("command", LAUNCHES)
def test_launchers_know_their_options_and_tercet_its_own(command):
    launcher, _, command_line = command.partition("-m tercet ")
    program, *options = [word for word in shlex.split(launcher) if not re.match(r"[A-Z_]+=", word)]
    parser = get_args_parser() if program == "torchrun" else launch_command_parser()
    arguments = options[1:] if program == "accelerate" else options
    parser.parse_args([*arguments, "-m", "tercet"])
    ours = parse(shlex.split(command_line))
    load_recipe(PretrainingRecipe, ours.recipe, ours.overrides)
