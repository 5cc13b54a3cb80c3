"""Recipes: what a run does, as YAML with the shape of typed dataclasses.

    a path, or the name of a shipped recipe -> YAML -> `key=value` overrides -> checked -> a frozen dataclass
    plain data, or a recipe that was built ---------^

Whatever is wrong becomes one `ValueError` line that names the recipe, the key, the value and the remedy. The
files beside this one are the shipped recipes, and under `model/` the presets of model configurations.

Unknown keys are looked for here, not by pydantic: it would need every dataclass to forbid them, and it tells
neither which key was meant nor, in a union, which keys the chosen member has.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from re import findall
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from .documents import read_document, require_no_comment

Recipe = TypeVar("Recipe")

ROOT = files(__package__ or "tercet.configs")
"""Where this folder's files lie once installed."""

MOST_BYTES = 4 * 2**20
"""Size of a recipe's file: whoever names a larger one means another file."""

PRESETS = "model"
"""The folder whose files are not recipes but model configurations."""

KeyPath = tuple[str | int, ...]
"""Keys and list positions that lead to a value."""

ALTERNATIVES: Mapping[KeyPath, tuple[str, str]] = {
    ("training", "schedule"): ("warmup_steps", "warmup_ratio"),
    ("corpus",): ("path", "reader"),
}
"""Keys above two others -> these, of which a recipe sets one: who overrides that one means it alone."""

DEVICE_KEYS = frozenset(
    {
        "device",
        "devices",
        "gpu",
        "gpus",
        "cuda",
        "cpu",
        "num_gpus",
        "n_gpu",
        "use_cpu",
        "no_cuda",
        "device_map",
    }
)
"""Keys by which people try to choose a device."""

DEVICES = (
    "neither key nor option, because a GPU is taken if there is one: CUDA_VISIBLE_DEVICES=1 chooses which, "
    "ACCELERATE_USE_CPU=true computes on the CPU, and `accelerate launch -m tercet ...` takes several"
)

MISSING = ("missing", "union_tag_not_found")
"""What pydantic calls a key without a value; the latter where the key chooses among dataclasses."""


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

    Raises:
        ValueError: The recipe is unknown, no YAML, or no keys with values; or an override is none.
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
        data = _data_of(source) if text is None else read_document(text)
        if not isinstance(data, dict):
            raise ValueError(f"the file holds {type(data).__name__}, not keys with values")
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

    Raises:
        ValueError: No recipe can have it.
    """
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    return json.dumps(json.loads(text)) if text.isascii() or max(text) < "\U00010000" else text


def _plain(value: Any) -> Any:
    """Return a path, a number of NumPy's or a part of a recipe as plain data."""
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
    check_keys(cls, data)
    check_numbers(data)
    try:
        # By way of JSON, where strict means: no text for numbers, but lists for tuples and text for paths.
        return adapter_of(cls).validate_json(json.dumps(data), strict=True)
    except ValueError as error:
        raise ValueError(describe_errors(error, data)) from None


def recipe_data(recipe: Any) -> dict[str, Any]:
    """Return a recipe as plain data, which `parse_recipe` and YAML files take back."""
    return adapter_of(type(recipe)).dump_python(recipe, mode="json")


@cache
def adapter_of(cls: Any) -> TypeAdapter[Any]:
    """Return what checks and writes a dataclass; it takes longer to build than to use."""
    return TypeAdapter(cls)


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


def shipped_file(name: str) -> str | None:
    """Return the text of a shipped recipe, or of a preset if no recipe has the name; nothing of others."""
    file = (_yaml_files(ROOT / PRESETS) | _shipped_recipes()).get(name)
    return None if file is None else file.read_text(encoding="utf-8")


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
        raise ValueError(f"model preset {name!r} is unknown; {_nearest_recipe(name, list(presets))}")
    return read_document(presets[name].read_text(encoding="utf-8"))


def _read(source: str | Path, kind: str | None = None) -> tuple[str, str]:
    """Name a recipe, and give its text; an unknown one is answered with shipped ones of a kind."""
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
    """Return whether there is a file or folder; since Python 3.14, `exists` hides why it cannot tell."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: its name has a null
        return False
    return True


def _data_of(source: Any) -> Any:
    """Return a dictionary or a recipe as plain data, which may be changed."""
    return json.loads(written(dict(source))) if isinstance(source, Mapping) else recipe_data(source)


def _text_of(path: Path) -> str:
    """Read a recipe's file."""
    if (num_bytes := path.stat().st_size) > MOST_BYTES:
        remedy = "name a YAML file, which names the text in `corpus`"
        raise ValueError(f"recipe {path}: {num_bytes:,} bytes are too many for a recipe; {remedy}")
    return path.read_text(encoding="utf-8")


def _set(data: dict[str, Any], override: str) -> list[str]:
    """Set the dotted key of `key=value`, making missing levels above it; return its parts."""
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
    """Find the shipped recipes beside this file and in its folders, by name."""
    folders = [ROOT, *(folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name != PRESETS)]
    return {name: file for folder in folders for name, file in _yaml_files(folder).items()}


def _yaml_files(folder: Traversable) -> dict[str, Traversable]:
    if not folder.is_dir():
        return {}
    return {f.name.removesuffix(".yaml"): f for f in folder.iterdir() if f.name.endswith(".yaml")}


def _nearest_recipe(name: str, known: list[str]) -> str:
    """Describe which known names are near a wrong one, or all of them."""
    if near := get_close_matches(name, known, n=3, cutoff=0.4):
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(sorted(known)) or 'none'}"


def check_keys(cls: Any, data: Any) -> None:
    """Refuse a key that the dataclass, or the nested one that it would go to, does not have.

    Raises:
        ValueError: The first unknown key, with its value and the key that was probably meant.
    """
    for path, value, owners, others in _unknown_keys(cls, data, ()):
        remedy = _remedy(path, value, owners, others, _keys_in_use(cls, data))
        raise ValueError(f"{_dotted(path)} = {_shown(value)}: {remedy}")


def check_numbers(data: Any) -> None:
    """Refuse numbers that no computer counts with: infinite ones, and integers of more than 64 bits.

    Raises:
        ValueError: The first such number.
    """
    for path, value in _leaves(data, ()):
        is_infinite = isinstance(value, float) and not math.isfinite(value)
        if is_infinite or (isinstance(value, int) and value.bit_length() > 63):
            raise ValueError(f"{_dotted(path)} = {_shown(value)}: must be a finite number below 2^63")


def dotted_keys(cls: Any) -> list[str]:
    """List every dotted key of a dataclass, those of nested ones included."""
    return list(dict.fromkeys(_all_keys(cls, (), ())))


def describe_errors(error: ValueError, data: Any) -> str:
    """Put pydantic's complaints about one value, the deepest of those that it names, into one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    problems = [(_path_of(problem, data), problem) for problem in error.errors()]
    # Of a union's members, the value is meant to be the one that it fits farthest into.
    path, first = max(problems, key=lambda problem: len(problem[0]))
    if first["type"] in MISSING:
        return f"{_dotted(path)}: missing; the recipe must set it"
    # A value that fits no member of a union is complained about once for every member.
    expected = dict.fromkeys(_expectation(problem) for where, problem in problems if where == path)
    value, remedy = _value_at(data, path), " or ".join(expected)
    return f"{_dotted(path)} = {_shown(value)}: {remedy}{_nearest(value, remedy)}" if path else remedy


def _unknown_keys(
    annotation: Any, data: Any, path: KeyPath
) -> Iterator[tuple[KeyPath, Any, list[Any], list[Any]]]:
    """Walk data and annotation together; yield each unknown key's path, value, and the dataclasses there.

    Behind them stand those of another kind that have the key.
    """
    if isinstance(data, list):
        elements = [arg for member in _members(annotation) for arg in get_args(member) if get_args(member)]
        for index, value in enumerate(data):
            is_part = isinstance(value, dict)
            fitting = [
                one for one in elements if any(map(is_dataclass, _members(one))) == is_part
            ] or elements
            for element in fitting[:1]:
                yield from _unknown_keys(element, value, (*path, index))
    candidates = [member for member in _members(annotation) if is_dataclass(member)]
    if not candidates or not isinstance(data, dict):
        return
    chosen = [candidate for candidate in candidates if _accepts_kind(candidate, data)] or candidates
    hints = {name: hint for candidate in reversed(chosen) for name, hint in _hints(candidate).items()}
    for key, value in data.items():
        if key in hints:
            yield from _unknown_keys(hints[key], value, (*path, key))
        else:
            yield (*path, key), value, chosen, [other for other in candidates if key in _hints(other)]


def _leaves(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Walk through plain data; yield each single value with its path."""
    parts = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else None
    if parts is None:
        yield path, data
    for key, value in parts or ():
        yield from _leaves(value, (*path, key))


def _members(annotation: Any) -> list[Any]:
    """List the members of a union, or the annotation itself, without what `Annotated` adds."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [member for arg in get_args(annotation) for member in _members(arg)]
    return [annotation]


def _hints(cls: Any) -> dict[str, Any]:
    """Return a dataclass's fields with their annotations."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _accepts_kind(cls: Any, data: dict[str, Any]) -> bool:
    """Return whether the literals of a union's member (its `kind`) allow the data."""
    return all(
        data.get(name) in get_args(member)
        for name, hint in _hints(cls).items()
        for member in _members(hint)
        if get_origin(member) is Literal and name in data
    )


def _remedy(path: KeyPath, value: Any, owners: list[Any], others: list[Any], known: list[str]) -> str:
    """Describe which key was probably meant: of another kind, beside the unknown one, or elsewhere."""
    *above, key = map(str, path)
    if key in DEVICE_KEYS:
        return DEVICES
    hints = [member for other in others for member in _members(_hints(other).get("kind"))]
    if kinds := [kind for hint in hints for kind in get_args(hint)]:
        return f"unknown key of this kind; {'.'.join(above)} has it with kind {', '.join(kinds)}"
    siblings = list(dict.fromkeys(name for owner in owners for name in _hints(owner)))
    while isinstance(value, dict) and len(value) == 1 and not get_close_matches(key, siblings, cutoff=0.7):
        ((key, value),) = value.items()  # of training.optimizer.learning_rate, the last
    return f"unknown key; {_meant(above, str(key), siblings, known)}"


def _meant(above: list[str], key: str, siblings: list[str], known: list[str]) -> str:
    """Describe which key was probably meant: of those elsewhere, one in the same part, else the uppermost."""
    if near := get_close_matches(key, siblings, n=1, cutoff=0.7):
        return f"did you mean {'.'.join([*above, near[0]])}?"
    ordered = sorted(known, key=lambda dotted: (dotted.split(".")[:1] != above[:1], dotted.count(".")))
    elsewhere = {dotted.rpartition(".")[2]: dotted for dotted in reversed(ordered)}
    if near := get_close_matches(key, elsewhere, n=1, cutoff=0.8):
        return f"did you mean {elsewhere[near[0]]}?"
    return f"{'.'.join(above) or 'the recipe'} has {', '.join(siblings)}"


def _keys_in_use(cls: Any, data: Any) -> list[str]:
    """List the dotted keys of a dataclass, but for optional parts that the data do not have."""
    left_out = {name for name, hint in _hints(cls).items() if NoneType in _members(hint) and name not in data}
    return [dotted for dotted in dotted_keys(cls) if dotted.partition(".")[0] not in left_out]


def _all_keys(annotation: Any, path: KeyPath, above: tuple[Any, ...]) -> Iterator[str]:
    """List every dotted key of a dataclass; a dataclass inside itself is listed once."""
    for member in _members(annotation):
        if is_dataclass(member) and member not in above:
            for name, hint in _hints(member).items():
                yield _dotted((*path, name))
                yield from _all_keys(hint, (*path, name), (*above, member))


def _path_of(problem: Any, data: Any) -> KeyPath:
    """Find where the data have a problem: pydantic's location without the names of a union's members."""
    path: KeyPath = ()
    for part in problem["loc"]:
        if part in (range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()):
            path, data = (*path, part), data[part]
    if "discriminator" in problem.get("ctx", {}):
        return (*path, problem["ctx"]["discriminator"].strip("'"))
    return (*path, problem["loc"][-1]) if problem["type"] == "missing" else path


def _value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _expectation(problem: Any) -> str:
    """Shorten pydantic's sentence: `Input should be a valid integer` becomes `must be a valid integer`."""
    if problem["type"] == "union_tag_invalid":
        return f"must be one of {problem['ctx']['expected_tags']}"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return message.replace("an object", "keys with values").replace("a valid dictionary", "keys with values")


def _nearest(value: Any, expected: str) -> str:
    """Name the one of the quoted names that was probably meant, if one is near."""
    names = findall(r"'(.+?)'", expected)
    near = get_close_matches(value, names, n=1, cutoff=0.8) if isinstance(value, str) else []
    return f"; did you mean {near[0]}?" if near else ""


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) if str(part).isidentifier() else _shown(part) for part in path)


def _shown(value: Any) -> str:
    """Show a value as YAML would take it, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
