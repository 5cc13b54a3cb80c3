"""Recipes: what a run does, as YAML with the shape of typed dataclasses.

    a path, or the name of a shipped recipe -> YAML -> `key=value` overrides -> checked -> a frozen dataclass
    plain data, or a recipe that was built ---------^

Whatever is wrong becomes one `ValueError` line that names the recipe, the key, the value and the remedy. The
files beside this one are the shipped recipes, and under `model/` the presets of model configurations.
"""

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .documents import read_document, require_no_comment
from .schema import KeyPath, Schema, describe, schema_of, shipped

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Recipe = TypeVar("Recipe")

ROOT = files(__package__ or "tercet.configs")
"""Where this folder's files lie once installed."""

PACKAGE = (__package__ or "").partition(".")[0]
"""The package of all our folders."""

MOST_BYTES = 4 * 2**20
"""Size of a recipe's file: whoever names a larger one means another file."""

PRESETS = "model"
"""The folder whose files are not recipes but model configurations."""

ALTERNATIVES: Mapping[KeyPath, tuple[str, str]] = {
    ("training", "schedule"): ("warmup_steps", "warmup_ratio"),
    ("general", "training", "schedule"): ("warmup_steps", "warmup_ratio"),
    ("adaptation", "training", "schedule"): ("warmup_steps", "warmup_ratio"),
    ("corpus",): ("path", "reader"),
}
"""Keys above two others -> these, of which a recipe sets one: who overrides that one means it alone."""


def load_recipe(cls: type[Recipe], source: Any, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe and check it against the dataclass that it must have the shape of.

    Args:
        cls: A frozen dataclass whose annotations, nested dataclasses included, say what is allowed.
        source: Path of a YAML file, the name of a shipped recipe, a dictionary or a recipe.
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
    source: Any, overrides: Iterable[str] = (), *, kind: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Read a recipe's name and its plain data, with overrides; nothing is checked against a dataclass.

    Args:
        source: A shipped recipe's name, or a YAML file; or a dictionary or a recipe, called by its type.
        overrides: `key=value`, with dotted keys.
        kind: Folder of the shipped recipes that are suggested instead of an unknown one; all by default.
    """
    if isinstance(source, str | Path):
        name, text = _read(source, kind)
    elif isinstance(source, Mapping) or (is_dataclass(source) and not isinstance(source, type)):
        name, text = f"({type(source).__name__})", None
    else:
        raise ValueError(
            f"recipe {source!r:.80} is of type {type(source).__name__}: give a name, a path, a dictionary or "
            "a recipe"
        )
    try:
        if text is not None:
            data = read_document(text)
        else:
            data = json.loads(written(dict(source))) if isinstance(source, Mapping) else recipe_data(source)
        if not isinstance(data, dict):
            kind = "nothing" if data is None else type(data).__name__
            raise ValueError(f"the file holds {kind}, not keys with values")
        return name, read_overrides(overrides, data)
    except ValueError as error:
        raise ValueError(f"recipe {name}: {error}") from None


def read_overrides(overrides: Iterable[str], data: dict[str, Any] | None = None) -> dict[str, Any]:
    """Set the values of `key=value` pairs, in order, in plain data that may be empty; return the data.

    A value replaces that of the key's alternative (`ALTERNATIVES`), unless a pair sets this, too.

    Raises:
        ValueError: A pair is none, its value is not YAML, or its key leads into a value without keys.
    """
    data = {} if data is None else data
    keys = [_set(data, override) for override in overrides]
    for above, pair in ALTERNATIVES.items():
        chosen = {name for name in pair if any(key[: len(above) + 1] == [*above, name] for key in keys)}
        part: Any = data
        for key in above:
            part = part.get(key) if isinstance(part, dict) else None
        if len(chosen) == 1 and isinstance(part, dict) and part.get(min(chosen)) is not None:
            for other in {*pair} - chosen:
                part.pop(other, None)
    return data


def written(value: Any) -> str:
    """Write a value as it may stand behind `key=`, or as a part of a recipe's plain data.

    >>> written({"train": Path("books.txt"), "sizes": (1, 2e-5)})
    '{"train": "books.txt", "sizes": [1, 2e-05]}'
    """
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    return json.dumps(json.loads(text)) if text.isascii() or max(text) < "\U00010000" else text


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return recipe_data(value)
    if callable(as_list := getattr(value, "tolist", None)):
        return as_list()
    raise ValueError(
        f"{value!r:.80} is of type {type(value).__name__}: give a number, a text, a path, a list or a "
        "dictionary"
    )


def parse_recipe(cls: type[Recipe], data: dict[str, Any]) -> Recipe:
    """Check plain data against a dataclass and build it.

    Raises:
        ValueError: As in `load_recipe`, without the recipe's name.
    """
    schema_for(cls).check(data)
    try:
        # By way of JSON, where strict means: no text for numbers, but lists for tuples and text for paths.
        return adapter_of(cls).validate_json(json.dumps(data), strict=True)
    except ValueError as error:
        raise ValueError(_described(error, data)) from None


def recipe_data(recipe: Any) -> dict[str, Any]:
    """Return a recipe as plain data, which `parse_recipe` and YAML files take back."""
    return adapter_of(type(recipe)).dump_python(recipe, mode="json")


@cache
def adapter_of(cls: Any) -> "TypeAdapter[Any]":
    """Return what builds and writes a dataclass; it takes longer to make than to use."""
    from pydantic import TypeAdapter  # whoever only reads recipes does without

    return TypeAdapter(cls)


@cache
def schema_for(cls: Any) -> Schema:
    """Return the schema of a dataclass: the shipped one, or what pydantic makes of another class."""
    if cls.__module__.startswith(f"{PACKAGE}.") and cls.__name__ in shipped()["$defs"]:
        return schema_of(cls.__name__)
    made = adapter_of(cls).json_schema()
    definitions = made.get("$defs", {})
    for part in (made, *definitions.values()):
        part.setdefault("additionalProperties", False)  # of a dataclass; others do not look
    return Schema(made, definitions)


def recipe_names() -> list[str]:
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


def shipped_file(name: str) -> str | None:
    """Return the text of a shipped recipe, or of a preset if no recipe has the name; nothing of others."""
    file = (_yaml_files(ROOT / PRESETS) | _shipped_recipes()).get(name)
    return None if file is None else file.read_text(encoding="utf-8")


def preset_names() -> list[str]:
    return sorted(_yaml_files(ROOT / PRESETS))


def load_preset(name: str) -> dict[str, Any]:
    """Read a preset: `model_type` and the configuration's fields."""
    presets = _yaml_files(ROOT / PRESETS)
    if name not in presets:
        raise ValueError(f"model preset {name!r} is unknown; {_nearest_recipe(name, list(presets))}")
    return read_document(presets[name].read_text(encoding="utf-8"))


def wrong_member(origin: str, model_type: str, kind: str, trained: Iterable[str]) -> str:
    """Say that an objective does not train a model, and which presets it trains."""
    members = [*trained]
    presets = [
        name for member in members for name in preset_names() if load_preset(name)["model_type"] == member
    ]
    return (
        f"{origin} is a {model_type}, but {kind} trains a {' or a '.join(members)}: choose one of "
        f"{', '.join(presets)}, or another objective"
    )


def _read(source: str | Path, kind: str | None = None) -> tuple[str, str]:
    shipped = _shipped_recipes()
    if str(source) in shipped:
        return str(source), shipped[str(source)].read_text(encoding="utf-8")
    path = Path(source)
    try:
        if (found := _is_there(path)) and path.is_file():
            return str(source), _text_of(path)
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
    raise ValueError(
        f"recipe {source}: neither a file nor a shipped recipe; {_nearest_recipe(path.stem, names)}"
    )


def _is_there(path: Path) -> bool:
    # Since Python 3.14, `exists` hides why it cannot tell.
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: its name has a null
        return False
    return True


def _text_of(path: Path) -> str:
    if (num_bytes := path.stat().st_size) > MOST_BYTES:
        remedy = "name a YAML file, which names the text in `corpus`"
        raise ValueError(f"recipe {path}: {num_bytes:,} bytes are too many for a recipe; {remedy}")
    return path.read_text(encoding="utf-8")


def _set(data: dict[str, Any], override: str) -> list[str]:
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
    return [*above, last]


def _shipped_recipes() -> dict[str, Traversable]:
    folders = [ROOT, *(folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name != PRESETS)]
    return {name: file for folder in folders for name, file in _yaml_files(folder).items()}


def _yaml_files(folder: Traversable) -> dict[str, Traversable]:
    if not folder.is_dir():
        return {}
    return {f.name.removesuffix(".yaml"): f for f in folder.iterdir() if f.name.endswith(".yaml")}


def _nearest_recipe(name: str, known: list[str]) -> str:
    if near := get_close_matches(name, known, n=3, cutoff=0.4):
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(sorted(known)) or 'none'}"


def split_overrides(overrides: Iterable[str], parts: Container[str]) -> tuple[list[str], list[str]]:
    """Separate overrides of the recipe from those of the machines: they have a dot, or name a part of it."""
    keys = [(each, each.partition("=")[0].strip()) for each in overrides]
    of_machines = [each for each, key in keys if "." not in key and key not in parts]
    return [each for each, _ in keys if each not in of_machines], of_machines


def _described(error: ValueError, data: Any) -> str:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    problems = [
        (_path_of(problem, data), problem["msg"].removeprefix("Value error, ")) for problem in error.errors()
    ]
    return describe(problems, data)


def _path_of(problem: Any, data: Any) -> KeyPath:
    # pydantic's location has the names of a union's members, too.
    path: KeyPath = ()
    for part in problem["loc"]:
        if part in (range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()):
            path, data = (*path, part), data[part]
    return path
