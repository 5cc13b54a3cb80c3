"""Whatever a recipe says, it becomes a recipe that survives the way back, or is refused in one line."""

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tercet.configs.documents import read_document
from tercet.configs.recipe import load_recipe, parse_recipe, recipe_data
from tercet.configs.schema import schema_of
from tercet.pretraining.recipe import PretrainingRecipe

SOUND = {
    "model": {"preset": "encoder-tiny", "overrides": {"hidden_size": 32}},
    "tokenizer": {"kind": "wordpiece", "vocab_size": 300},
    "corpus": {"train": "train.txt", "validation": ["validation.txt"]},
    "objective": {"kind": "masked_language_modeling", "mlm_probability": 0.2},
    "training": {"steps": 1, "optimizer": {"betas": [0.9, 0.98]}, "schedule": {"kind": "cosine"}},
    "output": "run",
}
PARTS = ["training", "training.optimizer", "training.schedule", "corpus", "objective", "model", "tokenizer"]
FRAGMENTS = [
    *"[]{}:,-?&*!|>'\"%@`#\n \t\\09a.~=<\x00\x07\x85\u2028\ufeff😀",
    *(
        "null",
        "true",
        "yes",
        "1e3",
        "0x1f",
        "0b2",
        "190:20:30",
        "2001-13-45",
        "1_0",
        ".inf",
        ".nan",
        "---",
        "&a",
    ),
    *("*a", "<<: *a", "!!python/object:os.system", "!!binary aGk=", "!!set {a}", "!!int x", "!!float ''"),
    *("!!bool x", "!!timestamp 1", "!!omap", "steps: 7", "training: {", "[1]: 2", "9" * 5000),
]


KEYS = [
    key
    for key in schema_of("PretrainingRecipe").dotted_keys()
    if key in SOUND or key.rpartition(".")[0] in PARTS
]
NAMES = [key.rpartition(".")[2] for key in KEYS]
CHARACTERS = st.characters() | st.sampled_from("\0\n\r\x85\u2028\ufeff")  # surrogates are among them
SINGLE = (
    st.none()
    | st.booleans()
    | st.integers(-5, 20)
    | st.integers(-(10**500), 10**500)
    | st.floats()
    | st.text(CHARACTERS, max_size=8)
    | st.sampled_from(["cosine", "translation", "documentation", "x" * 5000, "~nobody", "1e3", ""])
)
KEY = st.sampled_from(NAMES) | st.text(CHARACTERS, max_size=5) | st.none() | st.integers() | st.floats()
VALUES = st.recursive(
    SINGLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3), max_leaves=6
)


def changed(data: dict, key: str, value) -> dict:
    """Return data with another value under a dotted key."""
    first, _, rest = key.partition(".")
    inside = data.get(first)
    return data | {first: changed(inside if isinstance(inside, dict) else {}, rest, value) if rest else value}


def test_keys_are_those_of_the_recipe():
    assert {"training.steps", "corpus.train", "training.schedule.kind", "objective.mlm_probability"} <= set(
        KEYS
    )


def refusal(action: Callable[..., object], *arguments) -> str:
    """Return the line that an action is refused with; nothing if it is done."""
    try:
        action(*arguments)
    except ValueError as error:
        assert str(error).strip()  # noqa: PT017
        return str(error)
    return ""


def survive(data: dict) -> None:
    """Make a recipe of data, and data of that, and a recipe again."""
    recipe = parse_recipe(PretrainingRecipe, data)
    assert parse_recipe(PretrainingRecipe, recipe_data(recipe)) == recipe


def test_any_data_are_a_recipe_or_refused_in_one_line(effort):
    @effort(60)
    @given(st.lists(st.tuples(st.sampled_from(KEYS) | st.text(CHARACTERS, max_size=6), VALUES), max_size=3))
    def holds(changes):
        data = SOUND
        for key, value in changes:
            data = changed(data, key, value)
        assert "\n" not in refusal(survive, data)

    holds()


def test_any_text_is_plain_data_or_refused_in_one_line(effort):
    @effort(150)
    @given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text(CHARACTERS))
    def holds(text):
        assert "\n" not in refusal(lambda: json.dumps(read_document(text)))

    holds()


def test_any_file_is_a_recipe_or_refused_in_one_line(effort, tmp_path):
    file = tmp_path / "recipe.yaml"

    @effort(100)
    @given(
        st.binary()
        | st.sampled_from([json.dumps(SOUND).encode(encoding) for encoding in ("utf-8", "utf-16")]),
        st.lists(st.tuples(st.sampled_from(KEYS), st.text(CHARACTERS, max_size=8)).map("=".join), max_size=3),
    )
    def holds(content, overrides):
        file.write_bytes(content)
        message = refusal(load_recipe, PretrainingRecipe, file, overrides)
        assert message.startswith(f"recipe {file}: ") or not message
        assert "\n" not in message

    holds()
