"""The page on scaling: its tables are what the program prints, and launchers know its commands."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser
from torch.distributed.run import get_args_parser

from tercet.command_line import parse
from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
PROGRAM = "examples/compare_sizes.py"
TABLES = PAGE.partition(f"<!-- {PROGRAM}: begin -->\n")[2].partition(f"\n<!-- {PROGRAM}: end -->")[0]
LAUNCHES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if "-m tercet " in line
]


def words(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.slow
def test_tables_are_what_the_program_prints(capsys):
    runpy.run_path(str(ROOT / PROGRAM))["main"](["device=h100", "devices=64"])
    assert capsys.readouterr().out.strip() == TABLES


def test_first_rows_are_what_the_program_plans():
    program = runpy.run_path(str(ROOT / PROGRAM))
    plan = program["plan_size"]("decoder-base", ["device=h100", "devices=64"])
    rows = [words(row) for row in TABLES.splitlines() if row.startswith(f"| {program['name'](plan)} ")]
    memory, traffic, run = (row[1:] for row in rows)
    assert memory == [program["memory"](outlook) for outlook in plan.outlooks]
    assert traffic == [program["size"](outlook.traffic) for outlook in plan.outlooks]
    assert run[2:] == program["fastest"](plan)


@pytest.mark.parametrize("command", LAUNCHES)
def test_launchers_know_their_options_and_tercet_its_own(command):
    launcher, _, command_line = command.partition("-m tercet ")
    program, *options = [word for word in shlex.split(launcher) if not re.match(r"[A-Z_]+=", word)]
    parser = get_args_parser() if program == "torchrun" else launch_command_parser()
    arguments = options[1:] if program == "accelerate" else options
    parser.parse_args([*arguments, "-m", "tercet"])
    ours = parse(shlex.split(command_line))
    load_recipe(PretrainingRecipe, ours.recipe, ours.overrides)
