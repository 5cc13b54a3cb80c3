"""Comparisons: work that is kept, settings and rows of files, doubt that adds up, tables, and the program."""

import gzip
import json

import pytest
import yaml

from lab import publishing
from lab.comparisons import comparison, judges
from tercet.configs.recipe import load_recipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.modeling import TercetEncoderConfig
from tercet.pretraining.recipe import PretrainingRecipe


@pytest.fixture
def shop(tmp_path):
    """Return the function that opens a part of a study."""

    def open_shop(name, part, *changes, seeds=1, is_trial=False):
        about = comparison.load_comparison(name, changes, is_trial)
        return comparison.Workshop(about["parts"][part], about["settings"], tmp_path, seeds)

    return open_shop


def test_work_is_done_once_and_interrupted_work_again(tmp_path):
    once, computed = comparison.once, []

    def compute(given, folder):
        computed.append((given, sorted(path.name for path in folder.iterdir())))
        (folder / "left").touch()
        if len(computed) == 1:
            raise KeyboardInterrupt
        return {"score": 0.5}

    with pytest.raises(KeyboardInterrupt):
        once(tmp_path, "what", compute, 1)
    assert [once(tmp_path, "what", compute, 1) for _ in range(3)] == [{"score": 0.5}] * 3
    once(tmp_path, "what", compute, 2)
    assert computed == [(1, []), (1, ["left"]), (2, [])]


@pytest.mark.parametrize("name", comparison.NAMES)
@pytest.mark.parametrize("is_trial", [False, True])
def test_every_training_and_every_fine_tuning_is_a_recipe(name, is_trial, shop, noted):
    """All names are filled in, and what is changed is known to the recipe."""
    for part in comparison.load_comparison(name)["parts"]:
        own = shop(name, part, is_trial=is_trial)
        for row in own.part["rows"]:
            own.standing(row)
    assert noted
    for _, function, given in noted:
        recipe, overrides = given if function == "pretrained" else (given[0].recipe, given[0].overrides)
        assert "$" not in "".join([recipe, *overrides])
        if function in ("pretrained", "by_held_out_text"):
            load_recipe(PretrainingRecipe, recipe, overrides)
        if function == "by_finetuning":
            load_recipe(FineTuningRecipe, recipe, overrides)


@pytest.fixture
def noted(monkeypatch):
    """Note trainings and judgements instead of carrying them out."""
    done = []

    def once(folder, what, work, *given):
        done.append((what, work.__name__, given))
        if work.__name__ != "pretrained":
            return {"values": [1.0]}
        steps = int(next(each for each in reversed(given[1]) if each.startswith("training.steps"))[15:])
        return {"steps": steps, "tokens": 10 * steps, "parameters": 5, "path": f"model-{hash(repr(given))}"}

    monkeypatch.setattr(comparison, "once", once)
    return done


def test_objectives_differ_and_belong_to_their_members(shop):
    own, recipes = shop("bake_off", "objectives"), {}
    for row in own.part["rows"]:
        overrides = own.fill(own.part["train"]["overrides"], row, 0)
        recipe = load_recipe(PretrainingRecipe, "encoder-english", overrides).objective
        recipes[repr(recipe)] = row["name"]
        member = (own.part["defaults"] | row["fields"])["member"]
        assert recipe.model_class.config_class.model_type == f"tercet_{member}"
    assert len(recipes) == 17
    assert len(own.part["rows"]) == 19, "both readings of two hybrids"


def test_every_pattern_is_a_configuration(shop):
    own = shop("patterns_at_work", "listops")
    texts = [own.fill(own.part["train"]["overrides"], row, 0)[0] for row in own.part["rows"]]
    configs = [TercetEncoderConfig(**yaml.safe_load(text.partition("=")[2])) for text in texts]
    kinds = [set(config.layer_types or ["full_attention"]) for config in configs]
    assert kinds == [{"full_attention"}, {"big_bird_attention"}, {"big_bird_attention"}]


def test_settings_follow_trial_and_command_line():
    about = comparison.load_comparison("ablations", ["steps=7"], is_trial=True)
    assert about["settings"]["held_out"] == "abc.txt.gz"
    assert about["parts"]["switches"]["train"]["steps"] == 7
    assert len(about["parts"]["switches"]["rows"]) == 16
    with pytest.raises(ValueError, match=r"ablations has no setting step; it has data, steps"):
        comparison.load_comparison("ablations", ["step=5"])


def test_a_row_is_trained_with_its_changes_and_judged_by_what_all_have(shop, noted):
    own = shop("ablations", "switches", "steps=10")
    changes = ["training.stages=[{steps: $half, sequence_length: 64}]", "objective.z_loss=1.0e-4"]
    found = own.standing({"name": "both", "overrides": changes})
    assert found["judgements"] == {"loss": [{"values": [1.0]}]}
    assert (found["steps"], found["tokens"], found["overrides"]) == (10, 100, changes)
    (_, trained), (exam,) = (given for _, _, given in noted)
    assert trained[-2:] == ["training.stages=[{steps: 5, sequence_length: 64}]", changes[1]]
    assert "training.schedule={kind: linear, warmup_ratio: 0.1}" in trained
    assert list(exam.overrides) == trained[: len(exam.overrides)]
    assert not any("stages" in each or "z_loss" in each for each in exam.overrides)


def test_models_are_found_again_and_a_trial_has_others(shop, noted):
    trained = []
    for is_trial in (False, True):
        for part in ("contexts", "reviews"):
            own = shop("patterns_at_work", part, is_trial=is_trial)
            noted.clear()
            for row in own.part["rows"]:
                own.standing(row)
            trained.append({repr(given) for _, function, given in noted if function == "pretrained"})
    assert trained[0] == trained[1]
    assert trained[2] == trained[3]
    assert len(trained[0] | trained[2]) == 8


def test_seeds_are_trained_where_they_are_read(shop, noted):
    several = shop("bake_off", "objectives", seeds=3)
    assert len(several.standing(several.part["rows"][0])["judgements"]["blimp"]) == 3
    one = shop("patterns_at_work", "listops", seeds=3)
    (judged,) = one.standing(one.part["rows"][0])["judgements"]["listops"]
    assert judged == {"values": [1.0]}
    assert "training.seeds=[0, 1, 2]" in noted[-1][2][0].overrides


def test_doubt_over_rows_and_doubt_over_seeds_add_up():
    half_of = comparison.half_of
    assert half_of([{"values": [0.5], "interval": [0.4, 0.7]}]) == pytest.approx(0.15)
    seeds = half_of([{"values": [0.4, 0.5, 0.6], "interval": [0.5, 0.5]}])
    assert seeds == pytest.approx(4.302653 * 0.1 / 3**0.5)
    several = [{"values": [score, score], "interval": [0.2, 0.4]} for score in (0.4, 0.5, 0.6)]
    assert half_of(several) == pytest.approx((seeds**2 + 0.1**2) ** 0.5), "a model counts once"


def test_a_table_has_what_each_judge_shows():
    part = {
        "columns": {"model": "{name}", "change": "{change}"},
        "judges": {
            "accuracy": {"title": "accuracy", "shown": "{mean:.1f} ± {half:.1f} ({difference:+.1f})"},
            "bits": {
                "title": "bits",
                "shown": "{mean:.2f} [{low:.1f}, {high:.1f}], {unseen:.1f}",
                "scale": 1,
            },
        },
        "note": "Of {steps} steps with {base}.",
    }
    bits = [{"values": [3.0, 4.0], "interval": [2.0, 5.0], "unseen": 0.5}]
    rows = [
        {"name": "A", "steps": 9, "judgements": {"accuracy": [{"values": [0.5], "interval": [0.4, 0.6]}]}},
        {
            "name": "B",
            "overrides": ["x=1", "y=2"],
            "judgements": {"accuracy": [{"values": [0.25], "interval": [0.2, 0.3]}], "bits": bits},
        },
    ]
    about = {"parts": {"one": part, "two": part}, "settings": {"base": ["a=1", "b=2"]}}
    assert comparison.text_of(about, {"cases": {"one": {"rows": rows}}}) == [
        "Of 9 steps with `a=1`, `b=2`.",
        "",
        "| model | change | accuracy | bits |",
        "|---|--:|--:|--:|",
        "| A |  | 50.0 ± 10.0 (+0.0) |  |",
        "| B | `x=1`<br>`y=2` | 25.0 ± 5.0 (-25.0) | 3.50 [2.0, 5.0], 0.5 |",
    ]


def test_right_labels_of_unseen_words_are_counted(tmp_path):
    rows = [{"tokens": ["the", "dog"], "ner_tags": ["O", "O"]}, {"tokens": ["Rex"], "ner_tags": ["B-PER"]}]
    for file, kept in (("train.jsonl", rows[:1]), ("test.jsonl", [*rows, rows[1]])):
        (tmp_path / file).write_text("".join(f"{json.dumps(row)}\n" for row in kept))
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "test")}
    recipe = {
        "model": {"path": "somewhere"},
        "task": {"kind": "tagging", "words": "tokens", "tags": "ner_tags"},
        "data": files | {"validation": files["test"]},
        "output": "somewhere",
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    predicted = [["O", "O"], ["B-PER"], ["O"]]
    lines = "".join(f"{json.dumps({'ner_tags': tags})}\n" for tags in predicted)
    (tmp_path / "predictions.jsonl").write_text(lines)
    assert judges.unseen_share(tmp_path) == 0.5


@pytest.fixture
def data(text, tmp_path):
    """Write the data of all comparisons, as few as possible."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "pretrain_en").symlink_to(text)
    lists = "".join(f'{{"text": "[MAX {number} 1 ]", "label": {number}}}\n' for number in range(2, 6)) * 6
    pairs = "".join(
        f'{{"sentence1": "ma na", "sentence2": "{word}", "score": {score}}}\n'
        for word, score in (("bera", 2.5), ("na", 1.0))
    )
    texts = ("a dog ran", "the cat sat under trees", "two small birds sing in the rain")
    translations = "".join(json.dumps({"en": each, "de": each[::-1]}) + "\n" for each in texts) * 8
    for folder, rows in {
        "synthetic/listops": lists,
        "movie_reviews": lists,
        "stsb/en": pairs * 8,
        "multi30k_en_de": translations,
    }.items():
        (data / folder).mkdir(parents=True)
        for split in ("train", "validation", "test", "test_2016_flickr"):
            (data / folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    return data


@pytest.mark.slow
def test_vectors_of_a_trained_and_of_a_converted_model_are_judged(shop, data):
    own = shop("bake_off", "objectives", f"data={data}", "held_out=text.txt", is_trial=True)
    for name in ("ELECTRA", "hybrid 1/4 (masked)"):
        (row,) = (row for row in own.part["rows"] if row["name"] == name)
        (judged,) = own.standing(row | {"judges": ["stsb"]})["judgements"]["stsb"]
        assert -1 <= judged["values"][0] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "num_rows"),
    [
        ("ablations", ["held_out=text.txt"], [16]),
        ("patterns_at_work", ["train=train/text.txt", "held_out=validation/text.txt"], [3, 4, 4]),
        (
            "translators",
            ["sizes=[model.overrides.hidden_size=16, tokenizer.vocab_size=80, training.tokens_per_step=64]"],
            [4],
        ),
    ],
)
def test_program_trains_judges_and_goes_on_where_it_was_killed(
    name, settings, num_rows, data, tmp_path, program
):
    begin, end = publishing.marks_of(name)
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    given = ["--set", f"data={data}", *settings]
    common = ["--smoke", "--rounds", "1", "--threads", "1", "--folder", tmp_path / "cells"]
    command = ["comparisons", name, *given, *common, "--output", output]
    printed = program(*command, "--page", page)
    cases = json.loads(output.read_text())["cases"].values()
    assert [len(case["rows"]) for case in cases] == num_rows
    assert "**Tiny shapes" in printed
    assert page.read_text().startswith(f"before\n{begin}\n{printed}")
    kept = sorted((tmp_path / "cells").rglob("result.json"))
    kept[-1].unlink()
    times = [file.stat().st_mtime_ns for file in kept[:-1]]
    program(*command)
    assert [file.stat().st_mtime_ns for file in kept[:-1]] == times
    assert kept[-1].exists()
