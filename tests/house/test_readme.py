"""What the documentation says exists: its links, its commands and the names in them; its programs run."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tercet import load_recipe
from tercet.command_line import parse
from tercet.configs.recipe import recipe_names
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.tools.plan.machines import load_plan

from ..pretraining_parts import model_of

ROOT = Path(__file__).parents[2]
OF_ROOT = ["README.md", "CONTRIBUTING.md", "AGENTS.md"]
PAGES = [*(ROOT / name for name in OF_ROOT), *sorted((ROOT / "docs").glob("*.md"))]
TUTORIALS = sorted((ROOT / "docs").glob("*/*.md"))
"""They are run as a whole, in tests/docs/test_tutorials.py."""
COMMANDS = [
    line.partition("#")[0].strip()
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.replace("\\\n", "").splitlines()
]
PROGRAMS = [
    (page.name, program)
    for page in PAGES
    if page.name != "python.md"  # which is one program: tests/docs/test_python_page.py
    for program in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
]
TINY = {"hidden_size": 32, "num_attention_heads": 4}


def test_links_lead_somewhere():
    for page in [*PAGES, *TUTORIALS]:
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith(
                ("http", "reference/", "../reference/")
            ):  # `make docs` writes that folder
                assert (page.parent / target.partition("#")[0]).exists(), (page.name, target)


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if command.startswith("tercet ") and " --version" not in command],
)
def test_commands_name_recipes_and_keys_that_exist(command):
    options = parse(shlex.split(command)[1:])
    if "recipe" in options:
        assert options.recipe in recipe_names()
        if options.command == "plan":
            load_plan(options.recipe, options.overrides)
        else:
            load_recipe(options.recipe, *options.overrides)


def test_make_knows_its_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = [command for command in COMMANDS if command.startswith("make ")]
    targets = {word for command in commands for word in command.split()[1:] if "=" not in word}
    assert targets
    assert not [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)]


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory) -> Path:
    """Leave, where the programs look, what the commands would make, but tiny and untrained."""
    folder = tmp_path_factory.mktemp("finished")
    programs = "\n".join(program for _, program in PROGRAMS)
    for name in sorted(set(re.findall(r"runs/([\w-]+-demo)/model", programs))):
        recipe = load_recipe(name, "tokenizer.vocab_size=400")
        own = {field.name for field in fields(recipe.objective.model_class.config_class)}
        recipe.model.overrides.update({key: size for key, size in TINY.items() if key in own})
        tokenizer = train_tokenizer(
            ["The function returns a list of strings."] * 20,
            recipe.tokenizer.kind,
            recipe.tokenizer.vocab_size,
            sentinels=recipe.objective.num_sentinels,
            special_tokens=recipe.objective.special_tokens,
            template=recipe.objective.template,
        )
        tokenizer.save_pretrained(folder / recipe.output / "model")
        model_of(recipe, tokenizer).save_pretrained(folder / recipe.output / "model")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("program", [program for page, program in PROGRAMS if page == "README.md"])
def test_programs_of_the_readme_run_in_a_process_of_their_own(program, finished_runs):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=finished_runs, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(("page", "program"), PROGRAMS)
def test_programs_run(page, program, finished_runs, monkeypatch, capsys):
    monkeypatch.chdir(finished_runs)
    exec(compile(program, page, "exec"), {})
    assert capsys.readouterr().out
