"""The JSON Schema of recipes, and what is said about a key or value that does not fit it.

    dataclasses of recipes -> recipes.schema.json -> editors, the command line, runs

The file is made by `docs/site/recipe_schema.py` and has a definition for each dataclass. It is checked
here, with the words of JSON Schema that pydantic writes for dataclasses: a schema is read without torch, and
a general checker would say neither which key was meant nor, in a union, which keys the chosen kind has.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from re import findall
from typing import Any

FILE = files(__package__ or "tercet.configs") / "recipes.schema.json"
"""The schema of all recipes."""

Node = Mapping[str, Any]
"""A schema of a value, in a larger one."""

KeyPath = tuple[str | int, ...]
"""Keys and list positions that lead to a value."""

Problem = tuple[KeyPath, str]
"""Where a value does not fit, and what it has to be."""

MISSING = "missing; the recipe must set it"

TYPES: Mapping[str, tuple[Any, str]] = {
    "string": (str, "a valid string"),
    "integer": (int, "a valid integer"),
    "number": ((int, float), "a valid number"),
    "boolean": (bool, "a valid boolean"),
    "array": (list, "a list in brackets"),
    "object": (dict, "keys with values"),
    "null": (type(None), "null"),
}
"""The types of JSON Schema: what they are in plain data, and in a message."""

LIMITS = {
    "minimum": (lambda value, limit: value >= limit, "must be greater than or equal to {}"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "must be greater than {}"),
    "maximum": (lambda value, limit: value <= limit, "must be less than or equal to {}"),
    "exclusiveMaximum": (lambda value, limit: value < limit, "must be less than {}"),
    "minItems": (lambda value, limit: len(value) >= limit, "must have at least {} in its list"),
    "maxItems": (lambda value, limit: len(value) <= limit, "must have at most {} in its list"),
    "minLength": (lambda value, limit: len(value) >= limit, "must have at least {} characters"),
}
"""The limits of JSON Schema: whether a value of the right type keeps to them, and what is said if not."""

DEVICE_KEYS = frozenset(
    {
        *("device", "devices", "gpu", "gpus", "cuda", "cpu", "num_gpus", "n_gpu", "use_cpu", "no_cuda"),
        "device_map",
    }
)
"""Keys by which people try to choose a device."""

DEVICES = (
    "neither key nor option, because a GPU is taken if there is one: CUDA_VISIBLE_DEVICES=1 chooses which, "
    "ACCELERATE_USE_CPU=true computes on the CPU, and `accelerate launch -m tercet ...` takes several"
)


@dataclass(frozen=True)
class Schema:
    """What the data of a recipe, or of a part of one, have to be."""

    root: Node
    """Node of the whole data."""
    definitions: Mapping[str, Node]
    """What `$ref` names."""

    def check(self, data: Any, above: KeyPath = ()) -> None:
        """Refuse data that are not as the schema says: a key first, then a number, then another value.

        Args:
            above: Keys that lead to them in their recipe.

        Raises:
            ValueError: The key and the value in one line, with the remedy.
        """
        for path, value, owners, others in self._unknown_keys(self.root, data, ()):
            remedy = self._remedy(path, value, owners, others, data)
            raise ValueError(f"{dotted((*above, *path))} = {shown(value)}: {remedy}")
        for path, value in leaves(data, ()):
            if not is_finite(value):
                raise ValueError(
                    f"{dotted((*above, *path))} = {shown(value)}: must be a finite number below 2^63"
                )
        if problems := self._problems(self.root, data, ()):
            raise ValueError(describe(problems, data, above))

    def dotted_keys(self) -> list[str]:
        return list(dict.fromkeys(self._keys(self.root, (), ())))

    def completed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return data that fit, with the defaults of what they leave out, in the order of the schema."""
        members = [each for each in self.members(self.root) if "properties" in each]
        chosen = next((each for each in members if self._accepts(each, data)), None)
        if chosen is None or not is_closed(chosen):
            return dict(data)
        found = {}
        for name, part in chosen["properties"].items():
            value = data.get(name, part.get("default", {}))
            found[name] = (
                Schema(part, self.definitions).completed(value) if isinstance(value, dict) else value
            )
        return found

    @property
    def names(self) -> list[str]:
        """The keys at the top."""
        return [name for member in self.members(self.root) for name in member.get("properties", ())]

    @property
    def needed(self) -> set[str]:
        """The keys at the top that must be set."""
        return {name for member in self.members(self.root) for name in member.get("required", ())}

    def members(self, node: Node) -> list[Node]:
        """List the members of a union, or the node itself, where `$ref` names one."""
        if (name := node.get("$ref")) is not None:
            return self.members(self.definitions[name.rpartition("/")[2]])
        inner = [member for word in ("anyOf", "oneOf") for member in node.get(word, ())]
        return [found for member in inner for found in self.members(member)] or [node]

    def _problems(self, node: Node, data: Any, path: KeyPath) -> list[Problem]:
        members = self.members(node)
        if isinstance(data, dict) and len(kinds := [each for each in members if self._kinds(each)]) > 1:
            if "kind" not in data:
                return [((*path, "kind"), MISSING)]
            names = [name for each in kinds for name in self._kinds(each)]
            members = [each for each in kinds if data["kind"] in self._kinds(each)]
            if not members:
                return [((*path, "kind"), f"must be one of {', '.join(map(repr, names))}")]
        found = [self._problems_of_one(member, data, path) for member in members]
        if not all(found):
            return []
        if (
            "errorMessage" in node
            and isinstance(data, list)
            and len({isinstance(each, dict) for each in data}) == 2
        ):
            return [(path, node["errorMessage"])]
        told = [each for each, member in zip(found, members, strict=True) if member.get("type") != "null"]
        return [problem for problems in told or found for problem in problems]

    def _problems_of_one(self, node: Node, data: Any, path: KeyPath) -> list[Problem]:
        if choices := values_of(node):
            is_one = any(data == value and type(data) is type(value) for value in choices)
            return [] if is_one else [(path, node.get("errorMessage") or one_of(choices))]
        if (name := node.get("type")) is None:
            return []
        kind, words = TYPES[name]
        if not isinstance(data, kind) or (isinstance(data, bool) and name != "boolean"):
            return [(path, f"must be {words}")]
        for word, (keeps, text) in LIMITS.items():
            if word in node and not keeps(data, node[word]):
                return [(path, text.format(number(node[word])))]
        lacking = [key for key in node.get("required", ()) if key not in data]
        inside = [
            problem
            for key, part, value in parts_of(node, data)
            for problem in self._problems(part, value, (*path, key))
        ]
        return [*(((*path, key), MISSING) for key in lacking), *inside]

    def _unknown_keys(
        self, node: Node, data: Any, path: KeyPath
    ) -> Iterator[tuple[KeyPath, Any, list[Node], list[Node]]]:
        # Each comes with its value, the parts that it is in, and those of another kind that have the key.
        members = self.members(node)
        if isinstance(data, list):
            elements = [
                element
                for member in members
                for element in (*member.get("prefixItems", ()), *filter(None, [member.get("items")]))
            ]
            for index, value in enumerate(data):
                fitting = [
                    each for each in elements if self._is_part(each) == isinstance(value, dict)
                ] or elements
                for element in fitting[:1]:
                    yield from self._unknown_keys(element, value, (*path, index))
        candidates = [member for member in members if is_closed(member)]
        if not candidates or not isinstance(data, dict):
            return
        chosen = [each for each in candidates if self._accepts(each, data)] or candidates
        known = {name: part for each in reversed(chosen) for name, part in each["properties"].items()}
        for key, value in data.items():
            if key in known:
                yield from self._unknown_keys(known[key], value, (*path, key))
            else:
                others = [other for other in candidates if key in other["properties"]]
                yield (*path, key), value, chosen, others

    def _is_part(self, node: Node) -> bool:
        return any("properties" in member for member in self.members(node))

    def _accepts(self, node: Node, data: Mapping[str, Any]) -> bool:
        # By the choices of a union's member: its `kind`.
        return all(
            data[name] in choices
            for name, part in node["properties"].items()
            if name in data
            and (choices := [each for one in self.members(part) for each in values_of(one)])
            and all(values_of(one) for one in self.members(part))
        )

    def _kinds(self, node: Node) -> list[str]:
        return (
            values_of(node.get("properties", {}).get("kind", {}))
            if "kind" in node.get("required", ())
            else []
        )

    def _remedy(
        self, path: KeyPath, value: Any, owners: list[Node], others: list[Node], data: Mapping[str, Any]
    ) -> str:
        *above, key = map(str, path)
        if key in DEVICE_KEYS:
            return DEVICES
        if kinds := [kind for other in others for kind in self._kinds(other)]:
            return f"unknown key of this kind; {'.'.join(above)} has it with kind {', '.join(kinds)}"
        siblings = list(dict.fromkeys(name for owner in owners for name in owner["properties"]))
        known = self._keys_in_use(data)
        while isinstance(value, dict) and len(value) == 1 and not get_close_matches(key, siblings, 1, 0.7):
            ((inner, value),) = ((str(inner), below) for inner, below in value.items())  # the last of a.b.c
            if own := [each for each in known if key in each.split(".")]:  # of a part that stands elsewhere
                if not (fitting := [each for each in own if each.endswith(f".{inner}")]):
                    break
                known = fitting
            key = inner
        return f"unknown key; {meant(above, key, siblings, known)}"

    def _keys_in_use(self, data: Mapping[str, Any]) -> list[str]:
        # All but those of optional parts that the data do not have.
        top = {name: part for each in self.members(self.root) for name, part in each["properties"].items()}
        left_out = {
            name
            for name, part in top.items()
            if name not in data and any(each.get("type") == "null" for each in self.members(part))
        }
        return [key for key in self.dotted_keys() if key.partition(".")[0] not in left_out]

    def _keys(self, node: Node, path: KeyPath, above: tuple[int, ...]) -> Iterator[str]:
        # A part inside itself is listed once.
        for member in self.members(node):
            if id(member) not in above:
                for name, part in member.get("properties", {}).items():
                    yield dotted((*path, name))
                    yield from self._keys(part, (*path, name), (*above, id(member)))


@cache
def shipped() -> Mapping[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def schema_of(name: str) -> Schema:
    """Return the schema of a shipped definition, such as `PretrainingRecipe`."""
    definitions = shipped()["$defs"]
    return Schema(definitions[name], definitions)


def is_closed(node: Node) -> bool:
    """Return whether a part has no other keys than those that it names."""
    return node.get("additionalProperties") is False


def values_of(node: Node) -> list[Any]:
    """List the values that a node chooses from, if it does."""
    return [node["const"]] if "const" in node else list(node.get("enum", ()))


def parts_of(node: Node, data: Any) -> Iterator[tuple[str | int, Node, Any]]:
    """Yield the keys or positions of data with the schema and the value of each; nothing of single values."""
    if isinstance(data, dict):
        known, others = node.get("properties", {}), node.get("additionalProperties")
        for key, value in data.items():
            if isinstance(part := known.get(key, others), Mapping):
                yield key, part, value
    elif isinstance(data, list):
        first = node.get("prefixItems", ())
        for index, value in enumerate(data):
            yield index, first[index] if index < len(first) else node.get("items", {}), value


def leaves(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Walk through plain data; yield each single value with its path."""
    parts = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else None
    if parts is None:
        yield path, data
    for key, value in parts or ():
        yield from leaves(value, (*path, key))


def is_finite(value: Any) -> bool:
    """Return whether a value is no infinite number, and no integer of more than 64 bits."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or value.bit_length() <= 63


def describe(problems: list[Problem], data: Any, above: KeyPath = ()) -> str:
    """Put what is wrong with one value, the deepest, into one line.

    Of a union's members, the value is meant to be the one that it fits farthest into. A value that fits none
    of them is complained about once for every member.
    """
    path, first = max(problems, key=lambda problem: len(problem[0]))
    place = dotted((*above, *path))
    if first == MISSING:
        return f"{place}: {MISSING}"
    for part in path:
        data = data[part]
    remedy = " or ".join(dict.fromkeys(text for where, text in problems if where == path))
    if isinstance(data, dict) and not remedy.startswith("must "):  # a part's own words, with keys of the part
        return f"{place}: {remedy}" if place else remedy
    return f"{place} = {shown(data)}: {remedy}{near_name(data, remedy)}" if place else remedy


def meant(above: list[str], key: str, siblings: list[str], known: list[str]) -> str:
    """Describe which key was probably meant: of those elsewhere, one in the same part, else the uppermost."""
    if near := get_close_matches(key, siblings, n=1, cutoff=0.7):
        return f"did you mean {'.'.join([*above, near[0]])}?"
    ordered = sorted(known, key=lambda dotted: (dotted.split(".")[:1] != above[:1], dotted.count(".")))
    elsewhere = {dotted.rpartition(".")[2]: dotted for dotted in reversed(ordered)}
    if near := get_close_matches(key, elsewhere, n=1, cutoff=0.8):
        return f"did you mean {elsewhere[near[0]]}?"
    return f"{'.'.join(above) or 'the recipe'} has {', '.join(siblings)}"


def near_name(value: Any, expected: str) -> str:
    """Name the one of the quoted names that was probably meant, if one is near."""
    names = {name.lower(): name for name in findall(r"'(.+?)'", expected)}
    near = get_close_matches(value.lower(), names, n=1, cutoff=0.8) if isinstance(value, str) else []
    return f"; did you mean {names[near[0]]}?" if near else ""


def one_of(values: list[Any]) -> str:
    """Say which values are possible: `must be 'a', 'b' or 'c'`."""
    *first, last = map(repr, values)
    return f"must be {', '.join(first)} or {last}" if first else f"must be {last}"


def no_field(key: str, configuration: str, near: Sequence[str]) -> str:
    """Say that a configuration has no such field, and which one may be meant."""
    return f"{key} is not a field of {configuration}: did you mean {' or '.join(near)}?"


def require_fields(config_class: Any, names: Sequence[str]) -> None:
    """Raise a `ValueError` if a name is no field of a configuration, which would store it and not use it."""
    known = [field.name for field in fields(config_class)]
    earlier = getattr(config_class, "earlier_names", {})
    for name in names:
        if name not in known:
            near = [earlier[name]] if name in earlier else get_close_matches(name, known, n=3, cutoff=0.4)
            raise ValueError(no_field(f"model.overrides.{name}", config_class.__name__, near or known))


def number(value: float) -> str:
    """Write a limit without what rounds to nothing.

    >>> number(0.0), number(4194304), number(0.1)
    ('0', '4194304', '0.1')
    """
    return str(int(value)) if value == int(value) else str(value)


def dotted(path: KeyPath) -> str:
    """Join keys with dots; one that is no word is quoted."""
    return ".".join(str(part) if str(part).isidentifier() else shown(part) for part in path)


def shown(value: Any) -> str:
    """Show a value as YAML would take it, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
