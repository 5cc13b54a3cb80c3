"""The recipes that come along read the data that they name, and the example of in-context learning holds."""

import json
import runpy
from pathlib import Path

import pytest

from tercet.configs.recipe import describe_recipe, load_recipe, parse_recipe, recipe_names
from tercet.fewshot.evaluation import drawer_of
from tercet.fewshot.recipe import FewShotRecipe
from tercet.fewshot.rows import files_of, read_items

ROOT = Path(__file__).parents[2]
NAMES = [name for name in recipe_names() if describe_recipe(name).startswith(f"tercet fewshot {name}")]
LARGE = {"blimp", "blimp-filtered", "sentiment", "sentiment-cloze", "zhoblimp"}
LARGE |= {"translation-en-de", "translation-zh-en"}
"""Recipes whose files take seconds to read."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
        for name in NAMES
        if name != "recall"
    ],
)
def test_recipe_reads_its_data(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = load_recipe(FewShotRecipe, name, [])
    if absent := [file for file in files_of(recipe.data) if not file.exists()]:
        pytest.skip(f"{absent[0]} is not here")
    items = read_items(recipe.task.build(), recipe.data, recipe.prompting)
    drawer = drawer_of(items, recipe.prompting)
    for item in items.test[:3]:
        drawn = drawer.draw(item, max(recipe.prompting.num_fewshot), recipe.prompting.seeds[0])
        assert len(drawn) == max(recipe.prompting.num_fewshot)
        assert item.demonstration not in [each.demonstration for each in drawn] or not drawn
        assert all(text.strip() for text in (*item.answers, *item.references))
        assert "{" not in item.prompts[0].context


def test_worlds_of_the_example_are_recalled_by_looking_them_up(tmp_path):
    program = runpy.run_path(str(ROOT / "lab/examples" / "learn_in_context.py"))
    rows = program["draw_rows"](20, seed=0)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recipe = load_recipe(FewShotRecipe, "recall", [f"data.test={tmp_path / 'rows.jsonl'}"])
    items = read_items(recipe.task.build(), recipe.data, recipe.prompting)
    drawer = drawer_of(items, recipe.prompting)
    shares = []
    for shots in (1, 4, 32):
        hits = []
        for item in items.test:
            key = item.prompts[0].context.split()[1]
            shown = [each for each in drawer.draw(item, shots, 0) if f" {key} " in each.demonstration]
            assert {each.target for each in shown} <= {item.target}
            hits.append(bool(shown))
        shares.append(sum(hits) / len(hits))
    # Three standard deviations of a share of 500 rows.
    assert shares == pytest.approx([1 - 0.75**shots for shots in (1, 4, 32)], abs=0.067)


def test_worlds_of_the_example_are_documents_that_agree_with_themselves(tmp_path):
    program = runpy.run_path(str(ROOT / "lab/examples" / "learn_in_context.py"))
    program["write_text"](tmp_path / "train.txt", 50, seed=0)
    worlds = (tmp_path / "train.txt").read_text().split("\n\n")
    assert len(worlds) == 50
    for world in worlds:
        lines = [line.split() for line in world.strip().splitlines()]
        assert len(lines) == program["NUM_LINES"]
        assert len({(key, value) for _, key, value in lines}) == len({key for _, key, _ in lines}) <= 4


def test_an_output_without_a_name_is_refused():
    task = {"kind": "generation", "context": "{{ question }}", "answers": "a"}
    recipe = parse_recipe(FewShotRecipe, {"task": task, "data": {"test": "rows.jsonl"}, "output": " "})
    with pytest.raises(ValueError, match=r"^output is ' ': name a file or folder"):
        _ = recipe.folder


def test_a_stop_string_has_text():
    task = {"kind": "generation", "context": "{{ question }}", "answers": "a", "stop": ["\n", ""]}
    data = {"task": task, "data": {"test": "rows.jsonl"}, "output": "run"}
    with pytest.raises(ValueError, match=r"task\..*stop.*at least 1 character"):
        parse_recipe(FewShotRecipe, data)
