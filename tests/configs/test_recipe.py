"""Reading of recipes: what is accepted, and how every mistake is answered in one line."""

import json
import os
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from pydantic import Field

from tercet.configs.documents import read_document
from tercet.configs.recipe import (
    MOST_BYTES,
    load_preset,
    load_recipe,
    preset_names,
    read_overrides,
    read_recipe,
    recipe_data,
    recipe_names,
)
from tercet.training.recipe import TrainingRecipe


@dataclass(frozen=True)
class Masking:
    kind: Literal["masking"]
    rate: float = 0.15


@dataclass(frozen=True)
class Translation:
    kind: Literal["translation"]
    smoothing: float = 0.1


@dataclass(frozen=True)
class Corpus:
    train: str | list[str]
    num_workers: int = 2


@dataclass(frozen=True)
class Whole:
    training: TrainingRecipe
    corpus: Corpus = field(default_factory=lambda: Corpus("documentation"))
    objective: Annotated[Masking | Translation, Field(discriminator="kind")] = field(
        default_factory=lambda: Masking("masking")
    )
    output: str = "runs/whole"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return write


def refusal(source: str, *overrides: str) -> str:
    with pytest.raises(ValueError, match="recipe ") as caught:
        load_recipe(Whole, source, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"recipe {source}: ")


def test_what_is_written_is_what_is_read(write):
    path = write("training: {steps: 7, optimizer: {learning_rate: 1e-3, betas: [0.9, 0.95]}}\noutput: here\n")
    recipe = load_recipe(Whole, path)
    assert recipe.training.steps == 7
    assert recipe.training.optimizer.learning_rate == 1e-3
    assert recipe.training.optimizer.betas == (0.9, 0.95)
    assert recipe.corpus == Corpus("documentation")
    assert recipe.output == "here"


def test_overrides_win_and_make_the_levels_above_them(write):
    path = write("training: {steps: 7}\n")
    overrides = ["training.steps=9", "training.optimizer.learning_rate=2e-4", "corpus.train=[a, b]"]
    recipe = load_recipe(Whole, path, overrides)
    assert recipe.training.steps == 9
    assert recipe.training.optimizer.learning_rate == 2e-4
    assert recipe.corpus.train == ["a", "b"]


def test_a_recipe_survives_the_way_to_data_and_back(write):
    recipe = load_recipe(Whole, write("training: {steps: 7}\nobjective: {kind: translation, smoothing: 0}\n"))
    again = load_recipe(Whole, write(json.dumps(recipe_data(recipe))))
    assert again == recipe


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("objective.rate=0.3", "objective.rate = 0.3: unknown key"),
        ("objective.rate=0.3", ": unknown key of this kind; objective has it with kind masking"),
        ("objective.kind=juggling", 'objective.kind = "juggling": must be '),
        ("objective.kind=translations", "; did you mean translation?"),
        ("objective.smoothing=much", 'objective.smoothing = "much": must be a valid number'),
    ],
)
def test_the_keys_of_a_union_are_those_of_the_chosen_kind(write, override, answer):
    assert answer in refusal(write("training: {steps: 7}\nobjective: {kind: translation}\n"), override)


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("training.stepz=100", "training.stepz = 100: unknown key; did you mean training.steps?"),
        ("steps=100", "steps = 100: unknown key; did you mean training.steps?"),
        ("zebra=1", "zebra = 1: unknown key; the recipe has training, corpus, objective, output"),
        ("training.steps=many", 'training.steps = "many": must be a valid integer'),
        ("training.steps=1.5", "training.steps = 1.5: must be a valid integer"),
        ("training.steps=0", "training.steps = 0: must be greater than 0"),
        ('training.steps="100"', 'training.steps = "100": must be a valid integer'),
        ("training.precision=fp12",
         "training.precision = \"fp12\": must be 'auto', 'fp32', 'bf16' or 'fp16'"),
        ("corpus.train=3", "corpus.train = 3: must be a valid string or must be a list in brackets"),
        ("training.optimizer=adamw", 'training.optimizer = "adamw": must be keys with values'),
        ("training.steps", "override 'training.steps': write key=value, as in training.steps=100"),
        ("training.steps.a=1", "override 'training.steps.a=1': steps is 7 and has no keys; set steps itself"),
        ("training.steps=[1",
         "override 'training.steps=[1': expected ',' or ']', but got '<stream end>' (line 1, column 3)"),
        *(  # as in Hydra (issue 2705), a shell's quotes keep nothing of it
            (
                f"output={value}",
                f"override 'output={value}': '#2' would be a comment: quote the value twice, as in "
                f"""key='"{value}"'""",
            )
            for value in ("runs/books #2", "#2", "[a, b] #2")
        ),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_answered_with_what_is_expected(write, override, answer):
    assert refusal(write("training: {steps: 7}\n"), override) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("# no keys\n", "the file holds nothing, not keys with values"),
        ("just words\n", "the file holds str, not keys with values"),
        ("training: {seed: 1}\n", "training.steps: missing; the recipe must set it"),
        ("training: {steps: 7}\noutput: a\noutput: b\n", "the key 'output' is given twice (line 3)"),
        ("{[1]: 2}", "a key is no single value (line 1)"),
        ("a: &a [*a]", "a value contains itself (line 1)"),
        (
            "a: !!int x",
            "not plain data (invalid literal for int() with base 10: 'x'): write the value without a tag",
        ),
        ("a: !!set {b}", "!!set is not plain data (line 1)"),
        ("a: " + "[" * 5000, "values inside of values, hundreds deep: write fewer brackets"),
        ("a: " + "9" * 5000, "a number of 5,000 digits is too long (line 1)"),
        ("a: b\0", "the character U+0000 cannot stand in YAML (position 4)"),
        ('output: "a\\0b"', "'a\\x00b' has a NUL character (line 1)"),
        ('output: "\\ud800"', r"'\ud800' has half of a character (line 1)"),
        ("training: {steps: 7, max_grad_norm: .inf}",
         "training.max_grad_norm = Infinity: must be a finite number"),
        ("training: {steps: 1" + "0" * 30 + "}",
         "training.steps = 1000000000000000000000000000000: must be a finite"),
        ('"a\\nb": 1', '"a\\nb" = 1: unknown key; the recipe has training, corpus, objective, output'),
    ],
)  # fmt: skip
def test_what_no_recipe_can_mean_is_refused(write, text, answer):
    assert refusal(write(text)).startswith(answer)


def test_a_missing_recipe_is_answered_with_the_shipped_ones():
    answer = refusal("no-such-recipe")
    assert answer.startswith("neither a file nor a shipped recipe; ")
    for kind in ("finetune", "fewshot"):
        with pytest.raises(ValueError, match=r"did you mean .*\?") as told:
            read_recipe("colas", kind=kind)
        assert ("cola" in str(told.value).split("mean")[1].split()) == (kind == "finetune")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_recipe_is_not_waited_for_nor_read_whole(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", os.devnull):
        assert refusal(name).startswith("a pipe or a device; write the recipe to a file")
    (tmp_path / "books.yaml").write_bytes(b"a" * (MOST_BYTES + 1))
    assert refusal(tmp_path / "books.yaml").startswith("4,194,305 bytes are too many for a recipe")
    assert refusal("x" * 5000) == "cannot be read (File name too long)"


def test_a_missing_file_and_a_folder_are_answered_as_such(tmp_path):
    for name in ("nope.yaml", "recipes/nope"):
        assert refusal(name) == "there is no such file; `tercet recipes` lists the shipped ones"
    assert refusal(tmp_path).startswith("a folder; name a YAML file")


@pytest.mark.parametrize(
    ("overrides", "steps", "ratio"),
    [
        (["training.schedule.warmup_steps=5"], 5, None),
        (["training.schedule.warmup_steps=null"], None, 0.1),
        (["training.schedule.warmup_steps=5", "training={steps: 9}"], None, None),
    ],
)
def test_an_override_replaces_its_alternative_in_the_file_alone(write, overrides, steps, ratio):
    path = write("training: {steps: 7, schedule: {warmup_ratio: 0.1}}\n")
    schedule = load_recipe(Whole, path, overrides).training.schedule
    assert (schedule.warmup_steps, schedule.warmup_ratio) == (steps, ratio)
    corpus = read_overrides(["corpus.reader.name=WarcReader"], {"corpus": {"path": "a", "tasks": 2}})[
        "corpus"
    ]
    assert corpus == {"tasks": 2, "reader": {"name": "WarcReader"}}
    part = read_overrides(
        ["general.training.schedule.warmup_steps=5"],
        {"general": {"training": {"schedule": {"warmup_ratio": 0.1}}}},
    )
    assert part == {"general": {"training": {"schedule": {"warmup_steps": 5}}}}
    both = ["training.schedule.warmup_steps=5", "training.schedule.warmup_ratio=0.2"]
    with pytest.raises(
        ValueError, match=r"training\.schedule: warmup_steps = 5 and warmup_ratio = 0\.2: give"
    ):
        load_recipe(Whole, path, both)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1E5", 1e5), ("-2.5e+3", -2500.0), (".5", 0.5), ("3", 3), ("3.", 3.0),
        ("1_000", 1000), ("true", True), ("null", None), ("2026-11-20", "2026-11-20"), ("1.2.3", "1.2.3"),
        ("e3", "e3"), ("-", [None]), (".inf", float("inf")), ("0100", 100), ("-08", -8), ("0x1f", 31),
        ("1:30", "1:30"), ("12:30:45", "12:30:45"),
    ],
)  # fmt: skip
def test_scalars_are_what_they_look_like(text, value):
    assert read_document(text) == value
    assert type(read_document(text)) is type(value)


def test_an_override_changes_no_other_place_that_an_anchor_names():
    data = read_document("first: &steps {steps: 1}\nsecond: *steps\nthird: [*steps]")
    assert read_overrides(["second.steps=5"], data) == {
        "first": {"steps": 1},
        "second": {"steps": 5},
        "third": [{"steps": 1}],
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &a {x: 1, y: 1}\nb: {<<: *a, x: 2}", {"a": {"x": 1, "y": 1}, "b": {"x": 2, "y": 1}}),
        (  # `c` adds to `b` before the reader comes to `b` itself
            "a: &a {x: 1}\nd: {b: &b {<<: *a, x: 2}}\nc: {<<: *b, y: 3}",
            {"a": {"x": 1}, "d": {"b": {"x": 2}}, "c": {"x": 2, "y": 3}},
        ),
        ("<<: [{x: 1}, {x: 2, y: 3}]", {"x": 1, "y": 3}),
    ],
)
def test_a_mapping_may_take_over_the_keys_of_others(text, value):
    assert read_document(text) == value


def test_keys_given_twice_are_refused_beside_those_taken_over():
    for text in ("a: &a {x: 1}\nb: {<<: *a, x: 2, x: 3}", "a: &a {x: 1}\nb: {<<: *a, <<: *a}"):
        with pytest.raises(ValueError, match=r"given twice \(line 2\)"):
            read_document(text)


def test_presets_and_recipes_are_found_by_name():
    for name in preset_names():
        assert load_preset(name)["model_type"].startswith("tercet_")
    assert len(recipe_names()) == len(set(recipe_names()))
    with pytest.raises(ValueError, match="model preset 'encoder-tinny' is unknown"):
        load_preset("encoder-tinny")
