"""Bad rows are refused with their place, left out as if they were not there, or repaired, and counted."""

import json
from html import unescape

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from tercet.configs.recipe import parse_recipe
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prepared import prepare
from tercet.finetune.recipe import FineTuningRecipe
from tercet.training.metrics.spans import as_iob2, check_iob2, spans_of

from ..reported import finetune
from .conftest import ROWS, splits_of, write_rows

BAD = {
    "classification": [{"text": " \n"}, {"label": None}, {"label": 1.5}, {"text": 3}],
    "multi_label": [{"text": ""}, {"labels": "cat"}],
    "regression": [{"score": "many"}, {"score": 1e300}, {"text": None}],
    "tagging": [{"tags": ["O"]}, {"tags": ["I-X"] * 12}, {"tokens": []}, {"tokens": ["a"], "tags": ["S-X"]}],
    "ranking": [{"query": ""}, {"positive": None}],
    "multiple_choice": [{"gold": 2}, {"choices": ["one"]}, {"choices": ["one", ""]}],
    "question_answering": [{"answers": {"text": ["no such"], "answer_start": [0]}}, {"context": " "}],
}
"""Kind of a task -> changes that make a row of it bad."""


def recipe_on(task, file, on_bad_row, **data):
    return parse_recipe(
        FineTuningRecipe,
        {
            "model": {"path": "x"},
            "task": task if isinstance(task, dict) else {"kind": task},
            "data": {"train": str(file), "on_bad_row": on_bad_row, **data},
            "output": "x",
        },
    )


def contents(splits):
    return {name: (rows.to_list(), rows.features) for name, rows in splits.items()}


@pytest.mark.parametrize("kind", ROWS)
def test_skipping_bad_rows_is_reading_a_file_without_them(kind, tmp_path):
    good = ROWS[kind](40, 0)
    lines = [json.dumps(row) for row in good]
    changed = [json.dumps(good[0] | change) for change in BAD[kind]]
    unreadable = ['{"text": "broken', "[1, 2]", *changed]
    for place, line in zip(np.linspace(0, 40, len(unreadable), dtype=int)[::-1], unreadable, strict=True):
        lines.insert(place, line)
    dirty = tmp_path / "dirty.jsonl"
    dirty.write_text("\n".join(lines) + "\n")
    clean = write_rows(tmp_path / "clean.jsonl", good)
    skipped, known = (splits_of(recipe_on(kind, file, "skip")) for file in (dirty, clean))
    assert contents(skipped) == contents(known)
    assert not known.bad_rows
    told = skipped.bad_rows["train"]
    assert told["rows"] == len(lines)
    assert sum(told["left_out"].values()) == len(unreadable)
    assert told["left_out"]["not valid JSON"] == 1
    for mode in ("stop", "repair"):
        assert contents(splits_of(recipe_on(kind, clean, mode))) == contents(known)
        with pytest.raises(ValueError, match=r"dirty.jsonl, line \d+: .*data.on_bad_row=skip"):
            splits_of(recipe_on(kind, dirty, mode))


@pytest.mark.parametrize("change", [change for changes in BAD.values() for change in changes], ids=str)
def test_the_first_bad_row_is_an_error_with_its_line(change, tmp_path):
    kind = next(kind for kind, changes in BAD.items() if change in changes)
    rows = ROWS[kind](12, 0)
    rows[6] |= change
    file = tmp_path / "rows.jsonl"
    file.write_text("\n\n".join(map(json.dumps, rows)))  # blank lines are lines, and no rows
    with pytest.raises(ValueError, match=r"rows.jsonl, line 13: row 7 has .*data.on_bad_row=") as caught:
        splits_of(recipe_on(kind, file, "stop"))
    assert "\n" not in str(caught.value)


def test_lines_of_tables_with_too_many_cells_are_left_out(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text('text,label\n"one\ntwo",a\nthree,b,c\n,a\nfour,b\nfive,\n' + "six,a\nseven,b\n" * 10)
    with pytest.raises(ValueError, match=r"rows.csv, line 4: not valid CSV \(3 fields.*on_bad_row=skip"):
        splits_of(recipe_on("classification", file, "stop"))
    splits = splits_of(recipe_on("classification", file, "skip"))
    texts = splits["train"]["text"][:] + splits["validation"]["text"][:]
    assert sorted(texts) == sorted(["one\ntwo", "four", *["six", "seven"] * 10])
    assert splits.bad_rows["train"] == {
        "rows": 25,
        "left_out": {
            "not valid CSV": 1,
            "has no text in column 'text'": 1,
            "has nothing in column 'label'": 1,
        },
        "repaired": {},
        "first": [
            f"{file}, line 4: not valid CSV (3 fields under 2 names)",
            f"{file}, line 5: has no text in column 'text'",
            f"{file}, line 7: has nothing in column 'label'",
        ],
    }


def test_values_of_another_kind_than_most_are_left_out(tmp_path):
    rows = [{"text": "one", "label": label} for label in (3, "a", "b", None, "a", "b", ["c"], "a", "b")]
    splits = splits_of(
        recipe_on("classification", write_rows(tmp_path / "rows.jsonl", rows), "skip", validation_share=0.2)
    )
    assert sum(map(len, splits.values())) == 6
    assert splits.bad_rows["train"]["left_out"]["has a value of another kind in column 'label'"] == 2


def test_a_file_that_breaks_off_or_has_bad_rows_only_is_refused(tmp_path):
    file = write_rows(tmp_path / "rows.jsonl", [{"text": "", "label": "a"}] * 3)
    with pytest.raises(ValueError, match=r"has 3 bad rows and no others: name one that has some in data.tr"):
        splits_of(recipe_on("classification", file, "skip"))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(__import__("gzip").compress(b'{"text": "one", "label": "a"}\n' * 999)[:-9])
    with pytest.raises(ValueError, match=r"cut.jsonl.gz, line \d+: cannot be read from here on"):
        splits_of(recipe_on("classification", cut, "skip"))


def test_repaired_tags_mark_the_same_spans():
    draw = np.random.default_rng(0)
    for _ in range(300):
        tags = draw.choice(["O", "B-A", "I-A", "B-B", "I-B"], size=draw.integers(0, 9)).tolist()
        repaired = as_iob2(tags)
        check_iob2(repaired)
        assert spans_of(repaired) == spans_of(tags)
        assert as_iob2(repaired) == repaired


@pytest.mark.parametrize("is_numbered", [False, True])
def test_tags_in_iob1_are_repaired_and_counted(is_numbered, tmp_path):
    names = ["O", "B-A", "I-A"]
    iob1 = [["I-A", "I-A", "O"], ["B-A", "I-A", "O"], ["I-A", "B-A", "I-A"], ["O", "O", "I-A"]] * 5
    rows = [{"tokens": ["a", "b", "c"], "tags": tags} for tags in iob1]
    file = tmp_path / "rows.jsonl"
    if is_numbered:
        file = tmp_path / "rows.parquet"
        features = Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=names))})
        Dataset.from_list(rows, features=features).to_parquet(file)
    else:
        write_rows(file, rows)
    splits = splits_of(recipe_on("tagging", file, "repair"))
    assert splits.bad_rows["train"]["repaired"] == {"has tags that are not valid IOB2": 15}
    found = [tag for rows in splits.values() for tags in rows["tags"][:] for tag in tags]
    assert sorted(names[tag] if is_numbered else tag for tag in found) == sorted(
        tag for tags in iob1 for tag in as_iob2(tags)
    )
    with pytest.raises(ValueError, match=r"row 1 has the tag 'I-A' at word 1, .*with data.on_bad_row=repair"):
        splits_of(recipe_on("tagging", file, "stop"))


def test_what_was_left_out_is_told_once_and_recorded(recipe_of, tmp_path, capsys):
    recipe = recipe_of("classification", data={"on_bad_row": "skip"}, training={"epochs": 1})
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write('{"text": "", "label": "cat"}\nnonsense\n')
    finetune(recipe)
    line = "bad rows of train: 2 of 18 left out (1 not valid JSON, 1 has no text in column 'text'), first "
    assert capsys.readouterr().err.count(line) == 1
    assert json.loads((recipe.folder / "scores.json").read_text())["bad_rows"]["train"]["rows"] == 18
    assert line[1:] in (recipe.folder / "report.md").read_text()
    assert line[1:-8] in unescape((recipe.folder / "report.html").read_text())
    assert prepare(find_inputs(recipe)).bad_rows["train"]["left_out"]


@pytest.mark.parametrize("on_bad_row", ["stop", "skip"])
def test_numbers_that_count_from_one_are_refused_before_any_is_left_out(on_bad_row, tmp_path):
    """Without the rows that have the last number, the others would be learned, each shifted by one."""
    choices = [{"query": "q", "choices": ["a", "b", "c"], "gold": 1 + row % 3} for row in range(30)]
    named = {"kind": "classification", "label_names": ["bad", "good"]}
    tagged = {"kind": "tagging", "scheme": "none", "label_names": ["x", "y"]}
    for task, rows in (
        ("multiple_choice", choices),
        (named, [{"text": "t", "label": 1 + row % 2} for row in range(30)]),
        (tagged, [{"tokens": ["t", "u"], "tags": [1, 1 + row % 2]} for row in range(30)]),
    ):
        file = write_rows(tmp_path / "rows.jsonl", rows)
        with pytest.raises(
            ValueError, match=r"line \d+: row \d+ has \d in .* from 1\? Then subtract 1"
        ) as caught:
            splits_of(recipe_on(task, file, on_bad_row))
        assert "on_bad_row" not in str(caught.value)
    choices[7]["gold"] = 0  # which counts from 0, so that the others are bad rows
    file = write_rows(tmp_path / "rows.jsonl", choices)
    assert splits_of(recipe_on("multiple_choice", file, "skip")).bad_rows["train"]["left_out"]
