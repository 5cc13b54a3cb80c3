"""The layers of the code base, the layout of the package and the size of its parts, as tests."""

import ast
import inspect
import re
from collections.abc import Iterator
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]
READING = {"configs", "ground", "modeling", "training", "storage"}
"""What opens a saved model."""
BASE = READING | {"stock", "conversion", "text", "objectives", "metrics", "reporting"}
"""What learning from text, from rows, from teachers, and prompting have in common."""
MAY_IMPORT = {
    "configs": set(),
    "ground": set(),
    "modeling": set(),
    "metrics": set(),
    "training": {"configs", "ground"},
    "storage": READING - {"storage"},
    "stock": READING,
    "conversion": READING | {"stock", "text"},
    "doctor": READING,
    "inspection": READING | {"doctor", "reporting"},
    "hub": READING | {"stock"},
    "text": {"ground", "training", "storage"},
    "objectives": {"configs", "modeling", "training", "text"},
    "reporting": {"ground", "training"},
    "studies": {"configs", "modeling", "training", "text", "metrics", "reporting", "inspection"},
    "preparation": {"configs", "ground", "text", "training"},
    "pretraining": BASE,
    "planning": BASE | {"pretraining"},
    "finetune": BASE | {"pretraining"},
    "distill": BASE | {"pretraining", "finetune"},
    "fewshot": BASE,
    "play": BASE | {"pretraining", "finetune", "hub"},
    "demo": BASE | {"pretraining", "finetune", "distill", "fewshot"},
}
FOLDERS = [folder for folder in MAY_IMPORT if (ROOT / folder).exists()]
PARTS = ["attention", "layers", "heads", "generation", "recurrent"]
"""The folders of modeling/, the only folder that has some."""
LIBRARY = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHELL = sorted((ROOT / "tercet").glob("*.py"))
DOCUMENTATION = sorted((ROOT / "documentation").glob("*.py"))
SOURCES = [*LIBRARY, *SHELL]
EVERYWHERE = [*SOURCES, *DOCUMENTATION, *sorted(path for path in (ROOT / "tests").rglob("*.py"))]
PRESETS = sorted((ROOT / "configs" / "model").glob("*.yaml"))
COMMANDS = {"pretraining": "pretrain", "preparation": "prepare"}
COMMANDS |= {name: name for name in ("finetune", "distill", "fewshot")}
RECIPES = sorted(set((ROOT / "configs").rglob("*.yaml")) - set(PRESETS))


def name(path: Path) -> str:
    """Name a file in a test's identifier."""
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> list[tuple[int, str]]:
    """Level (0 absolute, 1 same folder, 2 other folder) and first name of every import in a file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(node.level, module.split(".")[0]) for module in modules]
    return found


def setup() -> ConfigParser:
    """Read setup.cfg."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


@pytest.mark.parametrize("path", LIBRARY, ids=name)
def test_imports_point_down(path: Path) -> None:
    folder, *within = path.relative_to(ROOT).parts
    depth = 1 + len(within)
    for level, imported in imports(path):
        if level == 0:
            assert imported not in {"tercet", *MAY_IMPORT}, "inside the library, import relatively"
        elif level == depth:
            assert imported in MAY_IMPORT[folder]
        else:
            assert level < depth


@pytest.mark.parametrize("path", SHELL, ids=name)
def test_shell_imports_relatively(path: Path) -> None:
    neighbours = {neighbour.stem for neighbour in SHELL}
    for level, imported in imports(path):
        assert level < 2
        if level == 0:
            assert imported not in {"tercet", *MAY_IMPORT}
        else:
            assert imported in {*neighbours, *FOLDERS, "__version__"}


def test_package_lists_every_folder() -> None:
    """An unlisted folder would work from a checkout and be missing from the wheel."""
    options = setup()["options"]
    packages = set(options["packages"].split())
    mapping = dict(line.split(" = ") for line in options["package_dir"].strip().splitlines())
    folders, parts = {f"tercet.{folder}" for folder in FOLDERS}, {f"tercet.modeling.{part}" for part in PARTS}
    assert packages == {"tercet", *folders, *parts}
    assert mapping == {package: package.rpartition(".")[2] for package in packages - parts}


@pytest.mark.parametrize("folder", ["tercet", *FOLDERS])
def test_folders_are_flat_packages(folder: str) -> None:
    assert (ROOT / folder / "__init__.py").exists()
    parts = PARTS if folder == "modeling" else []
    assert {path.parent.name for path in (ROOT / folder).glob("*/**/*.py")} == {*parts}, "keep folders flat"
    assert all((ROOT / folder / part / "__init__.py").exists() for part in parts)


@pytest.mark.parametrize("folder", [*MAY_IMPORT, "tests"])
def test_no_folder_shadows_a_library(folder: str) -> None:
    assert folder not in {"datasets", "evaluate", "tokenizers", "accelerate", "transformers"}


def test_every_extra_that_is_named_can_be_installed() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *SOURCES]
    named = {
        name for page in pages for name in re.findall(r"tercet\[(\w+)\]", page.read_text(encoding="utf-8"))
    }
    assert "lora" in named
    assert named <= set(setup()["options.extras_require"])


@pytest.mark.parametrize("path", EVERYWHERE, ids=name)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 600
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_every_public_definition_is_explained(path: Path) -> None:
    """A method may leave it to the abstract class that it comes from."""
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    module = import_module(".".join(parts if parts[0] == "tercet" else ["tercet", *parts]))
    assert module.__doc__
    for definition in public_definitions(module):
        assert inspect.getdoc(definition), definition
    assert not unexplained_fields(path, module)


def public_definitions(owner: ModuleType | type) -> Iterator[object]:
    """Yield the public functions and classes that a module or class defines itself, and those within them."""
    defined_in = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for key, value in vars(owner).items():
        is_definition = inspect.isclass(value) or inspect.isfunction(value) or isinstance(value, property)
        is_own = isinstance(value, property) or getattr(value, "__module__", None) == defined_in
        is_public = not key.startswith("_") and getattr(value, "__name__", key) != "<lambda>"
        if is_definition and is_own and is_public:
            yield value
            if inspect.isclass(value):
                yield from public_definitions(value)


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


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_recipe_starts_with_the_command_that_runs_it(path: Path) -> None:
    first, second, *_ = path.read_text(encoding="utf-8").splitlines()
    assert first == f"# tercet {COMMANDS[path.parent.name]} {path.stem}"
    assert second.startswith("# ")


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_recipe_loads(path: Path) -> None:
    from tercet.configs.recipe import load_recipe
    from tercet.distill.recipe import DistillationRecipe
    from tercet.fewshot.recipe import FewShotRecipe
    from tercet.finetune.recipe import FineTuningRecipe
    from tercet.preparation.recipe import PreparationRecipe
    from tercet.pretraining.recipe import PretrainingRecipe

    kinds = {"finetune": FineTuningRecipe, "distill": DistillationRecipe, "fewshot": FewShotRecipe}
    if path.parent.name == "preparation":
        assert load_recipe(PreparationRecipe, path.stem).output == f"prepared/{path.stem}"
    elif kind := kinds.get(path.parent.name):
        assert load_recipe(kind, path.stem).output == f"runs/{path.stem}"
    else:
        recipe = load_recipe(PretrainingRecipe, path.stem)
        is_preset = recipe.model.preset in {preset.stem for preset in PRESETS}
        assert is_preset != (recipe.model.path is not None)


@pytest.mark.parametrize("path", PRESETS, ids=name)
def test_preset_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert yaml.safe_load(text)["model_type"].startswith("tercet_")


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
