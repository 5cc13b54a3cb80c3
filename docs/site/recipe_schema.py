"""The JSON Schema of all recipes, for editors and for the checks of commands; `make schema` writes it.

The dataclasses of recipes say what pydantic makes of them; meanings of keys are the strings below the fields.
What the fields of our configurations may be stands there, too: recipes override them.
"""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from inspect import get_annotations
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from tercet import modeling
from tercet.configs.recipe import preset_names
from tercet.modeling import NeuralConfig

from .recipe_pages import RECIPES, meanings, members, summary

FILE = Path(__file__).parents[2] / "configs" / "recipes.schema.json"

OVERRIDES = "overrides"
"""The key of fields of a configuration."""

CONFIGURATIONS = sorted(
    {
        value
        for name in modeling.__all__
        if isinstance(value := getattr(modeling, name), type)
        and issubclass(value, NeuralConfig)
        and value.model_type
    },
    key=lambda cls: cls.__name__,
)
"""The configurations of our members."""


def schema() -> dict[str, Any]:
    """Make the schema: a definition for each dataclass, and the recipes that are files."""
    classes = {command: about[1] for command, about in RECIPES.items()}
    adapters = [(command, "validation", TypeAdapter(cls)) for command, cls in classes.items()]
    _, made = TypeAdapter.json_schemas(adapters)  # pyright: ignore[reportArgumentType]
    short = {long_name(cls): short_name(cls) for cls in all_parts(*classes.values())}
    definitions = json.loads(json.dumps(made["$defs"]))
    for cls in all_parts(*classes.values()):
        name = cls.__name__ if cls.__name__ in definitions else long_name(cls)
        complete(definitions[name], cls)
    for cls in CONFIGURATIONS:
        definitions[cls.__name__] = fields_of(cls)
    text = json.dumps({short.get(name, name): definitions[name] for name in sorted(definitions)})
    for long, name in short.items():
        text = text.replace(f"#/$defs/{long}", f"#/$defs/{name}")
    files = [{"$ref": f"#/$defs/{cls.__name__}"} for command, cls in classes.items() if command != "plan"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recipes of Tercet",
        "anyOf": files,
        "$defs": without_titles(json.loads(text)),
    }


def complete(definition: dict[str, Any], cls: Any) -> None:
    """Add to a definition what pydantic leaves out: meanings, and that there are no other keys."""
    definition["additionalProperties"] = False
    definition["description"] = summary(cls)
    for name, meaning in meanings(cls).items():
        if meaning and name in definition["properties"]:
            definition["properties"][name]["description"] = meaning
    parts = definition["properties"]
    if OVERRIDES in parts:
        parts[OVERRIDES] = {"description": parts[OVERRIDES]["description"], "type": "object"}
        parts[OVERRIDES]["anyOf"] = [{"$ref": f"#/$defs/{known.__name__}"} for known in CONFIGURATIONS]
    if "preset" in parts:
        parts["preset"]["examples"] = preset_names()
    definition |= getattr(cls, "in_schema", dict)()
    if isinstance(model := getattr(cls, "model_class", None), type):
        models = [model, *cls.other_model_classes]
        definition["trains"] = [each.config_class.model_type for each in models]


def fields_of(cls: type[NeuralConfig]) -> dict[str, Any]:
    """Describe the fields of a configuration that are ours; those of transformers are left open."""
    about = meanings(cls)
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("tercet.")]
    hints = {name: hint for base in ours for name, hint in get_annotations(base).items() if name in about}
    parts = {}
    for name, hint in hints.items():
        meaning = {"description": about[name]} if about[name] else {}
        parts[name] = TypeAdapter(hint).json_schema() | meaning
    return {
        "type": "object",
        "description": summary(cls),
        "model_type": cls.model_type,
        "properties": parts,
    }


def all_parts(*classes: Any) -> Iterator[Any]:
    """Yield dataclasses, and all in them, each once."""
    seen: list[Any] = []
    todo = [*classes]
    while todo:
        if (cls := todo.pop()) not in seen and is_dataclass(cls):
            seen.append(cls)
            yield cls
            hints = get_type_hints(cls, include_extras=True)
            todo += [found for each in fields(cls) for found in members(hints[each.name])]


def long_name(cls: type) -> str:
    """Return the name that pydantic gives to a definition where several classes are called alike."""
    return f"{cls.__module__}.{cls.__name__}".replace(".", "__")


def short_name(cls: type) -> str:
    """Return the name of such a definition in the file: its folder's and its own."""
    return f"{cls.__module__.split('.')[1]}.{cls.__name__}"


def without_titles(node: Any) -> Any:
    """Leave out pydantic's titles, and OpenAPI's word for a union by `kind`; a key may be called `title`."""
    if isinstance(node, list):
        return [without_titles(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        name: value if name in ("default", "examples") else without_titles(value)
        for name, value in node.items()
        if not (name == "title" and isinstance(value, str)) and name != "discriminator"
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
