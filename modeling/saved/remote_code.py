"""The code that a checkpoint takes along, so that `trust_remote_code=True` loads it where Tercet is not.

    modeling/**/*.py --parse--> definitions, each with the names that it uses
        those that the classes of a model reach  ->  configuration_*.py, modeling_*.py beside its weights

transformers looks an Auto class up in the configuration's `auto_map`, and loads the file named there. The
files are made of `modeling/` as it is installed: every definition word for word, with its docstring and its
comments, in the order of imports. What no class of the model reaches is left out, and imports are gathered.
"""

import ast
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import getfile
from pathlib import Path
from symtable import SymbolTable, symtable
from typing import Any

from transformers.dynamic_module_utils import get_relative_imports

from ... import modeling
from ...configs.named_files import named_file
from ..compatibility import OLDEST_TRANSFORMERS, tested_range
from ..configuration_neural import NeuralConfig
from ..registry import AUTO_CLASSES, NAME_TABLES, configuration_of, models_of
from .foreign_folder import BESIDE
from .model_folder import CONFIG, TOKENIZER_CONFIG

MODELING = Path(modeling.__file__).parent
"""Where the models are defined."""

TABLES = "transformers.models.auto.modeling_auto"
"""Where transformers has its tables of names."""

WIDTH = 110
"""Longest line of gathered imports."""

TITLE = '"""A model of Tercet, made of the modules of its `modeling/`, whose names stand before each."""'
"""What the files begin with."""

CHECK = f"""\
import transformers

if [int(part) for part in transformers.__version__.split(".")[:2]] < {[*OLDEST_TRANSFORMERS]}:
    raise ImportError(
        f"this model's code needs {tested_range()}, but {{transformers.__version__}} is installed: "
        "pip install '{tested_range()}', or write the model without its code where Tercet is installed: "
        "tercet export MODEL FOLDER"
    )
"""
"""What comes before all other imports, of which older versions lack some."""


def save_code(folder: str | Path) -> None:
    """Write the code of a model of ours into its folder, and name it in its configuration.

    A folder of another family stays as it is.
    """
    file = Path(folder) / CONFIG
    config = json.loads(file.read_bytes())
    named = add_auto_map(config)
    if named is not config:
        file.write_text(json.dumps(named, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        for name, text in code_of(named).items():
            file.with_name(name).write_text(text, encoding="utf-8")


def add_auto_map(config: dict[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Write into a configuration of ours which class each Auto class finds in which file.

    Of several it is the one that was saved, else the first. A configuration of another family, or whose code
    lies in its folder, is returned as it is.
    """
    kind = kind_of(config)
    if kind is None or (folder is not None and saved_code(config, folder)):
        return config
    beside, own = file_names(kind)
    classes = {"AutoConfig": f"{beside}.{kind.__name__}"}
    for auto_class in AUTO_CLASSES:
        if models := models_of(kind, auto_class):
            saved = [model for model in models if model.__name__ in (config.get("architectures") or ())]
            classes[auto_class.__name__] = f"{own}.{[*saved, *models][0].__name__}"
    return config | {"auto_map": classes}


def saved_code(config: dict[str, Any], folder: Path) -> list[Path]:
    """Find the code beside a configuration that names some, with what it imports; nothing else there.

    None where a file is elsewhere: transformers goes on naming it when a model that was loaded by installed
    code is saved without it.
    """
    named = files_named(config, folder)
    are_beside = all(map(BESIDE.fullmatch, references(config)))
    if not named or not are_beside or not all(file.exists() for file in named):
        return []
    tokenizer = folder / TOKENIZER_CONFIG
    facts = json.loads(tokenizer.read_bytes()) if tokenizer.exists() else {}
    named |= {file for file in files_named(facts, folder) if file.exists()}
    return sorted(with_imported(named, folder))


def references(facts: dict[str, Any]) -> Iterator[str]:
    """Yield how an `auto_map` names classes; tokenizers have a list of a slow and a fast one."""
    for value in (facts.get("auto_map") or {}).values():
        yield from filter(None, value if isinstance(value, list) else [value])


def files_named(facts: dict[str, Any], folder: Path) -> set[Path]:
    """List the files of code that an `auto_map` names in the folder."""
    found = map(BESIDE.fullmatch, references(facts))
    return {named_file(folder, f"{each[1]}.py", folder / CONFIG) for each in found if each}


def with_imported(files: set[Path], folder: Path) -> set[Path]:
    """Return files of code with all that they import from their folder."""
    found, left = set(), [*files]
    while left:
        file = left.pop()
        if not file.exists():
            raise ValueError(f"{file.name} is imported by code in {folder}, and not there: copy it there")
        found.add(file)
        imported = {named_file(folder, f"{name}.py", file) for name in get_relative_imports(file)}
        left += imported - found
    return found


def code_of(config: dict[str, Any]) -> dict[str, str]:
    """Write the code that a configuration of ours names; returns the contents of the files by their names."""
    kind = kind_of(config)
    assert kind is not None
    named = {auto: str(reference).rpartition(".")[2] for auto, reference in config["auto_map"].items()}
    models = [(auto_class, model) for auto_class in AUTO_CLASSES for model in models_of(kind, auto_class)]
    return publish(kind, tuple(pair for pair in models if named.get(pair[0].__name__) == pair[1].__name__))


def kind_of(config: dict[str, Any]) -> type[NeuralConfig] | None:
    return configuration_of(config.get("model_type", ""))


@dataclass(frozen=True)
class Statement:
    """A statement of a module: a definition, or something to be done."""

    module: str
    text: str
    """As it is written."""
    defines: frozenset[str]
    """Names that it gives a meaning."""
    uses: frozenset[str]
    """Names that stand in it, defined and imported ones."""


@dataclass
class Module:
    """A module of `modeling/`."""

    name: str
    """Its path in `modeling/`, with dots."""
    title: str
    """The first line of its docstring."""
    statements: list[Statement] = field(default_factory=list)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the name that an absolute import gives: the module, and what is imported of it, or nothing."""
    neighbours: list[Path] = field(default_factory=list)
    """The files that it imports relatively."""


@cache
def publish(configuration: type[NeuralConfig], loaded: tuple[tuple[type, type], ...]) -> dict[str, str]:
    """Write the code of models of one kind, each with the Auto class that loads it: file name -> contents."""
    names, models = file_names(configuration), {model for _, model in loaded}
    modules = in_order_of_imports(Path(getfile(kind)) for kind in (configuration, *models))
    statements = [statement for module in modules for statement in module.statements]
    require_unique(modules)
    own = reached(statements, {configuration.__name__})
    rest = reached(statements, {model.__name__ for model in models})
    rest = [statement for statement in rest if statement not in own]
    known = {name for statement in own for name in statement.defines}
    known -= {name for statement in rest for name in statement.defines}
    told = registration(loaded)  # lm-evaluation-harness looks up what a configuration is before its model
    return {
        f"{names[0]}.py": written([*modules, told], [*own, *told.statements], {}),
        f"{names[1]}.py": written(modules, rest, {names[0]: known}),
    }


def registration(loaded: tuple[tuple[type, type], ...]) -> Module:
    """Write down in transformers' tables of names which models there are, as `modeling/` does itself."""
    lines = [
        f"{NAME_TABLES[auto_class]}.setdefault({model.config_class.model_type!r}, {model.__name__!r})"
        for auto_class, model in loaded
    ]
    imports = {NAME_TABLES[auto_class]: (TABLES, NAME_TABLES[auto_class]) for auto_class, _ in loaded}
    text = "\n".join(lines).replace("'", '"')
    title = "by these names, Trainer shifts labels under label smoothing and pipelines accept a model."
    return Module(
        "registration", title, [Statement("registration", text, frozenset(), frozenset(imports))], imports
    )


def file_names(configuration: type[NeuralConfig]) -> tuple[str, str]:
    """Name the modules of a kind of model: that of its configuration, and its own."""
    return f"configuration_{configuration.model_type}", f"modeling_{configuration.model_type}"


def in_order_of_imports(files: Iterable[Path]) -> list[Module]:
    """Parse files and what they import relatively; each stands behind all that it imports."""
    found: dict[Path, Module] = {}

    def visit(path: Path) -> None:
        if path not in found:
            module = parsed(path)
            for neighbour in module.neighbours:
                visit(neighbour)
            found[path] = module

    for path in files:
        visit(path)
    return [*found.values()]


@cache
def parsed(path: Path) -> Module:
    """Take a module apart; what stands between two statements belongs to the second."""
    source = path.read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    name = ".".join(path.relative_to(MODELING).with_suffix("").parts)
    module = Module(name, (ast.get_docstring(tree) or "").partition("\n")[0])
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    end = tree.body[0].end_lineno if body is not tree.body else 0
    for node in body:
        begin, end = end or 0, node.end_lineno
        text = "\n".join(lines[begin:end]).strip("\n")
        if isinstance(node, ast.Import | ast.ImportFrom):
            note_import(node, module, path)
        elif is_text(node):  # what is said of the statement before
            last = module.statements.pop()
            module.statements.append(Statement(last.module, f"{last.text}\n{text}", last.defines, last.uses))
        else:
            module.statements.append(Statement(name, text, defined(node), used(node, text)))
    return module


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def note_import(node: ast.Import | ast.ImportFrom, module: Module, path: Path) -> None:
    """Note what an import of the module at a path gives."""
    if isinstance(node, ast.ImportFrom) and node.level:
        assert not any(alias.asname for alias in node.names), f"{module.name} renames what it imports"
        module.neighbours.append(
            path.parents[node.level - 1].joinpath(*str(node.module).split(".")).with_suffix(".py")
        )
        return
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module.imports[alias.asname or alias.name] = str(node.module), alias.name
        else:
            module.imports[alias.asname or alias.name.partition(".")[0]] = alias.name, ""


def defined(node: ast.stmt) -> frozenset[str]:
    """List the names that a statement of a module defines; `_` is none."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        names = {node.name}
    elif isinstance(node, ast.If):
        names = {name for each in (*node.body, *node.orelse) for name in defined(each)}
    else:
        targets = getattr(node, "targets", [getattr(node, "target", ast.Pass())])
        found = (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
        names = {each.id for each in found if isinstance(each.ctx, ast.Store)}
    return frozenset(names - {"_"}) if not isinstance(node, ast.For) else frozenset()


def used(node: ast.stmt, text: str) -> frozenset[str]:
    """List the names of the module that a statement uses, also in annotations that are texts."""
    texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    quoted = {name for text in texts if isinstance(text, str) for name in text.split(" | ")}
    return frozenset(
        {name for name in quoted if name.isidentifier()} | global_names(symtable(text, "", "exec"))
    )


def global_names(table: SymbolTable) -> set[str]:
    """List the names of the module that a scope and those in it read."""
    is_module = table.get_type() == "module"
    own = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (is_module or symbol.is_global())
    }
    return own.union(*(global_names(inner) for inner in table.get_children()))


def reached(statements: list[Statement], wanted: set[str]) -> list[Statement]:
    """Choose the statements that define names, those that they use, and what is done to any of them.

    Something that is done to nothing that is defined here belongs to its module.
    """
    everything = {name for statement in statements for name in statement.defines}
    chosen: dict[Statement, None] = {}
    names = set(wanted)
    while True:
        modules = {statement.module for statement in chosen}
        new = [
            statement
            for statement in statements
            if statement not in chosen and is_wanted(statement, names, everything, modules)
        ]
        if not new:
            return [statement for statement in statements if statement in chosen]
        for statement in new:
            chosen[statement] = None
            names |= statement.uses & everything


def is_wanted(statement: Statement, names: set[str], everything: set[str], modules: set[str]) -> bool:
    """Return whether a statement defines one of some names, or is done to one of them."""
    if statement.defines:
        return bool(statement.defines & names)
    concerned = statement.uses & everything
    return bool(concerned & names) if concerned else statement.module in modules


def require_unique(modules: list[Module]) -> None:
    """Raise a `ValueError` if a name means two things: the files could not be joined."""
    meanings: dict[str, object] = {}
    for module in modules:
        defined = {name: each.text for each in module.statements for name in each.defines}
        for name, meaning in [*module.imports.items(), *defined.items()]:
            if meanings.setdefault(name, meaning) != meaning:
                file = f"modeling/{module.name.replace('.', '/')}.py"
                raise ValueError(f"{name} of {file} means something else in another module")


def written(modules: list[Module], statements: list[Statement], beside: dict[str, set[str]]) -> str:
    """Write statements as a file; `beside` it are others, by the names that they define."""
    needed = {name for statement in statements for name in statement.uses}
    imports = {name: found for module in modules for name, found in module.imports.items() if name in needed}
    parts = [TITLE, "", CHECK, import_lines(imports)]
    parts += [
        import_line(f".{module}", sorted(names & needed)) + "\n"
        for module, names in beside.items()
        if names & needed
    ]
    seen: set[str] = set()
    for module in modules:
        own = [each.text for each in statements if each.module == module.name and each.text not in seen]
        seen |= {*own}
        if own:
            parts.append(f"\n# {module.name}: {module.title}\n")
            parts.append("\n\n\n".join(own) + "\n")
    return "\n".join(parts)


def import_lines(imports: dict[str, tuple[str, str]]) -> str:
    """Write absolute imports: first of Python's own modules, then of libraries."""
    lines: dict[bool, list[str]] = {True: [], False: []}
    for source in sorted({module for module, _ in imports.values()}):
        of_it = {name: found for name, (module, found) in imports.items() if module == source}
        group = lines[source.partition(".")[0] in sys.stdlib_module_names]
        for name in sorted(name for name, found in of_it.items() if not found):
            is_renamed = name != source.partition(".")[0]
            group.insert(0, f"import {source}" + (f" as {name}" if is_renamed else ""))
        names = [found if found == name else f"{found} as {name}" for name, found in of_it.items() if found]
        if names:
            group.append(import_line(source, sorted(names)))
    return "".join("\n".join(group) + "\n" * 2 for group in lines.values() if group).removesuffix("\n")


def import_line(module: str, names: list[str]) -> str:
    """Write an import, over several lines if it is long."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
