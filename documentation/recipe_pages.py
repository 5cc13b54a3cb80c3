"""The reference of recipes: every key with its type, its default and its meaning, from the dataclasses.

A dataclass is described once; where another recipe has it too, a link leads there.
"""

import json
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tercet.configs.recipe import describe_recipe, recipe_names
from tercet.distill.recipe import DistillationRecipe
from tercet.fewshot.recipe import FewShotRecipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.planning.machines import PlanRecipe
from tercet.pretraining.recipe import PretrainingRecipe

from .annotations import describe, is_list, members
from .meanings import meanings, summary

RECIPES = {
    "pretrain": ("Keys of pretraining", PretrainingRecipe),
    "finetune": ("Keys of fine-tuning", FineTuningRecipe),
    "distill": ("Keys of distillation", DistillationRecipe),
    "fewshot": ("Keys of prompting", FewShotRecipe),
    "plan": ("Keys of a plan", PlanRecipe),
}
"""The command whose recipes a page is about, the page's title and the dataclass."""


@dataclass
class Place:
    """Where a dataclass is described."""

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

    def page(self, name: str, title: str, cls: type) -> str:
        """Write the page of one command's recipes."""
        lines = [f"# {title}", "", f"{summary(cls)} Set a key in the YAML file, or on the command line:", ""]
        lines += [f"`tercet {name} RECIPE {_example(cls)}`.", ""]
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
        """Say what a key takes, with links to the descriptions of dataclasses."""
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
    """Give the `kind` by which a recipe chooses a dataclass, if it does."""
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


def _example(cls: type) -> str:
    nested = [entry for entry in fields(cls) if members(get_type_hints(cls, include_extras=True)[entry.name])]
    return "training.steps=100" if any(entry.name == "training" for entry in nested) else "key=value"


def _plain(value: Any) -> Any:
    """Turn a dataclass inside a default into plain data."""
    return asdict(value)


def _cell(text: str) -> str:
    """Keep a text inside its cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
