"""The layers of the code base, the layout of the package and the size of its parts, as tests."""

import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LEARNING = {"configs", "modeling", "data", "training"}
"""What all runs have in common."""
RUNS = {"pretraining", "finetune", "fewshot", "distill"}
MAY_IMPORT = {
    "configs": set(),
    "modeling": {"configs"},
    "data": {"configs", "modeling"},
    "training": {"configs", "modeling", "data"},
    "pretraining": LEARNING,
    "finetune": LEARNING | {"pretraining"},
    "fewshot": LEARNING,
    "distill": LEARNING | {"pretraining", "finetune"},
    "reports": LEARNING | RUNS,
    "tools": LEARNING | RUNS | {"reports"},
    "tercet": LEARNING | RUNS | {"reports", "tools"},
    "lab": LEARNING | RUNS | {"reports", "tools", "tercet"},
    "tests": LEARNING | RUNS | {"reports", "tools", "tercet", "lab", "docs"},
    "docs": LEARNING | RUNS | {"reports", "tools", "tercet", "lab"},
}
"""All folders at the top -> those that they may import. Nothing imports lab/ but its tests and the site."""
TOOLS = {
    "convert": {"import_export"},
    "demo": {"play"},
    "inspect": {"doctor"},
    "play": {"push"},
}
"""Folders of tools/ -> others there that they may import."""
JOINED = ("attention", "layers", "heads", "generation", "recurrent")
"""Folders of modeling/ whose modules a model's folder contains, joined, with those of modeling/ itself."""
FOLDERS = [folder for folder in MAY_IMPORT if folder not in ("tercet", "lab", "tests", "docs")]
MOST_FILES = 24
"""Modules of a folder."""
LIBRARY = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHELL = sorted((ROOT / "tercet").glob("*.py"))
DOCUMENTATION = sorted((ROOT / "docs" / "site").glob("*.py"))
SOURCES = [*LIBRARY, *SHELL]
EVERYWHERE = [*SOURCES, *DOCUMENTATION, *sorted(path for path in (ROOT / "tests").rglob("*.py"))]
PRESETS = sorted((ROOT / "configs" / "model").glob("*.yaml"))
COMMANDS = {"pretraining": "pretrain"}
COMMANDS |= {name: name for name in ("finetune", "distill", "fewshot", "prepare")}
RECIPES = sorted(set((ROOT / "configs").rglob("*.yaml")) - set(PRESETS))


def name(path: Path) -> str:
    """Name a file in a test's identifier."""
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> list[tuple[int, tuple[str, ...]]]:
    """Level of every import in a file (0 absolute, 1 same folder, ...), and its names between dots."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(node.level, tuple(module.split("."))) for module in modules]
    return found


def imported_from(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield what a file of the library imports of it, as parts of paths from the top."""
    place = path.relative_to(ROOT).parent.parts
    for level, names in imports(path):
        assert level or names[0] not in {"tercet", "lab"}, "inside the library, import relatively"
        assert level <= len(place) + 1
        if level:
            yield (*place[: len(place) + 1 - level], *names)


def setup() -> ConfigParser:
    """Read setup.cfg."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_folders_at_the_top() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("no checkout")
    folders = {line.partition("/")[0] for line in listed.splitlines() if "/" in line}
    assert {folder for folder in folders if not folder.startswith(".")} == {*MAY_IMPORT}


def imports_of(folder: str) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield the files below a folder of the library with everything of ours that each imports."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for parts in imported_from(path):
            yield path, parts


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_down(folder: str) -> None:
    allowed = {folder} | MAY_IMPORT[folder]
    assert not [(name(path), parts) for path, parts in imports_of(folder) if parts[0] not in allowed]


def test_models_import_models_alone() -> None:
    """What stands in a model's folder is joined from modules that import nothing else of ours."""
    found = []
    for path, parts in imports_of("modeling"):
        within = path.relative_to(ROOT / "modeling").parts
        is_joined = len(within) == 1 or within[0] in JOINED
        if is_joined and (parts[0] != "modeling" or parts[1] in ("saved", "stock")):
            found.append((name(path), parts))
    assert not found


def test_tools_leave_each_other_alone() -> None:
    found = []
    for path, parts in imports_of("tools"):
        tool = path.relative_to(ROOT).parts[1]
        if parts[0] == "tools" and parts[1] not in {tool} | TOOLS.get(tool, set()):
            found.append((name(path), parts))
    assert not found


def test_shell_imports_relatively() -> None:
    beside = {*(path.stem for path in SHELL), *FOLDERS, "__version__"}
    for path in SHELL:
        for level, names in imports(path):
            assert level < 2, name(path)
            assert names[0] not in MAY_IMPORT if level == 0 else names[0] in beside, (name(path), names)


def test_package_lists_every_folder() -> None:
    """An unlisted folder would work from a checkout and be missing from the wheel."""
    options = setup()["options"]
    packages = set(options["packages"].split())
    mapping = dict(line.split(" = ") for line in options["package_dir"].strip().splitlines())
    found = {".".join(("tercet", *path.parent.relative_to(ROOT).parts)) for path in LIBRARY}
    assert packages == {"tercet", *found}
    assert mapping == {"tercet": "tercet"} | {f"tercet.{folder}": folder for folder in FOLDERS}


def test_folders_are_small_packages() -> None:
    for folder in sorted({path.parent for path in SOURCES}):
        assert (folder / "__init__.py").exists(), name(folder)
        assert len([*folder.glob("[!_]*.py")]) <= MOST_FILES, name(folder)


def test_no_folder_shadows_a_library() -> None:
    assert not {"datasets", "evaluate", "tokenizers", "accelerate", "transformers"} & {*MAY_IMPORT}


def test_every_extra_that_is_named_can_be_installed() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *SOURCES]
    named = {
        name for page in pages for name in re.findall(r"tercet\[(\w+)\]", page.read_text(encoding="utf-8"))
    }
    assert "lora" in named
    assert named <= set(setup()["options.extras_require"])


def test_files_and_functions_are_short() -> None:
    for path in EVERYWHERE:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 600, name(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                assert node.end_lineno - node.lineno < 60, (name(path), node.name)


@pytest.mark.parametrize("folder", ["tercet", *FOLDERS])
def test_every_public_field_is_explained(folder: str) -> None:
    for path in SOURCES:
        parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
        if parts[0] == folder:
            module = import_module(".".join(parts if folder == "tercet" else ["tercet", *parts]))
            assert not unexplained_fields(path, module)


def unexplained_fields(path: Path, module: ModuleType) -> list[str]:
    """List the annotated fields of a module's public classes of which nothing says what they are.

    A string below the field does, the docstring of the class or of one above it, which names the field, a
    field of the same name above it, and a type that is called like it. A class with one field explains that.
    """
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        defined, *above = getattr(module, node.name).__mro__
        explained = " ".join(known.__doc__ or "" for known in (defined, *above))
        inherited = {field for known in above for field in (*vars(known), *inspect.get_annotations(known))}
        fields = [
            (each.target.id, ast.unparse(each.annotation).lower(), below)
            for each, below in zip(node.body, [*node.body[1:], None], strict=True)
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            if not each.target.id.startswith("_") and each.target.id not in inherited
        ]
        for field, kind, below in fields:
            is_explained = isinstance(below, ast.Expr) or re.search(rf"\b{field}\b", explained)
            is_called_so = field.replace("_", "").removesuffix("s").removesuffix("ie") in kind
            if len(fields) > 1 and not (is_explained or is_called_so or kind.startswith("literal['")):
                found.append(f"{node.name}.{field}")
    return found


def test_recipes_start_with_the_command_that_runs_them() -> None:
    for path in RECIPES:
        first, second, *_ = path.read_text(encoding="utf-8").splitlines()
        assert first == f"# tercet {COMMANDS[path.parent.name]} {path.stem}"
        assert second.startswith("# "), name(path)


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_recipe_loads(path: Path) -> None:
    from tercet import load_recipe

    recipe: Any = load_recipe(path.stem)
    if path.parent.name == "pretraining":
        assert (recipe.model.preset in {preset.stem for preset in PRESETS}) != (recipe.model.path is not None)
    else:
        assert recipe.output == f"{'prepared' if path.parent.name == 'prepare' else 'runs'}/{path.stem}"


def nav_pages(entry: str | dict | list) -> list[str]:
    """List the pages that a part of the documentation's navigation names."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in nav_pages(part)]


def test_navigation_names_every_page_of_the_documentation() -> None:
    named = nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    written = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert len(named) == len(set(named))
    assert written <= set(named), "add the page to `nav` in mkdocs.yml"
