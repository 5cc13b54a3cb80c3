"""What messages and pages tell people to type exists: commands, options, recipes, and keys of recipes."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser
from transformers import PreTrainedTokenizerFast

from docs.site.command_pages import subcommands
from tercet.command_line import build_parser
from tercet.commands import COMMANDS
from tercet.configs.recipe import recipe_names
from tercet.kinds import KINDS
from tercet.tools.plan.machines import PlanRecipe

ROOT = Path(__file__).parents[2]
LIBRARY = sorted(
    folder.name
    for folder in ROOT.iterdir()
    if (folder / "__init__.py").exists() and folder.name not in ("tests", "lab", "docs")
)
"""Folders whose texts are messages."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

OF_FOLDER = {
    "pretraining": ("pretrain",),
    "objectives": ("pretrain",),
    "prepare": ("prepare",),
    "finetune": ("finetune",),
    "distill": ("distill", "pretrain", "finetune"),
    "fewshot": ("fewshot",),
}
"""Folder -> the commands whose keys its messages name; elsewhere, those of any command."""

PARSERS = subcommands(build_parser())
COMMAND = re.compile(r"(?<![\w./-])tercet ([a-z][a-z-]*)([^`\n]*)")
QUOTED = re.compile(r"`(tercet [^`\n]+)`|\A(tercet .+)\Z")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]*(?![\w:])")
KEY = re.compile(r"(?<![\w./\0}-])([a-z_]+(?:\.[a-z_0-9]+)+)(?![\w(./])")
FILES = ("json", "jsonl", "html", "onnx", "safetensors", "py", "yaml", "md", "csv")
OF_OTHERS = (
    *("output.dense", "model.encoder", "model.decoder", "model.resize_token_embeddings"),
    *("tokenizer.mask_token", "tokenizer.model_max_length"),
)
"""Names in other libraries that look like keys."""


@cache
def keys(*commands: str) -> frozenset[str]:
    return frozenset(key for command in commands for key in KINDS[command].schema.dotted_keys())


def is_key(key: str, commands: tuple[str, ...]) -> bool:
    """Whether a dotted name is a key of a recipe, or none that a recipe has."""
    first, _, rest = key.partition(".")
    last = key.rpartition(".")[2]
    if first not in {known.partition(".")[0] for known in keys(*KINDS)} or last in FILES or key in OF_OTHERS:
        return True
    return key in keys(*commands) or (first == "tokenizer" and hasattr(PreTrainedTokenizerFast, rest))


def wrong(text: str, commands: tuple[str, ...] = tuple(KINDS)) -> Iterator[str]:
    """List what a text names and what does not exist; what is filled in is a null."""
    for found in KEY.finditer(text):
        if not is_key(found[1], commands):
            yield f"key {found[1]}"
    for command, _ in COMMAND.findall(text):
        if command not in PARSERS and not re.search(rf"tercet {command}\b(?! \S*=)", text):
            yield f"command {command}"
    for quoted in map("".join, QUOTED.findall(text)):
        for command, rest in COMMAND.findall(quoted)[:1]:
            yield from wrong_words(command, rest)


def wrong_words(command: str, rest: str) -> Iterator[str]:
    """List what is wrong with a command that is to be typed."""
    if command not in PARSERS:
        yield f"command {command}"
        return
    known = PARSERS[command]._option_string_actions
    yield from (f"{command} {option}" for option in OPTION.findall(rest) if option not in known)
    if (reads := COMMANDS[command].recipe) is not None:
        of_machines = PlanRecipe.__dataclass_fields__ if command == "plan" else ()
        for key in re.findall(r" ([a-z_.]+)=", rest):
            if key not in {*keys(reads.command), *of_machines}:
                yield f"{command} {key}"
        recipe = rest.split()[0] if rest else ""
        if re.fullmatch(r"[a-z][a-z0-9-]*", recipe) and recipe not in recipe_names():
            yield f"{command} {recipe}"


def texts_of(file: Path) -> Iterator[str]:
    """Yield the string literals of a module that are no docstrings; what is filled in is a null."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


@pytest.mark.parametrize("folder", LIBRARY)
def test_messages_name_what_exists(folder):
    parsers = (*PARSERS.values(), launch_command_parser())
    known = {option for parser in parsers for option in parser._option_string_actions}
    commands = OF_FOLDER.get(folder, tuple(KINDS))
    found = []
    for file in sorted((ROOT / folder).rglob("*.py")):
        for text in texts_of(file):
            if " " in text:
                named = [
                    *wrong(text, commands),
                    *(each for each in OPTION.findall(text) if each not in known),
                ]
                found += [f"{file.name}: {each} in {text!r:.90}" for each in named]
    assert not found, "\n".join(found)


def test_pages_name_what_exists():
    found = [
        f"{page.name}: {each} in `{span}`"
        for page in PAGES
        for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page.read_text(encoding="utf-8"))
        for each in wrong(span)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "run `tercet pretrian encoder-demo` first",
        "run `tercet pretrain encoder-dmo` first",
        "run `tercet pretrain \0 training.step=3`",
        "run `tercet predict \0 FILE --column review`",
        "set training.optimizer.rate",
        "set model.overrides.hidden",
    ],
)
def test_what_does_not_exist_is_found(text):
    assert [*wrong(text)]
