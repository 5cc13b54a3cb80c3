"""Recipes: what a run does, as YAML with the shape of typed dataclasses.

    a path, or the name of a shipped recipe -> YAML -> `key=value` overrides -> checked -> a frozen dataclass

Whatever is wrong becomes one `ValueError` line that names the recipe, the key, the value and the remedy. The
files beside this one are the shipped recipes, and under `model/` the presets of model configurations.
"""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from .documents import read_document, require_no_comment
from .recipe import check_keys, check_numbers, describe_errors

Recipe = TypeVar("Recipe")

ROOT = files(__package__ or "tercet.configs")
"""Where this folder's files lie once installed."""

MOST_BYTES = 4 * 2**20
"""Size of a recipe's file: whoever names a larger one means another file."""

PRESETS = "model"
"""The folder whose files are not recipes but model configurations."""


def load_recipe(cls: type[Recipe], source: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe and check it against the dataclass that it must have the shape of.

    Args:
        cls: A frozen dataclass whose annotations, nested dataclasses included, say what is allowed.
        source: Path of a YAML file, or the name of a shipped recipe.
        overrides: `training.steps=100`: a dotted key and a value in YAML, taken in order.

    Raises:
        ValueError: Unknown recipe or key, missing key, or a value of the wrong type or out of range.
    """
    name, data = read_recipe(source, overrides)
    try:
        return parse_recipe(cls, data)
    except ValueError as error:
        raise ValueError(f"recipe {name}: {error}") from None


def read_recipe(
    source: str | Path, overrides: Iterable[str] = (), *, kind: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Read a recipe's name and its plain data, with overrides; nothing is checked against a dataclass.

    Args:
        source: A shipped recipe's name, or a YAML file.
        overrides: `key=value`, with dotted keys.
        kind: Folder of the shipped recipes that are suggested instead of an unknown one; all by default.

    Raises:
        ValueError: The recipe is unknown, no YAML, or no keys with values; or an override is none.
    """
    name, text = _read(source, kind)
    try:
        data = read_document(text)
        if not isinstance(data, dict):
            raise ValueError(f"the file holds {type(data).__name__}, not keys with values")
        return name, read_overrides(overrides, data)
    except ValueError as error:
        raise ValueError(f"recipe {name}: {error}") from None


def read_overrides(overrides: Iterable[str], data: dict[str, Any] | None = None) -> dict[str, Any]:
    """Set the values of `key=value` pairs, in order, in plain data that may be empty; return the data.

    Raises:
        ValueError: A pair is none, its value is not YAML, or its key leads into a value without keys.
    """
    data = {} if data is None else data
    for override in overrides:
        _set(data, override)
    return data


def parse_recipe(cls: type[Recipe], data: dict[str, Any]) -> Recipe:
    """Check plain data against a dataclass and build it.

    Raises:
        ValueError: As in `load_recipe`, without the recipe's name.
    """
    check_keys(cls, data)
    check_numbers(data)
    adapter = TypeAdapter(cls)
    try:
        # By way of JSON, where strict means: no text for numbers, but lists for tuples and text for paths.
        return adapter.validate_json(json.dumps(data), strict=True)
    except ValueError as error:
        raise ValueError(describe_errors(error, data)) from None


def recipe_data(recipe: Any) -> dict[str, Any]:
    """Return a recipe as plain data, which `parse_recipe` and YAML files take back."""
    return TypeAdapter(type(recipe)).dump_python(recipe, mode="json")


def recipe_names() -> list[str]:
    """Name the shipped recipes."""
    return sorted(_shipped_recipes())


def recipe_folders() -> dict[str, str]:
    """Return each shipped recipe's folder, which tells its kind: `pretraining`, `finetune`, ..."""
    found = {folder.name: _yaml_files(folder) for folder in ROOT.iterdir() if folder.name != PRESETS}
    return {name: folder for folder, names in found.items() for name in names}


def describe_recipe(name: str) -> str:
    """Return the comment at the head of a shipped recipe: its command, and what it is for."""
    lines = _shipped_recipes()[name].read_text(encoding="utf-8").splitlines()
    head = []
    for line in lines:
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").strip())
    return "\n".join(head)


def preset_names() -> list[str]:
    """Name the presets of model configurations."""
    return sorted(_yaml_files(ROOT / PRESETS))


def load_preset(name: str) -> dict[str, Any]:
    """Read a preset: `model_type` and the configuration's fields.

    Raises:
        ValueError: There is no such preset.
    """
    presets = _yaml_files(ROOT / PRESETS)
    if name not in presets:
        raise ValueError(f"model preset {name!r} is unknown; {_nearest(name, list(presets))}")
    return read_document(presets[name].read_text(encoding="utf-8"))


def _read(source: str | Path, kind: str | None = None) -> tuple[str, str]:
    """Name a recipe, and give its text; an unknown one is answered with shipped ones of a kind."""
    shipped = _shipped_recipes()
    if str(source) in shipped:
        return str(source), shipped[str(source)].read_text(encoding="utf-8")
    path = Path(source)
    try:
        if path.is_file():
            return str(source), _text_of(path)
        found = path.exists()
    except UnicodeDecodeError:
        raise ValueError(f"recipe {source}: not a text file; a recipe is YAML in UTF-8") from None
    except OSError as error:
        raise ValueError(f"recipe {source}: cannot be read ({error.strerror})") from error
    if path.is_dir():
        raise ValueError(f"recipe {source}: a folder; name a YAML file, or a shipped recipe (tercet recipes)")
    if found:
        raise ValueError(f"recipe {source}: a pipe or a device; write the recipe to a file, and name that")
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise ValueError(f"recipe {source}: there is no such file; `tercet recipes` lists the shipped ones")
    names = [name for name, folder in recipe_folders().items() if kind in (None, folder)]
    raise ValueError(f"recipe {source}: neither a file nor a shipped recipe; {_nearest(path.stem, names)}")


def _text_of(path: Path) -> str:
    """Read a recipe's file."""
    if (num_bytes := path.stat().st_size) > MOST_BYTES:
        remedy = "name a YAML file, which names the text in `corpus`"
        raise ValueError(f"recipe {path}: {num_bytes:,} bytes are too many for a recipe; {remedy}")
    return path.read_text(encoding="utf-8")


def _set(data: dict[str, Any], override: str) -> None:
    """Set the dotted key of `key=value`, making the levels above it where they are missing."""
    key, equals, text = override.partition("=")
    if not (key.strip() and equals):
        raise ValueError(f"override {override!r}: write key=value, as in training.steps=100")
    *above, last = key.strip().split(".")
    for part in above:
        if data.get(part) is None:
            data[part] = {}
        data = data[part]
        if not isinstance(data, dict):
            raise ValueError(f"override {override!r}: {part} is {data!r} and has no keys; set {part} itself")
    try:
        data[last] = read_document(text)
        require_no_comment(text)
    except ValueError as error:
        raise ValueError(f"override {override!r}: {error}") from None


def _shipped_recipes() -> dict[str, Traversable]:
    """Find the shipped recipes beside this file and in its folders, by name."""
    folders = [ROOT, *(folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name != PRESETS)]
    return {name: file for folder in folders for name, file in _yaml_files(folder).items()}


def _yaml_files(folder: Traversable) -> dict[str, Traversable]:
    if not folder.is_dir():
        return {}
    return {f.name.removesuffix(".yaml"): f for f in folder.iterdir() if f.name.endswith(".yaml")}


def _nearest(name: str, known: list[str]) -> str:
    """Describe which known names are near a wrong one, or all of them."""
    if near := get_close_matches(name, known, n=3, cutoff=0.4):
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(sorted(known)) or 'none'}"
