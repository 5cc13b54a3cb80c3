"""One rule for the folders of all commands: what a run reads stays, and an earlier run is renamed whole."""

import dataclasses
import json
import types
import typing

import pytest

from tercet.configs.by_kind import OptionalPart
from tercet.distill.recipe import DistillationRecipe
from tercet.training.ownership import is_ours, mark

from .claims import CORPUS, KINDS, LEARNING, ROWS, claim, folder_of

NO_PATHS = {
    "output",
    *(f"{part}data.{name}" for part in ("", "task.") for name in ("dataset", "subset", "group")),
    *("model.preset", "model.revision", "data.where", "lora.target_modules"),
    *(
        f"{part}corpus.{name}"
        for part in ("", "adaptation.", "general.")
        for name in ("text_column", "source_column", "target_column", "control_tokens")
    ),
    *(f"{part}training.trackers" for part in ("", "adaptation.", "general.", "task.")),
    *(f"{part}training.push_revisions" for part in ("", "adaptation.", "general.")),
}
"""Keys of texts that name nothing that is read from the disk; what `task` and `objective` say is no path."""


def texts_in(kind, above=""):
    """Find the dotted keys of a recipe class that hold texts which may be anything."""
    for each in dataclasses.fields(kind):
        hint = typing.get_type_hints(kind, include_extras=True)[each.name]
        key = above + each.name
        for part in parts_of(hint):
            is_template = key == "task" and kind is not DistillationRecipe
            if dataclasses.is_dataclass(part) and not is_template:
                yield from texts_in(part, key + ".")
            elif part is str:
                yield key


def parts_of(hint):
    """Take a type apart: unions, tuples, lists and optional parts, but neither mappings nor literals."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        inner, *about = typing.get_args(hint)
        parts = [each[""] for each in about if isinstance(each, OptionalPart)]
        yield from parts or parts_of(inner)
    elif origin in (typing.Union, types.UnionType, tuple, list):
        for part in typing.get_args(hint):
            yield from parts_of(part)
    else:
        yield hint


@pytest.mark.parametrize("command", KINDS)
def test_every_text_of_a_recipe_is_guarded_or_known_to_name_no_file(command, tmp_path):
    run = folder_of(command, tmp_path)
    found = {
        key
        for key in texts_in(KINDS[command][0])
        if "objective" not in key.split(".") and ".losses" not in key
    }
    guarded = {*run.models, *run.texts}
    # Of a corpus of several texts, the paths of all are guarded under the corpus's own key.
    parts = {key for key in found if key.rpartition(".")[0] in guarded}
    assert found - NO_PATHS - parts == guarded


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("pretrain", {"model": {"path": "{}"}}),
        ("pretrain", {"model": {"preset": "decoder-tiny"}, "tokenizer": {"path": "{}"}}),
        ("pretrain", {"corpus": CORPUS | {"train": ["a.txt", "{}/a.txt"]}}),
        ("pretrain", {"corpus": CORPUS | {"validation": "{}"}}),
        ("pretrain", {"corpus": CORPUS | {"train": [{"path": "a.txt"}, {"path": "{}/a.txt", "name": "b"}]}}),
        ("pretrain", {"tokenizer": {"path": "t", "add": "{}/terms.txt"}}),
        ("pretrain", {"corpus": CORPUS | {"cache": "{}/cache"}}),
        ("finetune", {"model": {"path": "{}"}}),
        ("finetune", {"model": {"path": "m", "tagger": {"beside": ["{}"]}}}),
        ("finetune", {"data": {"train": "{}/a.csv"}}),
        ("finetune", {"data": {"train": "a.csv", "test": "{}/a.csv"}}),
        ("finetune", {"adaptation": {**LEARNING, "corpus": CORPUS | {"train": "{}"}}}),
        ("distill", {"student": {"path": "{}"}}),
        ("distill", {"general": {"teacher": "{}", **LEARNING}}),
        ("distill", {"general": {"teacher": "t", **LEARNING, "cache": {"folder": "{}/c"}}}),
        ("distill", {"task": {"teacher": "{}", "data": ROWS}}),
        ("distill", {"task": {"teacher": "t", "data": ROWS, "unlabelled": "{}/a.csv"}}),
        ("fewshot", {"models": ["m", "{}"]}),
        ("fewshot", {"data": {"test": "{}/a.jsonl"}}),
        ("fewshot", {"contamination": {"corpus": "{}"}}),
    ],
)
def test_what_a_run_reads_is_never_replaced(command, change, overwrite, tmp_path):
    output = tmp_path / "run"
    claim(command, output)
    inside = output / ("items.jsonl" if command == "fewshot" else "model")
    inside.mkdir()
    (inside / "config.json").write_text("{}")

    def filled(value):
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return value.replace("{}", str(inside)) if isinstance(value, str) else value

    with pytest.raises(ValueError, match="in the folder that this run writes"):
        claim(command, output, overwrite=overwrite, resume=not overwrite, **filled(change))
    assert (inside / "config.json").exists()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("command", KINDS)
@pytest.mark.parametrize("names", [["model", "checkpoints"], []])
def test_folder_with_somebody_elses_recipe_is_not_ours(names, command, resume, overwrite, tmp_path):
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.tex").write_text("years of work")
    (tmp_path / "recipe.yaml").write_text("flour: 500 g\nyeast: 1\n")
    before = sorted(tmp_path.rglob("*"))
    found = "checkpoints" if names else r"recipe\.yaml"
    with pytest.raises(ValueError, match=f"{found}, which was not written by a run"):
        claim(command, tmp_path, resume=resume, overwrite=overwrite)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "recipe.yaml").read_text().startswith("flour")


@pytest.mark.parametrize("command", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_what_any_command_wrote_is_renamed_whole_by_any_other(other, command, tmp_path):
    folder, previous = tmp_path / "run", tmp_path / "run.previous"
    for text in ("one", "two"):
        claim(other, folder, overwrite=True)
        (folder / "model").mkdir()
        (folder / "model" / "notes.txt").write_text(text)
    with pytest.raises(ValueError, match=r"earlier run \(.*\): .*replace it with --overwrite"):
        claim(command, folder)
    claim(command, folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == [".tercet.json", "recipe.yaml"]
    assert (previous / "model" / "notes.txt").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.previous"]


@pytest.mark.parametrize("command", KINDS)
def test_what_is_read_from_the_run_before_is_not_deleted(command, tmp_path):
    folder, previous = tmp_path / "run", tmp_path / "run.previous"
    for _ in range(2):
        claim(command, folder, overwrite=True)
    changes = {
        "pretrain": {"corpus": CORPUS | {"train": str(previous)}},
        "finetune": {"model": {"path": str(previous)}},
        "distill": {"task": {"teacher": str(previous), "data": ROWS}},
        "fewshot": {"models": [str(previous)]},
    }[command]
    with pytest.raises(ValueError, match="in the folder that this run writes"):
        claim(command, folder, overwrite=True, **changes)
    assert is_ours(previous)


def test_a_model_that_was_written_at_once_is_replaced_by_a_run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    mark(folder)
    with pytest.raises(ValueError, match=r"holds an earlier run \(config\.json\)"):
        claim("finetune", folder)
    claim("finetune", folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == [".tercet.json", "recipe.yaml"]
    assert (tmp_path / "run.previous" / "config.json").exists()


@pytest.mark.parametrize("command", KINDS)
@pytest.mark.parametrize("resume", [False, True])
def test_what_a_killed_run_was_writing_hinders_none(command, resume, tmp_path):
    folder = tmp_path / "run"
    claim(command, folder)
    for name in ("model", "recipe.yaml"):
        (folder / f".{name}.partial").write_text("half of i")
    claim(command, folder, resume=resume, overwrite=not resume)
    assert sorted(path.name for path in folder.iterdir()) == [".tercet.json", "recipe.yaml"]


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("pretrain", {"model": {"path": "{}"}}),
        ("finetune", {"model": {"path": "{}"}}),
        ("distill", {"general": {"teacher": "{}", **LEARNING}}),
        ("distill", {"task": {"teacher": "{}", "data": ROWS}}),
    ],
)
def test_a_run_goes_on_with_no_other_model_of_the_same_name(command, change, file, tmp_path):
    """As where what was pretrained anew is fine-tuned again: its scores would be the earlier model's."""
    output, model = tmp_path / "run", tmp_path / "model"
    model.mkdir()
    (model / file).write_text("1")
    (model / "README.md").write_text("1")
    changes = json.loads(json.dumps(change).replace("{}", str(model)))
    for content in ("1", "2"):
        (model / "README.md").write_text(content)
        claim(command, output, resume=True, **changes)
    (model / file).write_text("2")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"holds another model than the one that the run in .* began"):
            claim(command, output, resume=True, **changes)
    claim(command, output, overwrite=True, **changes)
    claim(command, output, resume=True, **changes)
