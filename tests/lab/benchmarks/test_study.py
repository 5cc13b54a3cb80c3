"""Studies: cells that are kept, settings and rows of files, doubt that adds up, verdicts, and the program."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tercet.configs.recipe import load_recipe
from tercet.modeling import TercetEncoderConfig
from tercet.pretraining.recipe import PretrainingRecipe

STUDIES = sorted((Path(__file__).parents[3] / "lab/benchmarks" / "studies").glob("*.yaml"))


@pytest.fixture
def load(module):
    """Return the function that loads a shipped study."""
    files = {path.stem: path for path in STUDIES}
    return lambda name, *given, **more: module("study_file").load_study(files[name], given, **more)


def render(module, name, result):
    """Write a result as the program does."""
    return module("benchmark").load(name).render(result)


@pytest.fixture
def shop(module, load, tmp_path, monkeypatch):
    """Return the function that opens a part of a study."""
    study = module("study")
    monkeypatch.setattr(study, "text_sample", lambda text, folder, characters: text)

    def open_shop(name, *settings, part=0, row=None, seeds=None, is_trial=False):
        own = load(name, *settings, is_trial=is_trial)
        chosen = own.parts[part]
        if row:
            chosen = replace(chosen, rows=(chosen.rows[0], row))
        conditions = module("measuring").Conditions(threads=1)
        return study.Workshop(own, chosen, tmp_path, conditions, seeds or own.seeds, is_trial)

    return open_shop


def test_a_cell_is_computed_once_and_an_interrupted_one_again(module, tmp_path):
    cells, computed = module("cells"), []
    cell = cells.cell_folder(tmp_path, "name", ("recipe", 1))
    assert cell != cells.cell_folder(tmp_path, "name", ("recipe", 2))

    def compute(folder):
        computed.append(sorted(path.name for path in folder.iterdir()))
        (folder / "left").touch()
        if len(computed) == 1:
            raise KeyboardInterrupt
        return {"score": 0.5}

    with pytest.raises(KeyboardInterrupt):
        cells.once(cell, compute)
    assert [cells.once(cell, compute) for _ in range(3)] == [{"score": 0.5}] * 3
    assert computed == [[], ["left"]]


def test_samples_are_whole_documents_and_the_same_rows(module, tmp_path):
    samples = module("samples")
    source = tmp_path / "source"
    source.mkdir()
    documents = [f"document {number}\nends here" for number in range(9)]
    (source / "books.txt").write_text("\n\n".join(documents))
    (folder,) = samples.text_sample(source, tmp_path / "sample", 50).iterdir()
    assert folder.read_text() == "\n\n".join(documents[:2]) + "\n"
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "{number}"}}\n' for number in range(99)))
    drawn = [samples.row_sample(str(tmp_path / "rows.jsonl"), ["text"], 20, tmp_path / name) for name in "ab"]
    rows = [[json.loads(line)["text"] for line in file.read_text().splitlines()] for file in drawn]
    assert rows[0] == rows[1] == sorted(set(rows[0]), key=int)
    assert len(rows[0]) == 20
    assert rows[0] != [str(number) for number in range(20)]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("is_trial", [False, True])
def test_every_training_is_a_recipe(path, is_trial, load, shop):
    """All names are filled in, and what is changed is known to the recipe."""
    for number in range(len(load(path.stem).parts)):
        own = shop(path.stem, part=number, is_trial=is_trial)
        for row in own.part.rows:
            for name in own.part.judges if row.judges is None else row.judges:
                assert "$" not in "".join(own.fill(own.part.judges[name].overrides, row, 0, model="m"))
            if own.part.train and own.part.train.command == "pretrain":
                changes = [each.replace("HALF", "2").replace("FIFTH", "1") for each in row.overrides]
                overrides = [*own.fill(own.part.train.overrides, row, 0), *changes, "training.steps=8"]
                load_recipe(PretrainingRecipe, own.part.train.recipe, overrides)


def test_objectives_differ_and_belong_to_their_members(shop):
    own = shop("bake_off")
    recipes = {}
    for row in own.part.rows:
        overrides = [*own.fill(own.part.train.overrides, row, 0)]
        recipe = load_recipe(PretrainingRecipe, "encoder-english", overrides).objective
        recipes[repr(recipe)] = row.name
        assert (
            recipe.model_class.config_class.model_type
            == f"tercet_{(own.part.defaults | row.fields)['member']}"
        )
    assert len(recipes) == len({row.name for row in own.part.rows}) == 17


def test_every_pattern_is_a_configuration(shop):
    own = shop("patterns_at_work")
    texts = [own.fill(own.part.train.overrides, row, 0)[0] for row in own.part.rows]
    configs = [TercetEncoderConfig(**yaml.safe_load(text.removeprefix("config="))) for text in texts]
    kinds = [set(config.layer_types or ["full_attention"]) for config in configs]
    assert kinds == [{"full_attention"}, {"big_bird_attention"}, {"big_bird_attention"}]


def test_what_is_not_there_is_refused_by_name(module, load):
    with pytest.raises(ValueError, match=r"ablations.yaml has no setting step; it has "):
        load("ablations", "step=5")
    with pytest.raises(ValueError, match=r"'a=\$b' names \$b; there are c"):
        module("study_file").filled("a=$b", {"c": 1})


def test_settings_follow_trial_and_command_line(load):
    own = load("ablations", "steps=7", is_trial=True)
    assert own.settings["held_out_characters"] == 20_000
    assert own.parts[0].train.steps == 7
    assert len(own.parts[0].rows) == 16
    assert "training.schedule={kind: linear, warmup_ratio: 0.1}" in own.parts[0].train.overrides


@pytest.fixture
def noted(module, monkeypatch):
    """Note trainings and judgements instead of carrying them out."""
    study, done = module("study"), []

    def once(cell, what, compute):
        done.append((what, cell.name, compute.args[-1]))
        overrides = compute.args[-1] if what.startswith("training") else ()
        steps = next((int(each.split("=")[1]) for each in overrides if each.startswith("training.steps")), 1)
        cost = {"steps": steps, "tokens": 10 * steps, "parameters": 5}
        return cost if what.startswith("training") else {"values": [1.0]}

    monkeypatch.setattr(study, "told_once", once)
    return done


def test_rows_are_compared_after_the_same_steps(shop, noted):
    own = shop("ablations", "steps=10")
    rows = [own.standing(row) for row in own.part.rows]
    assert {(row["steps"], row["tokens"]) for row in rows} == {(10, 100)}
    assert all(row["judgements"] == {"loss": [{"values": [1.0]}]} for row in rows)


def test_a_row_is_trained_with_its_changes_and_judged_by_what_all_have(module, shop, noted):
    changes = ["training.stages=[{steps: HALF, sequence_length: 64}]", "objective.z_loss=1.0e-4"]
    own = shop("ablations", "steps=10", row=module("study_file").Row("both", overrides=tuple(changes)))
    own.standing(own.part.rows[1])
    (trained,) = (given for what, _, given in noted if what.startswith("training: both"))
    (exam,) = (given for what, _, given in noted if what.startswith("judging: both"))
    assert trained[-2:] == ["training.stages=[{steps: 5, sequence_length: 64}]", changes[1]]
    assert list(exam.training[1]) == trained[: len(exam.training[1])]
    assert not any("stages" in each or "z_loss" in each for each in exam.training[1])


def test_models_are_found_again_and_others_lie_in_other_folders(shop, noted):
    cells = []
    for is_trial in (False, True):
        for part in (1, 2):
            own = shop("patterns_at_work", part=part, is_trial=is_trial)
            noted.clear()
            for row in own.part.rows:
                own.standing(row)
            cells.append({name for what, name, _ in noted if what.startswith("training")})
    assert cells[0] == cells[1]
    assert len(cells[0] | cells[2]) == 8


def test_seeds_are_trained_where_they_are_read(shop, noted):
    several = shop("bake_off", seeds=3)
    assert len(several.standing(several.part.rows[0])["judgements"]["blimp"]) == 3
    one = shop("patterns_at_work", part=1)
    assert len(one.standing(one.part.rows[0])["judgements"]["short"]) == 1
    assert shop("patterns_at_work").fill(["training.seeds=$all_seeds"], one.part.rows[0], 0) == [
        "training.seeds=[0, 1, 2]"
    ]


def test_doubt_over_rows_and_doubt_over_seeds_add_up(module):
    estimate = module("standings").estimate
    one = estimate([{"values": [0.5], "interval": [0.4, 0.7]}])
    assert (one.score, one.half) == pytest.approx((0.5, 0.15))
    seeds = estimate([{"values": [0.4, 0.5, 0.6], "interval": [0.5, 0.5]}])
    assert seeds.half == pytest.approx(4.302653 * 0.1 / 3**0.5)
    several = [{"values": [score, score], "interval": [0.2, 0.4]} for score in (0.4, 0.5, 0.6)]
    assert estimate(several).half == pytest.approx((seeds.half**2 + 0.1**2) ** 0.5), "a model counts once"


@pytest.fixture
def result():
    def standing(name, member="encoder", reading="masked", **scores):
        about = {"name": name, "member": member, "reading": reading, "parameters": 2_500_000, "tokens": 1e6}
        about["bits"] = "masked" if reading == "masked" else "next tokens"
        judged = {
            judge: [{"values": [score], "interval": [score - half, score + half], "guess": guess}]
            for judge, (score, half, guess) in scores.items()
        }
        return about | {"seconds": [90.0], "judgements": judged}

    blimp = {"A": (0.60, 0.01, 0.5), "B": (0.585, 0.01, 0.5), "C": (0.5, 0.01, 0.5)}
    standings = [standing(name, blimp=score) for name, score in blimp.items()]
    standings.append(standing("ELECTRA", stsb=(0.3, 0.02, 0.0)))
    for reading, bits in (("causal", 12.0), ("masked", 9.0)):
        standings.append(standing("hybrid", "decoder", reading, lambada=(bits, 0.1, None)))
    standings.append(standing("CLM", "decoder", "causal", lambada=(12.5, 0.1, None)))
    machine = {
        "processor": "P",
        "gpu": None,
        "instructions": "I",
        "python": "3",
        "versions": {},
        "load_average": 1.0,
    }
    return {
        "date": "2026-01-01", "machine": machine, "conditions": {"threads": 1}, "rounds": 1,
        "is_noisy": False, "is_timed": False, "settings": {}, "cases": {"objectives": {"rows": standings}},
    }  # fmt: skip


def test_verdicts_are_drawn_from_the_intervals(module, result):
    text = render(module, "bake_off", result)
    assert "- BLiMP, accuracy: A is best (60.0 ± 1.0); not separable from it at this size: B." in text
    assert "**encoder**, best or not separable from the best, out of 1 comparisons: A 1, B 1." in text
    assert "- LAMBADA, bits per word (next tokens): hybrid (causal) is best (12.00 ± 0.10), separably" in text
    assert "(masked): " not in text, "bits of masked words are another thing"
    assert "STS-B by vectors, Spearman correlation:" not in text, "one score is no comparison"
    assert "| a guess |  |  |  | 50.0 | 0.0 |  |" in text
    assert "| ELECTRA | encoder | 2.5 | 1.0 |  | 30.0 ± 2.0 |  |" in text
    assert "its seed's part is not known" in text
    assert "Tiny shapes" not in text
    assert "busy" not in render(module, "bake_off", result | {"is_noisy": True})
    for each in result["cases"]["objectives"]["rows"][:3]:
        each["judgements"]["blimp"][0]["interval"] = [0.4, 0.7]
    text = render(module, "bake_off", result)
    assert "A is best (60.0 ± 15.0), but none of the others is separable from it" in text


def test_differences_stand_beside_a_base(module, load, result):
    def row(name, loss, *overrides):
        about = {"name": name, "overrides": overrides, "parameters": 1000, "steps": 10, "tokens": 80}
        return about | {"judgements": {"loss": [{"values": [loss]}]}}

    rows = [row("base", 4.6), row("EMA", 4.5, "training.ema_decay=0.99")]
    own = result | {"cases": {"switches": {"rows": rows}}, "settings": load("ablations").settings}
    text = render(module, "ablations", own)
    assert "Base: `decoder-english` with `corpus.sequence_length=128`, `training.tokens" in text
    assert text.endswith("| EMA | `training.ema_decay=0.99` | 1,000 | 4.500 (-0.100) |")


def test_right_labels_of_unseen_words_are_counted(module, tmp_path):
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
    assert module("judges").unseen_share(tmp_path) == 0.5


@pytest.fixture
def data(text, tmp_path):
    """Write the data of all studies, as few as possible."""
    data = tmp_path / "data"
    (data / "pretrain_en").parent.mkdir(parents=True)
    (data / "pretrain_en").symlink_to(text)
    lists = "".join(f'{{"text": "[MAX {number} 1 ]", "label": {number}}}\n' for number in range(2, 6)) * 6
    pairs = "".join(
        f'{{"sentence1": "ma na", "sentence2": "{word}", "score": {score}}}\n'
        for word, score in (("bera", 2.5), ("na", 1.0))
    )
    for folder, rows in {
        "synthetic/listops": lists, "movie_reviews": lists, "stsb/en": pairs * 8
    }.items():  # fmt: skip
        (data / folder).mkdir(parents=True)
        for split in ("train", "validation", "test"):
            (data / folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    return data


@pytest.mark.slow
def test_vectors_of_a_trained_and_of_a_converted_model_are_judged(shop, data):
    own = shop("bake_off", f"data={data}", is_trial=True)
    rows = [row for row in own.part.rows if row.name == "ELECTRA" or row.fields.get("stack") == "encoder"]
    for row in rows[:2]:
        (judged,) = own.standing(replace(row, judges=("stsb",)))["judgements"]["stsb"]
        assert -1 <= judged["values"][0] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "num_rows"),
    [
        ("ablations", [], [16]),
        ("patterns_at_work", ["novels=text.txt"], [3, 4, 4]),
    ],
)
def test_program_trains_judges_and_goes_on_where_it_was_killed(
    name, settings, num_rows, data, tmp_path, program, module
):
    begin, end = module("publishing").marks_of(name)
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    given = ["--set", f"data={data}", *settings]
    common = ["--smoke", "--rounds", "1", "--threads", "1", "--folder", tmp_path / "cells"]
    command = ["benchmark.py", name, *given, *common, "--output", output]
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
