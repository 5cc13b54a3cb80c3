"""Evaluations from recipe to report: all kinds of tasks, all members, and what interrupted ones leave."""

import json
import random
import re
import shutil

import pytest
import torch

from tercet.__main__ import main
from tercet.configs.recipe import parse_recipe
from tercet.fewshot.explanation import explain
from tercet.fewshot.recipe import FewShotRecipe
from tercet.fewshot.run import fewshot
from tercet.fewshot.subject import load_subject

from .conftest import write_rows

ANIMALS = ["cat", "dog", "fish"]


def rows_of(count=12, seed=0):
    """Make rows with everything that a task may ask for."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        animal, verb = draw.choice(ANIMALS), draw.choice(["sat", "ran", "ate", "saw"])
        text = f"the {draw.choice(['big', 'small'])} {animal} {verb} under {draw.choice(ANIMALS)}"
        row = {"text": text, "label": "yes" if animal == "cat" else "no", "choices": [verb, "houses ran"]}
        row |= {"gold": draw.randint(0, 1), "answer": animal, "contexts": [f"the {each}" for each in ANIMALS]}
        rows.append(row | {"bad": " ".join(text.split()[::-1]), "number": ANIMALS.index(animal)})
    return rows


TASKS = {
    "multiple_choice": {"context": "Question: {{ text }}\nAnswer:", "choices": "choices", "right": "gold"},
    "classification": {
        "kind": "multiple_choice",
        "context": "{{ text }}\nAnswer:",
        "choices": ["positive", "negative"],
        "labels": ["yes", "no"],
        "right": "label",
    },
    "cloze": {
        "text": "{{ text }}, what is ___ .",
        "choices": ["yes", "no", "unbelievable"],
        "right": "'yes' if label == 'yes' else 'no'",
    },
    "partial_evaluation": {"contexts": "contexts", "continuation": "{{ text }}", "right": "number"},
    "minimal_pair": {"good": "{{ text }}", "bad": "{{ bad }}", "group": "label"},
    "completion": {"context": "{{ text }} =", "answer": "{{ answer }}"},
    "generation": {"context": "{{ text }} =", "answers": "{{ answer }}", "max_new_tokens": 6},
    "perplexity": {"text": "{{ text * 12 }}"},
}
WITHOUT_SHOTS = ("minimal_pair", "perplexity")


@pytest.fixture
def recipe_of(tmp_path):
    """Make recipes of a kind of task on a few rows."""

    def make(kind, models, **parts):
        write_rows(tmp_path / "data" / "rows.jsonl", rows_of())
        write_rows(tmp_path / "data" / "shots.jsonl", rows_of(9, 1))
        data = {
            "task": {"kind": kind} | TASKS[kind] | parts.pop("task", {}),
            "data": {"folder": str(tmp_path / "data"), "test": "rows.jsonl", "demonstrations": "shots.jsonl"}
            | parts.pop("data", {}),
            "asking": {"shots": [0] if kind in WITHOUT_SHOTS else [0, 2]} | parts.pop("asking", {}),
            "models": [str(model) for model in models],
            "output": str(tmp_path / "run"),
        }
        return parse_recipe(FewShotRecipe, data | parts)

    return make


def read(folder):
    """Read results and items."""
    items = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    return json.loads((folder / "results.json").read_text()), items


@pytest.mark.parametrize("kind", TASKS)
def test_every_kind_of_task_is_asked_of_every_member_that_can(kind, recipe_of, saved):
    members = ["decoder", "gpt2", "seq2seq"] + ([] if kind == "generation" else ["encoder"])
    recipe = recipe_of(kind, map(saved, members), asking={"seeds": [0, 1]})
    results, items = read(fewshot(recipe))
    shots = ["0"] if kind in WITHOUT_SHOTS else ["0", "2"]
    for model in results["models"]:
        assert list(model["shots"]) == shots
        assert model["weights_unchanged"]
        for count, own in model["shots"].items():
            assert len(own["conditions"]) == (1 if count == "0" else 2)
            low, high = own["interval"]
            assert low <= own["mean"] + 1e-9
            assert high >= own["mean"] - 1e-9
            assert (own["standard_error"] is None) == (count == "0")
    assert len(items) == len(members) * 12 * (1 if kind in WITHOUT_SHOTS else 3)
    page, text = ((recipe.folder / name).read_text() for name in ("report.html", "report.md"))
    assert page.count("<svg") == text.count("![")
    assert (recipe.folder / "shots.png").exists()
    assert (recipe.folder / "reliability.png").exists() == (
        kind not in ("completion", "generation", "perplexity")
    )


def test_accuracies_are_those_of_the_logged_scores(recipe_of, saved):
    results, items = read(fewshot(recipe_of("classification", [saved("decoder")])))
    for count in (0, 2):
        own = [item for item in items if item["shots"] == count]
        hits = []
        for item in own:
            totals = [sum(answer["log_likelihoods"]) for answer in item["answers"]]
            assert item["values"]["raw"] == pytest.approx(totals)
            hits.append(totals.index(max(totals)) == item["right"])
        scores = results["models"][0]["shots"][str(count)]["scores"]
        assert scores["accuracy"] == scores["accuracy_raw"] == pytest.approx(sum(hits) / len(hits))
        assert set(scores) == {"accuracy", "calibration_error"} | {
            f"accuracy_{way}" for way in ("raw", "per_token", "per_character", "unconditional", "calibrated")
        }
    assert results["baselines"]["random"] == 0.5
    right = [row["label"] for row in rows_of()]
    assert results["baselines"]["majority"] == max(map(right.count, right)) / len(right)


def test_nothing_is_calibrated_without_texts(recipe_of, saved):
    task = {"content_free": [], "way": "per_character"}
    recipe = recipe_of("classification", [saved("decoder")], task=task)
    results, items = read(fewshot(recipe))
    assert "accuracy_calibrated" not in results["models"][0]["shots"]["0"]["scores"]
    report = (recipe.folder / "report.md").read_text()
    assert all(f"{value:.2f}" in report for item in items[:6] for value in item["values"]["per_character"])


def test_sentences_that_a_model_cannot_tell_apart_are_not_right(recipe_of, saved):
    recipe = recipe_of("minimal_pair", [saved("encoder")], task={"bad": "{{ text | replace(' ', '  ') }}"})
    results, items = read(fewshot(recipe))
    own = results["models"][0]["shots"]["0"]
    assert own["mean"] == own["interval"][1] == 0
    assert own["ties"] == len(items) == 12
    assert "which count as wrong: 12 (encoder)" in (recipe.folder / "report.md").read_text()


def test_slow_and_fast_evaluations_are_equal(recipe_of, saved, tmp_path):
    both = []
    for is_slow in (False, True):
        recipe = recipe_of("classification", [saved("decoder")], asking={"one_by_one": is_slow, "shots": [2]})
        both.append(read(fewshot(recipe, overwrite=True))[1])
    for fast, slow in zip(*both, strict=True):
        assert fast["values"]["raw"] == pytest.approx(slow["values"]["raw"], abs=1e-5)
        assert fast["values"]["calibrated"] == pytest.approx(slow["values"]["calibrated"], abs=1e-5)


@pytest.mark.parametrize("kind", ["classification", "generation"])
def test_interrupted_evaluation_goes_on_where_it_was(kind, recipe_of, saved, monkeypatch):
    recipe = recipe_of(kind, [saved("decoder")])
    expected = read(fewshot(recipe))
    (answers,) = (recipe.folder / "answers").iterdir()
    lines = answers.read_bytes().splitlines(keepends=True)
    for name in ("results.json", "items.jsonl"):
        (recipe.folder / name).unlink()
    answers.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:9])  # the last one was being written
    with pytest.raises(ValueError, match="--resume"):
        fewshot(recipe)
    found = read(fewshot(recipe, resume=True))
    assert_close(found, expected)
    assert len(answers.read_bytes().splitlines()) == len(lines)

    def fail(*arguments, **keywords):
        raise AssertionError("everything has been answered")

    monkeypatch.setattr(torch.nn.Embedding, "forward", fail)
    assert read(fewshot(recipe, resume=True)) == found


def assert_close(found, expected):
    """Compare plain data, whose numbers may differ by rounding: other batches add up in another order."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    else:
        assert found == (pytest.approx(expected, abs=1e-5) if isinstance(expected, float) else expected)


def test_half_precision_says_about_the_same(recipe_of, saved):
    totals = []
    for precision in ("fp32", "bf16"):
        recipe = recipe_of("completion", [saved("decoder"), saved("bert")], asking={"precision": precision})
        items = read(fewshot(recipe, overwrite=True))[1]
        totals.append([item["log_likelihood"] for item in items])
    assert totals[1] != totals[0]
    assert totals[1] == pytest.approx(totals[0], rel=0.1, abs=0.5)


def test_other_weights_are_asked_anew(recipe_of, saved, tmp_path):
    copied = shutil.copytree(saved("decoder"), tmp_path / "changed")
    first = read(fewshot(recipe_of("completion", [copied])))[0]
    model = load_subject(str(copied)).model
    model.get_parameter("model.norm.weight").data += 0.5
    model.save_pretrained(copied)
    second = read(fewshot(recipe_of("completion", [copied]), resume=True))[0]
    hashes = [results["models"][0]["weights_sha256"] for results in (first, second)]
    assert hashes[0] != hashes[1]
    scores = [results["models"][0]["shots"]["0"]["scores"]["perplexity"] for results in (first, second)]
    assert scores[0] != scores[1]


def test_an_evaluation_that_is_replaced_gives_no_answers_to_the_new_one(recipe_of, saved):
    recipe = recipe_of("completion", [saved("decoder")])
    expected = read(fewshot(recipe))
    (answers,) = (recipe.folder / "answers").iterdir()
    lines = answers.read_text().splitlines()
    answers.write_text("".join(re.sub(r"-\d+\.", "-77.", line) + "\n" for line in lines))
    assert_close(read(fewshot(recipe, overwrite=True)), expected)
    assert len(answers.read_text().splitlines()) == len(lines)


@pytest.mark.parametrize(
    ("file", "kind", "changes"),
    [
        ("config.json", "completion", {"rope_theta": 7.0}),
        ("generation_config.json", "generation", {"bad_words_ids": [[5]]}),
    ],
)
def test_other_settings_are_asked_anew(file, kind, changes, recipe_of, saved, tmp_path):
    copied = shutil.copytree(saved("decoder"), tmp_path / "changed")
    fewshot(recipe_of(kind, [copied]))
    settings = json.loads((copied / file).read_text())
    for key, changed in (("transformers_version", {"transformers_version": "0"}), (file, changes)):
        (copied / file).write_text(json.dumps(settings | changed))
        folder = fewshot(recipe_of(kind, [copied]), resume=True)
        assert len(list((folder / "answers").iterdir())) == (2 if key == file else 1)


def test_models_write_greedily_whatever_else_they_would(recipe_of, saved, tmp_path):
    copied = shutil.copytree(saved("gpt2"), tmp_path / "changed")
    settings = json.loads((copied / "generation_config.json").read_text())
    rules = {"repetition_penalty": 9.0, "no_repeat_ngram_size": 1, "min_length": 99, "do_sample": True}
    (copied / "generation_config.json").write_text(json.dumps(settings | rules))
    texts = []
    for model in (saved("gpt2"), copied):
        items = read(fewshot(recipe_of("generation", [model]), overwrite=True))[1]
        texts.append([item["written"] for item in items])
    assert texts[0] == texts[1]
    assert any(texts[0])


def test_contamination_tells_items_apart(recipe_of, saved, tmp_path):
    texts = [row["text"] + " = " + row["answer"] for row in rows_of()]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"she said: {texts[0].upper()}!\n\nnothing else is here\n")
    recipe = recipe_of("completion", [saved("decoder")], contamination={"corpus": str(corpus), "words": 6})
    results, _ = read(fewshot(recipe))
    touched = sum(text == texts[0] for text in texts)
    assert results["contamination"] == {
        "words": 6,
        "items": 12,
        "touched": touched,
        "short": 0,
        "documents": 2,
    }
    parts = results["models"][0]["shots"]["0"]["contamination"]
    assert {name: part["items"] for name, part in parts.items()} == {
        "all": 12,
        "clean": 12 - touched,
        "touched": touched,
    }


def test_explanation_shows_which_tokens_are_scored(recipe_of, saved, capsys):
    recipe = recipe_of("multiple_choice", [saved("decoder"), saved("seq2seq"), saved("encoder")])
    told = explain(recipe)
    assert told.count("scored, 1 tokens: Ġ") == 1
    row = rows_of()[0]
    assert f"answer 0 ({'right' if row['gold'] == 0 else 'wrong'}): ' {row['choices'][0]}'" in told
    assert "target begins with: </s>" in told
    assert "behind it: [SEP]" in told
    assert not recipe.folder.exists()


def test_command_prints_the_folder_and_explains(recipe_of, saved, tmp_path, capsys):
    recipe_of("completion", [])
    file = tmp_path / "task.yaml"
    file.write_text(
        f"task: {{kind: completion, context: '{{{{ text }}}} =', answer: '{{{{ answer }}}}'}}\n"
        f"data: {{folder: {tmp_path / 'data'}, test: rows.jsonl}}\noutput: {tmp_path / 'told'}\n"
    )
    command = ["fewshot", str(file), "--model", str(saved("decoder")), "asking.shots=[1]"]
    assert main([*command, "--explain"]) == 0
    assert "scored, " in capsys.readouterr().out
    assert main(command) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'told'}\n"
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0


def test_what_does_not_fit_is_dropped_and_counted(recipe_of, saved):
    recipe = recipe_of("classification", [saved("decoder")], task={"description": "the cat sat. " * 33})
    results, items = read(fewshot(recipe))
    own = results["models"][0]["shots"]
    assert own["0"]["dropped"] == 0
    dropped = [item["dropped"] for item in items if item["shots"] == 2]
    assert own["2"]["dropped"] == sum(dropped) > 0
    for item in items:
        assert len(item["demonstrations"]) == item["shots"] - item["dropped"]
        assert item["prompt"].count("Answer:") == len(item["demonstrations"]) + 1


def test_contexts_that_are_too_long_lose_their_beginning(recipe_of, saved):
    recipe = recipe_of(
        "completion", [saved("decoder")], task={"context": "{{ 'the cat ' * 150 }} {{ text }} ="}
    )
    results, items = read(fewshot(recipe))
    assert results["models"][0]["shots"]["0"]["cut"] == 12
    assert all(item["cut"] > 0 for item in items)
