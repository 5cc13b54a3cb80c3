"""The bake-off: cells that are kept, doubt that adds up, verdicts by hand, and the whole program."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe

ROOT = Path(__file__).parents[2]

MACHINE = {
    "processor": "P", "gpu": None, "instructions": "I", "python": "3", "versions": {"torch": "2"},
    "load_average": 0.1,
}  # fmt: skip


def judgement(score, half, guess=0.5):
    return {"values": [score], "interval": [score - half, score + half], "guess": guess}


def standing(name, member="encoder", reading="masked", **judgements):
    about = {"name": name, "member": member, "reading": reading, "parameters": 2_500_000}
    return about | {"tokens": 1e6, "steps": 100, "seconds": [90.0], "judgements": judgements}


@pytest.fixture
def result():
    blimp = {"A": (0.60, 0.01), "B": (0.585, 0.01), "C": (0.5, 0.01)}
    standings = [standing(name, blimp=[judgement(*score)]) for name, score in blimp.items()]
    standings.append(standing("ELECTRA", stsb=[judgement(0.3, 0.02, 0.0)]))
    for reading, bits in (("causal", 12.0), ("masked", 9.0)):
        lambada = [judgement(bits, 0.1, None)]
        standings.append(standing("hybrid", "decoder", reading, lambada=lambada))
    standings.append(standing("CLM", "decoder", "causal", lambada=[judgement(12.5, 0.1, None)]))
    return {
        "date": "2026-01-01", "machine": MACHINE, "conditions": {"threads": 1, "heap": "own"}, "rounds": 1,
        "is_noisy": False, "is_trial": False, "is_timed": True, "same": "tokens", "standings": standings,
    }  # fmt: skip


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


def test_doubt_over_rows_and_doubt_over_seeds_add_up(module):
    estimate = module("bake_off_standings").estimate
    one = estimate([{"values": [0.5], "interval": [0.4, 0.7]}])
    assert (one.score, one.half) == pytest.approx((0.5, 0.15))
    seeds = estimate([{"values": [0.4, 0.5, 0.6], "interval": [0.5, 0.5]}])
    assert seeds.half == pytest.approx(4.302653 * 0.1 / 3**0.5)
    several = [{"values": [score, score], "interval": [0.2, 0.4]} for score in (0.4, 0.5, 0.6)]
    assert estimate(several).half == pytest.approx((seeds.half**2 + 0.1**2) ** 0.5), "a model counts once"


def test_verdicts_are_drawn_from_the_intervals(module, result):
    text = module("bake_off_standings").render(result)
    assert "- BLiMP, accuracy: A is best (60.0 ± 1.0); not separable from it at this size: B." in text
    assert "**encoder**, best or not separable from the best, out of 1 comparisons: A 1, B 1." in text
    assert "- LAMBADA, bits per word (next tokens): hybrid (causal) is best (12.00 ± 0.10), separably" in text
    assert "(masked): " not in text, "bits of masked words are another thing"
    assert "STS-B by vectors, Spearman correlation:" not in text, "one score is no comparison"
    assert "| a guess |  |  |  |  | 50.0 | 0.0 |  |" in text
    assert "| ELECTRA | encoder | 2.5 | 1.0 | 1.5 |  | 30.0 ± 2.0 |  |" in text
    assert "its seed's part is not known" in text
    assert "A trial" not in text


def test_a_busy_machine_leaves_times_out_and_keeps_scores(module, result):
    text = module("bake_off_standings").render(result | {"is_noisy": True, "is_timed": False})
    assert "| ELECTRA | encoder | 2.5 | 1.0 |  | 30.0 ± 2.0 |  |" in text
    assert "minutes" not in text
    assert "busy" not in text


def test_none_is_separable_where_all_intervals_meet(module, result):
    for each in result["standings"][:3]:
        each["judgements"]["blimp"][0]["interval"] = [0.4, 0.7]
    text = module("bake_off_standings").render(result)
    assert "A is best (60.0 ± 15.0), but none of the others is separable from it at this size." in text


def test_scores_are_drawn(module, result, tmp_path):
    module("bake_off_standings").draw(result, tmp_path / "scores.png")
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")


def test_every_objective_is_one_that_recipes_know_and_differs_from_the_others(module):
    entrants = module("bake_off_entrants").ENTRANTS
    recipes = [
        load_recipe(
            PretrainingRecipe,
            module("bake_off").BASE,
            [f"model={{preset: {each.member}-mini}}", f"objective={each.objective}"],
        ).objective
        for each in entrants
    ]
    assert len({repr(recipe) for recipe in recipes}) == len({each.slug for each in entrants}) == len(entrants)
    for recipe, entrant in zip(recipes, entrants, strict=True):
        assert recipe.model_class.config_class.model_type == f"tercet_{entrant.member}"


@pytest.mark.slow
def test_program_pretrains_judges_and_goes_on_where_it_was_killed(text, tmp_path, module):
    begin, end = module("publishing").marks_of("bake_off.py")
    output, page = tmp_path / "result.json", tmp_path / "page.md"
    page.write_text(f"before\n{begin}\n{end}\nafter\n")
    data = tmp_path / "data"
    (data / "trec").mkdir(parents=True)
    (data / "pretrain_en").symlink_to(text)
    rows = "".join(f'{{"text": "mina {word} bera", "coarse": "{word}"}}\n' for word in ("kost", "fin") * 20)
    for split in ("train", "test"):
        (data / "trec" / f"{split}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    command = [sys.executable, ROOT / "benchmarks" / "bake_off.py", "--data", data, "--try", "--threads", "1"]
    command += ["--only", "MLM 15 %", "ELECTRA", "--judges", "trec", "--common-scheduler-group"]
    command += ["--folder", tmp_path / "cells", "--output", output, "--page", page]
    printed = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    names = [each["name"] for each in json.loads(output.read_text())["standings"]]
    assert names == ["MLM 15 %", "ELECTRA"]
    assert "**A trial: a few steps of tiny models" in printed
    assert page.read_text().startswith(f"before\n{begin}\n{printed}")
    assert "![Scores with their intervals](bake_off.png)" in page.read_text()
    assert page.with_name("bake_off.png").exists()
    kept = sorted((tmp_path / "cells").rglob("result.json"))
    assert len(kept) == 4
    kept[-1].unlink()
    times = [file.stat().st_mtime_ns for file in kept[:-1]]
    subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    assert [file.stat().st_mtime_ns for file in kept[:-1]] == times
    assert kept[-1].exists()
