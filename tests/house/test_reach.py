"""How far a reader has to go: functions that a whole recipe is handed to, and what each run imports.

Bounds may only fall: files are those that are reached, lines are rounded up to 500.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = ("tests", "lab", "docs")
FOLDERS = sorted(file.parent for file in ROOT.glob("*/__init__.py") if file.parent.name not in OTHERS)
"""The folders of the package `tercet`, and the folder of that name, whose modules lie at its top."""

FUNCTIONS_WITH_A_RECIPE = 58
"""Functions and methods with a parameter `recipe`."""

MOST = {
    "pretraining": (98, 22_500),
    "finetune": (100, 22_000),
    "distill": (60, 12_500),
    "fewshot": (76, 15_500),
}
"""Folder of a run -> the files and the lines that its `run.py` imports, by way of others."""

MOST_WITH_A_MEMBER = {
    "pretraining": (108, 25_500),
    "finetune": (110, 25_000),
    "distill": (70, 15_500),
    "fewshot": (86, 18_500),
}
"""The same with the largest of the three Transformers; a run imports the one that it is about."""

MOST_WITH_A_STEP = {"general": (114, 25_000), "task": (114, 24_000)}
"""Step of a distillation -> the same of `distill/run.py` with the step, which it imports by the recipe."""

RECURRENT = ROOT / "modeling" / "recurrent"
"""The folder of the recurrent members."""

OF_RECURRENT = {
    ROOT / "finetune" / "tagger.py",
    ROOT / "finetune" / "tasks" / "tagging.py",
    ROOT / "pretraining" / "objectives" / "bidirectional_language_modeling.py",
    ROOT / "pretraining" / "objectives" / "character_language_modeling.py",
    ROOT / "tools" / "convert" / "static_vectors.py",
}
"""What else is about these members: tables name it, or a function imports it when it is needed."""


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def takes_recipe(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    given = node.args
    return any(each.arg == "recipe" for each in [*given.posonlyargs, *given.args, *given.kwonlyargs])


def test_functions_take_parts_of_recipes():
    files = [file for folder in FOLDERS for file in folder.rglob("*.py")]
    assert (
        sum(takes_recipe(node) for file in files for node in ast.walk(tree(file))) <= FUNCTIONS_WITH_A_RECIPE
    )


def carried_out(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that are carried out when a module is imported, but for what only types need."""
    for statement in statements:
        yield statement
        is_for_types = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
        for name in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With | ast.ExceptHandler | ast.ClassDef):
                yield from (
                    () if is_for_types and name == "body" else carried_out(getattr(statement, name, []))
                )


def file_of(module: tuple[str, ...]) -> Path | None:
    """Find the file of a module, named from below `tercet`."""
    known = {folder.name for folder in FOLDERS}
    place = (ROOT if module and module[0] in known else ROOT / "tercet").joinpath(*module)
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def module_of(file: Path) -> tuple[str, ...]:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return parts[1:] if parts[0] == "tercet" else parts


@cache
def offered(package: Path) -> dict[str, Path]:
    """List what a package imports when it is asked for it, as its `__init__.py` tells types: name -> file."""
    found = dict[str, Path]()
    for statement in tree(package).body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            for node in statement.body:
                assert isinstance(node, ast.ImportFrom)
                file = file_of((*module_of(package.parent / "_")[:-1], *(node.module or "").split(".")))
                found |= {each.name: file for each in node.names if file is not None}
    return found


@cache
def imported(file: Path) -> frozenset[Path]:
    """List the files of ours that a module imports; with a module, the packages that it lies in."""
    found = set[Path]()
    for node in carried_out(tree(file).body):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = module_of(file)[: -node.level] + tuple(
                (node.module or "").split(".") if node.module else ()
            )
            for module in (above, *((*above, each.name) for each in node.names)):
                files = (file_of(module[:size]) for size in range(len(module) + 1))
                found |= {each for each in files if each is not None}
            package = file_of(above)
            if package is not None and package.name == "__init__.py" and package != file:
                on_demand = offered(package)
                found |= {on_demand[each.name] for each in node.names if each.name in on_demand}
    return frozenset(found)


def reached(file: Path) -> set[Path]:
    """List the files that are imported with one, itself included; `__init__.py` does not count."""
    seen, todo = set[Path](), [file]
    while todo:
        if (each := todo.pop()) not in seen:
            seen.add(each)
            todo += imported(each)
    return {each for each in seen if each.name != "__init__.py"}


def require_within(files: set[Path], most: tuple[int, int]) -> None:
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert (len(files), lines) <= most
    assert lines <= most[1]


@pytest.mark.parametrize("folder", MOST)
def test_runs_import_what_they_need(folder):
    require_within(reached(ROOT / folder / "run.py"), MOST[folder])


@pytest.mark.parametrize("folder", MOST_WITH_A_MEMBER)
def test_runs_import_one_member_by_its_name(folder):
    members = {file: reached(file) for file in (ROOT / "modeling" / "members").glob("[!_]*.py")}
    run = reached(ROOT / folder / "run.py")
    assert not run & {*members}
    require_within(run | max(members.values(), key=len), MOST_WITH_A_MEMBER[folder])


@pytest.mark.parametrize("step", MOST_WITH_A_STEP)
def test_distillations_import_what_their_steps_need(step):
    folder = ROOT / "distill"
    require_within(reached(folder / "run.py") | reached(folder / f"{step}_step.py"), MOST_WITH_A_STEP[step])


def test_what_is_imported_is_followed():
    files = {file.relative_to(ROOT).as_posix() for file in reached(ROOT / "pretraining" / "run.py")}
    assert {"training/loop.py", "modeling/attention/multi_head.py", "tercet/registration.py"} <= files
    assert "tercet/commands.py" not in files
    assert "finetune/run.py" not in files


def names_recurrent(file: Path) -> bool:
    nodes = (node for node in ast.walk(tree(file)) if isinstance(node, ast.ImportFrom) and node.level)
    return any("recurrent" in (node.module or "").split(".") for node in nodes)


def test_recurrent_members_are_imported_through_tables():
    files = {file for folder in FOLDERS for file in folder.rglob("*.py") if RECURRENT not in file.parents}
    table = ROOT / "modeling" / "__init__.py"
    assert {file for file in files if names_recurrent(file)} - {table} == OF_RECURRENT
    for folder in MOST:
        assert not reached(ROOT / folder / "run.py") & {*RECURRENT.glob("*.py"), *OF_RECURRENT}, folder
