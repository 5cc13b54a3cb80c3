"""Translators: the whole program, on runs that take no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_program_measures_quality_and_speed_of_every_run(module, tmp_path):
    pairs, output, picture = tmp_path / "pairs.jsonl", tmp_path / "result.json", tmp_path / "picture.png"
    texts = ("a dog ran", "the cat sat under trees", "two small birds sing in the rain")
    pairs.write_text("".join(json.dumps({"en": text, "de": text[::-1]}) + "\n" for text in texts * 8))
    for name, score in (("recurrent", "dot_product"), ("bottleneck", "none")):
        overrides = [
            f"corpus.train={pairs}", f"corpus.validation={pairs}", "tokenizer.vocab_size=80",
            f"model.overrides={{hidden_size: 16, attention_score: {score}}}",
            "training.steps=2", "training.log_every=1", "training.evaluate_every=2",
            "training.checkpoint_every=2", "training.tokens_per_step=128", f"output={tmp_path / name}",
        ]  # fmt: skip
        pretrain(load_recipe(PretrainingRecipe, "translation-multi30k-recurrent", overrides))
    command = [sys.executable, ROOT / "benchmarks" / "translators.py", "--pairs", pairs, "--output", output]
    command += ["--runs", f"recurrent={tmp_path / 'recurrent'}", f"bottleneck={tmp_path / 'bottleneck'}"]
    command += ["--rounds", "1", "--threads", "1", "--any-load", "--common-scheduler-group"]
    command += ["--picture", picture]
    printed = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    sides = json.loads(output.read_text())["sides"]
    assert list(sides) == ["recurrent", "bottleneck"]
    assert all(len(side["training"]) == 1 and side["training"][0] > 0 for side in sides.values())
    assert all(len(side["by_length"]) == 3 for side in sides.values())
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [line.count("|") for line in printed.splitlines()[-4:]] == [11] * 4
