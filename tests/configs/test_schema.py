"""The schema of recipes is that of their dataclasses: for pydantic, for the command line, and for editors."""

import json
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from docs.site.recipe_schema import FILE, schema
from tercet.configs.recipe import adapter_of, load_preset, preset_names, read_recipe, recipe_folders
from tercet.configs.schema import Schema, schema_of, shipped
from tercet.kinds import KINDS, command_of
from tercet.tools.plan.machines import PlanRecipe

CLASSES = {kind.name: kind.recipe for kind in KINDS.values()} | {"PlanRecipe": PlanRecipe}

VALUES = (
    *(None, True, -1, 0, 1, 7, 2**31, 0.5, 1.0, "", "x", "auto"),
    *([], ["x"], [1, 1], [1, 2, 3], {}),
)
"""What is tried under every key."""


@cache
def whole_recipes() -> dict[str, dict[str, Any]]:
    """Return a shipped recipe of each kind that is chosen somewhere, with the name of its dataclass."""
    found = {name: (KINDS[str(command_of(name))].name, read_recipe(name)[1]) for name in recipe_folders()}
    chosen = {json.dumps([cls, kinds_in(data)]): (cls, data) for cls, data in found.values()}
    return {f"{cls} {kinds_in(data)}": {"class": cls, "data": data} for cls, data in chosen.values()}


def kinds_in(data: Any) -> list[str]:
    """List the kinds that a recipe chooses."""
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    own = [data["kind"]] if isinstance(data, dict) and "kind" in data else []
    return [*own, *(kind for part in parts for kind in kinds_in(part))]


def changes(
    schema: Schema, data: dict[str, Any], seen: set[int], node: Any = None, path: tuple[str, ...] = ()
):
    """Yield data that differ from a recipe by a value, under each key of each part not seen yet."""
    for member in schema.members(schema.root if node is None else node):
        is_new = id(member) not in seen
        seen.add(id(member))
        for name, part in member.get("properties", {}).items():
            if is_new:
                yield from (with_value(data, (*path, name), value) for value in VALUES)
            if isinstance(inside := value_at(data, (*path, name)), dict) and name != "overrides":
                yield from changes(schema, data, seen, chosen(schema, part, inside), (*path, name))


def chosen(schema: Schema, node: Any, data: dict[str, Any]) -> Any:
    """Return the part that data choose by their kind."""
    parts = [each for each in schema.members(node) if "properties" in each]
    fitting = [each for each in parts if each["properties"].get("kind", {}).get("const") == data.get("kind")]
    return (fitting or parts or [None])[0]


def value_at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def with_value(data: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    return data | {first: with_value(data[first], tuple(rest), value) if rest else value}


def test_the_file_is_what_the_dataclasses_say():
    assert json.loads(FILE.read_text(encoding="utf-8")) == schema(), "run `make schema`"


@pytest.mark.parametrize("name", sorted(recipe_folders()))
def test_shipped_recipes_fit(name):
    KINDS[str(command_of(name))].schema.check(read_recipe(name)[1])


@pytest.mark.parametrize("name", preset_names())
def test_presets_fit_the_fields_of_their_configurations(name):
    values = load_preset(name)
    (own,) = (each for each in shipped()["$defs"].values() if each.get("model_type") == values["model_type"])
    Schema(own, shipped()["$defs"]).check(values)


def test_the_schema_refuses_what_pydantic_does():
    tried, refused, seen = 0, 0, set[int]()
    for recipe in whole_recipes().values():
        name = recipe["class"]
        for data in changes(schema_of(name), recipe["data"], seen):
            tried += 1
            try:
                schema_of(name).check(data)
                said = ""
            except ValueError as error:
                said = str(error)
            try:
                adapter_of(CLASSES[name]).validate_json(json.dumps(data), strict=True)
                theirs = set()
            except ValidationError as error:
                theirs = {problem["type"] for problem in error.errors()} - {"value_error"}
            is_ours = "unknown key" in said or ".overrides" in said  # pydantic knows nothing of these
            assert is_ours or bool(said) == bool(theirs), (data, said, theirs)
            refused += bool(said)
    assert tried > 3000
    assert refused > 1500


def test_every_part_and_key_of_recipes_has_a_meaning():
    for name, part in shipped()["$defs"].items():
        assert part["description"], name
        if "model_type" in part:  # some fields of configurations are transformers'
            continue
        for key, about in part["properties"].items():
            assert about.get("description") or key == "kind" or "$ref" in about, f"{name}.{key}"


def completions(schema: Schema, node: Any, data: Any, path: tuple[str, ...]) -> set[str]:
    """Complete as an editor does: the keys at a place, or the values that are listed there."""
    if path:
        first, *rest = path
        part = chosen(schema, node, data)
        inside = data.get(first, {})
        return completions(schema, part["properties"][first], inside, tuple(rest))
    parts = schema.members(node)
    keys = {key for each in parts for key in each.get("properties", ())}
    listed = [each.get("const", each.get("enum", ())) for each in parts]
    values = {value for each in listed for value in ([each] if isinstance(each, str) else each)}
    return keys | values | set(node.get("examples", ()))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("training", {"steps", "optimizer", "ema_decay"}),
        ("training.precision", {"auto", "bf16"}),
        ("training.optimizer.kind", {"adamw", "normuon"}),
        ("objective", {"kind", "mlm_probability"}),
        ("model.preset", {"encoder-tiny", "gpt2"}),
        ("model.overrides", {"hidden_size", "decoder_num_hidden_layers"}),
        ("model.overrides.hidden_act", {"silu", "gelu"}),
    ],
)
def test_editors_find_keys_and_values(path, expected):
    own = schema_of("PretrainingRecipe")
    data = {"objective": {"kind": "masked_language_modeling"}, "model": {}, "training": {"optimizer": {}}}
    assert expected <= completions(own, own.root, data, tuple(path.split(".")))


def test_a_validator_of_others_agrees():
    jsonschema = pytest.importorskip("jsonschema", reason="comes with other libraries")
    jsonschema.Draft202012Validator.check_schema(shipped())
    validator = jsonschema.Draft202012Validator(shipped())
    for name in recipe_folders():
        assert validator.is_valid(read_recipe(name)[1]), name
    for override in (
        "training.stepz=3",
        "training.steps=0",
        "objective.kind=mlm",
        "model.overrides.dropout=x",
    ):
        assert not validator.is_valid(read_recipe("encoder-demo", [override])[1]), override
