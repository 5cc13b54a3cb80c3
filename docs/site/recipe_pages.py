"""The reference of recipes: every key with its type, its default and its meaning, from the dataclasses.

A dataclass is described once; where another recipe has it too, a link leads there. Annotations are put in
words: `Annotated[int, Field(ge=8)]` is "integer, at least 8". What a field means is the string that stands
below it in the source.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tercet.configs.by_kind import ByKind, OptionalPart
from tercet.configs.recipe import describe_recipe, load_recipe, recipe_names
from tercet.distill.recipe import DistillationRecipe
from tercet.fewshot.recipe import FewShotRecipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.plan.machines import PlanRecipe, load_plan
from tercet.tools.prepare.recipe import PreparationRecipe

WORDS = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "`true` or `false`",
    NoneType: "`null`",
    Any: "any value",
    dict: "keys with values",
}
"""The names of plain types."""

BOUNDS = {
    "ge": "at least {}",
    "gt": "above {}",
    "le": "at most {}",
    "lt": "below {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}
"""How the limits that pydantic keeps are said."""


def describe(annotation: Any) -> str:
    """Describe in words which values an annotation allows; dataclasses are left to the caller.

    >>> describe(str | None)
    'text or `null`'
    >>> describe(tuple[int, ...])
    'list of integers'
    >>> describe(Literal["adam", "muon"])
    '`adam` or `muon`'
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in WORDS:
        return WORDS[annotation]
    if origin is Annotated and (tables := [extra for extra in arguments[1:] if isinstance(extra, ByKind)]):
        return "keys or `null`" if isinstance(tables[0], OptionalPart) else "keys"
    if origin is Annotated:
        limits = [limit for extra in arguments[1:] for limit in _limits(extra)]
        return ", ".join([describe(arguments[0]), *limits])
    if origin is Literal:
        return _alternatives([f"`{_written(value)}`" for value in arguments])
    if origin in (Union, UnionType):
        return _alternatives(list(dict.fromkeys(map(describe, arguments))))
    if origin in (list, tuple):
        return _describe_list(arguments)
    if origin is dict:
        return WORDS[dict]
    if is_dataclass(annotation):
        return "keys"
    raise ValueError(f"no words for the annotation {annotation!r}: add them to docs/site/recipe_pages.py")


def members(annotation: Any) -> list[Any]:
    """List the dataclasses that an annotation allows, wherever it names them."""
    if is_dataclass(annotation):
        return [annotation]
    if kinds := [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, ByKind)]:
        return [*kinds[0].values()]
    parts = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return [] if get_origin(annotation) is Literal else [found for part in parts for found in members(part)]


def is_list(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated or get_origin(annotation) in (Union, UnionType):
        return any(is_list(part) for part in get_args(annotation))
    return get_origin(annotation) in (list, tuple)


def _limits(extra: Any) -> Iterator[str]:
    """Write the limits that pydantic's `Field` puts on a value."""
    for limit in getattr(extra, "metadata", ()):
        for name, words in BOUNDS.items():
            if (bound := getattr(limit, name, None)) is not None:
                yield words.format(f"{bound:,}" if isinstance(bound, int) else f"{bound:g}")


def _describe_list(arguments: tuple[Any, ...]) -> str:
    elements = [argument for argument in arguments if argument is not Ellipsis]
    if len(elements) > 1:
        return f"list of {len(elements)}: {', '.join(map(describe, elements))}"
    word, comma, rest = describe(elements[0]).partition(",")
    plural = f"{word}s" if word in {"integer", "number", "text"} else word
    return f"list of {plural}{f' (each{rest})' if comma else ''}"


def _alternatives(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def meanings(cls: type) -> dict[str, str]:
    """Return the meaning of each field of a dataclass, in one line.

    A field without a string of its own has that of the abstract class, or that of the type that annotates it
    (`weight: Weight`, where the string stands below `Weight`).
    """
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if owner.__module__ != "builtins":
            found |= _below_names(ast.parse(dedent(_source(owner))).body[0])
    return {field.name: found.get(field.name) or _of_annotation(cls, field.name) for field in fields(cls)}


def summary(definition: Any) -> str:
    """Return the first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(definition) or "").partition("\n\n")[0].split())


def _below_names(scope: ast.AST) -> dict[str, str]:
    """Collect the strings that stand directly below an assignment to a name."""
    body = getattr(scope, "body", [])
    found = {}
    for statement, below in pairwise(body):
        target = _assigned_name(statement)
        if target and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[target] = " ".join(str(below.value.value).split())
    return found


def _assigned_name(statement: ast.stmt) -> str | None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return targets[0].id if isinstance(targets[0], ast.Name) else None


def _of_annotation(cls: type, name: str) -> str:
    """Return the meaning of the type that annotates a field, if the source names that type by one word."""
    for owner in cls.__mro__:
        for statement in getattr(_tree(owner), "body", []):
            if isinstance(statement, ast.AnnAssign) and _assigned_name(statement) == name:
                alias = statement.annotation
                module = sys.modules[owner.__module__]
                return _of_alias(module, alias.id) if isinstance(alias, ast.Name) else ""
    return ""


def _of_alias(module: ModuleType, alias: str) -> str:
    """Find what stands below an alias, in the module that defines it."""
    tree = ast.parse(_source(module))
    if meaning := _below_names(tree).get(alias):
        return meaning
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and alias in {name.name for name in statement.names}:
            dots = "." * statement.level
            return _of_alias(import_module(f"{dots}{statement.module}", module.__package__), alias)
    return ""


def _tree(owner: type) -> ast.AST:
    return ast.Pass() if owner.__module__ == "builtins" else ast.parse(dedent(_source(owner))).body[0]


@cache
def _source(definition: Any) -> str:
    return inspect.getsource(definition)


RECIPES = {
    "pretrain": ("Keys of pretraining", PretrainingRecipe, "encoder-demo training.steps=100"),
    "finetune": ("Keys of fine-tuning", FineTuningRecipe, "text-classification training.epochs=2"),
    "distill": ("Keys of distillation", DistillationRecipe, "task-distilled task.training.epochs=2"),
    "fewshot": ("Keys of prompting", FewShotRecipe, "copa prompting.num_fewshot=[0,4]"),
    "prepare": ("Keys of a preparation", PreparationRecipe, "prepare-text workers=4"),
    "plan": ("Keys of a plan", PlanRecipe, "encoder-english devices=8"),
}
"""The command whose recipes a page is about, the page's title, the dataclass, and a recipe with a key."""


@dataclass
class Place:
    """The page and the anchor where a dataclass is described."""

    page: str
    anchor: str


@dataclass
class Reference:
    """The pages of all recipes, and where each dataclass was described first."""

    places: dict[type, Place] = field(default_factory=dict)
    """Dataclasses that are described already."""

    def write(self) -> dict[str, str]:
        """Write the pages of all commands, by their path in the site."""
        return {f"reference/{name}.md": self.page(name, *about) for name, about in RECIPES.items()}

    def page(self, name: str, title: str, cls: type, example: str) -> str:
        """Write the page of one command's recipes."""
        recipe, *overrides = example.split()
        load_plan(recipe, overrides) if cls is PlanRecipe else load_recipe(cls, recipe, overrides)
        lines = [f"# {title}", "", f"{summary(cls)} Set a key in the YAML file, or on the command line:", ""]
        lines += [f"`tercet {name} {example}`.", ""]
        if shipped := shipped_recipes(name):
            lines += ["## Shipped recipes", "", "| name | about |", "|---|---|", *shipped, ""]
        return "\n".join([*lines, *self.section(cls, name, "", "The recipe")])

    def section(self, cls: Any, page: str, path: str, title: str) -> list[str]:
        """Describe a dataclass, and below it those in it that are not described yet."""
        anchor = path.replace(".", "-").replace("=", "-") or "recipe"
        self.places[cls] = Place(page, anchor)
        lines = [f"## {title} {{ #{anchor} }}", "", summary(cls), ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        hints, about, below = get_type_hints(cls, include_extras=True), meanings(cls), []
        for entry in fields(cls):
            if is_kind(entry, hints[entry.name]):
                continue
            key = ".".join(filter(None, [path.partition("=")[0].removesuffix(".kind"), entry.name]))
            # First what lies below: the row then knows where it is described.
            below += self.sections_below(members(hints[entry.name]), page, key)
            kind = self.describe_type(hints[entry.name], page)
            lines.append(
                f"| `{key}` | {_cell(kind)} | {_cell(default(entry))} | {_cell(about[entry.name])} |"
            )
        return [*lines, "", *below]

    def sections_below(self, found: list[Any], page: str, key: str) -> list[str]:
        """Describe the dataclasses that a key takes, as far as that has not been done."""
        lines = []
        for cls in found:
            if cls not in self.places:
                kind = kind_of(cls)
                path, title = (f"{key}.kind={kind}", f"`{key}.kind: {kind}`") if kind else (key, f"`{key}`")
                lines += self.section(cls, page, path, title)
        return lines

    def describe_type(self, annotation: Any, page: str) -> str:
        """Describe what a key takes, with links to the descriptions of dataclasses."""
        if not (found := members(annotation)):
            return describe(annotation)
        links = []
        for cls in found:
            place = self.places[cls]
            target = f"#{place.anchor}" if place.page == page else f"{place.page}.md#{place.anchor}"
            links.append(f"[{kind_of(cls) or 'keys'}]({target})")
        several = "list of " if is_list(annotation) else ""
        return f"{several}{'kind ' if kind_of(found[0]) else ''}{', '.join(links)}"


def kind_of(cls: Any) -> str | None:
    """Return the `kind` by which a recipe chooses a dataclass, if it does."""
    hint = get_type_hints(cls, include_extras=True).get("kind")
    return get_args(hint)[0] if get_origin(hint) is Literal and len(get_args(hint)) == 1 else None


def is_kind(entry: "Field[Any]", hint: Any) -> bool:
    """Whether a field only says which dataclass this is, as the heading does."""
    return entry.name == "kind" and get_origin(hint) is Literal and len(get_args(hint)) == 1


def default(entry: "Field[Any]") -> str:
    """Write a field's default as a recipe would."""
    value = entry.default if entry.default_factory is MISSING else entry.default_factory()
    if value is MISSING:
        return "required"
    if is_dataclass(value):
        return "the defaults of its keys"
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    return f"`{value}`" if isinstance(value, str) and value.isprintable() and value.strip() else f"`{text}`"


def shipped_recipes(command: str) -> list[str]:
    """List the recipes of a command that come with Tercet, as rows of a table."""
    rows = []
    for name in recipe_names():
        own_command, *about = describe_recipe(name).splitlines()
        if own_command == f"tercet {command} {name}":
            rows.append(f"| `{name}` | {_cell(' '.join(about))} |")
    return rows


def _plain(value: Any) -> Any:
    """Turn a dataclass inside a default into plain data."""
    return asdict(value)


def _cell(text: str) -> str:
    """Keep a text inside its cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
