"""Translators beside each other: quality, by the length of the source, and speed of training and of decoding.

    python lab/benchmarks/speed.py translators --runs recurrent=runs/translation-multi30k-recurrent \
        "without attention=runs/without-attention" transformer=runs/translation-multi30k \
        --pairs corpora/multi30k_en_de/test_2016_flickr.jsonl.gz --page docs/recurrent.md

--runs names finished runs of `tercet pretrain`. Each recipe is repeated for a few steps to see how fast it
trains, and each model translates the test set greedily and with five beams; the sides take turns. The picture
shows whether attention rescues long sentences (Bahdanau et al., 2015, figure 2).
"""

import json
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import torch
from measuring import Conditions, in_fresh_process
from publishing import Result
from samples import row_sample
from speed import Benchmark
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from tercet.configs.recipe import load_recipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.pretraining.translation_scores import (
    LengthGroup,
    bleu_by_length,
    score_translations,
    translate,
)
from tercet.reports.line_charts import LinePanel, draw_lines
from tercet.training.run_folder import MODEL, RECIPE

BEAMS = (1, 5)
TRAINING_STEPS = 40
"""Of a round; the first half is not counted."""
HELD_OUT = 32
"""Pairs that the end of a round's training is measured on: few, since nothing follows from them."""


@dataclass(frozen=True)
class Pairs:
    """The pairs that all sides translate."""

    rows: int | None = None
    """How many, at most."""

    def shrunk(self) -> "Pairs":
        """Return a few of them."""
        return replace(self, rows=24)


def measure_case(case: Pairs, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Train and translate with all runs that are named."""
    runs = dict(each.split("=", 1) for each in options.runs)
    measured = (runs, str(options.pairs), case.rows, options.rounds)
    sides = in_fresh_process(conditions, measure_all, *measured)
    return {"sides": {name: side | shown(side) for name, side in sides.items()}}


def measure_all(
    runs: Mapping[str, str], pairs: str, rows: int | None, rounds: int
) -> dict[str, dict[str, Any]]:
    """Train and translate with all sides in turns; return what is found out about each."""
    table = datasets.load_dataset("json", data_files=pairs, split="train")
    sources, references = table["en"][:rows], table["de"][:rows]
    sides = {name: Translator(Path(run)) for name, run in runs.items()}
    for _ in range(rounds):
        for side in sides.values():
            side.train_for_a_moment()
    for beams in BEAMS * rounds:
        for side in sides.values():
            side.translate(sources, beams)
    for side in sides.values():
        side.score(sources, references)
    return {name: side.found for name, side in sides.items()}


class Translator:
    """A finished run, and what is found out about it.

    Args:
        run: Its folder.
    """

    def __init__(self, run: Path):
        self.run = run
        self.model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(run / MODEL).eval()
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(run / MODEL)
        self.written: dict[int, list[str]] = {}
        self.found: dict[str, Any] = {
            "parameters": self.model.num_parameters(),
            "tokens": last_record(run)["tokens"],
            "training": [],
            "seconds": {beams: [] for beams in BEAMS},
        }

    def train_for_a_moment(self) -> None:
        """Repeat the beginning of the training, and note how many tokens a second it takes."""
        with TemporaryDirectory() as folder:
            held_out = str(load_recipe(PretrainingRecipe, str(self.run / RECIPE)).corpus.validation)
            few = row_sample(held_out, ("en", "de"), HELD_OUT, Path(folder) / "few.jsonl")
            overrides = {
                "training.steps": TRAINING_STEPS,
                "training.log_every": TRAINING_STEPS // 2,
                "training.evaluate_every": TRAINING_STEPS,
                "training.checkpoint_every": TRAINING_STEPS,
                "training.schedule.warmup_steps": "null",
                "training.schedule.warmup_ratio": 0.1,
                "tokenizer": f"{{path: {self.run / 'tokenizer'}}}",
                "corpus.validation": few,
                "output": Path(folder) / "run",
            }
            given = [f"{name}={value}" for name, value in overrides.items()]
            pretrain(load_recipe(PretrainingRecipe, str(self.run / RECIPE), given))
            self.found["training"].append(last_record(Path(folder) / "run")["tokens_per_second"])

    def translate(self, sources: list[str], beams: int) -> None:
        """Translate all sentences, and note the seconds."""
        start = time.perf_counter()
        with torch.inference_mode():
            self.written[beams] = translate(self.model, self.tokenizer, sources, num_beams=beams)
        self.found["seconds"][beams].append(time.perf_counter() - start)

    def score(self, sources: list[str], references: list[str]) -> None:
        """Compare what was written with the references, in all and by the length of the source."""
        self.found["rows"] = len(sources)
        self.found["bleu"] = {
            beams: score_translations(written, references, lowercase=True).bleu
            for beams, written in self.written.items()
        }
        groups = bleu_by_length(sources, self.written[max(BEAMS)], references, lowercase=True)
        self.found["by_length"] = [asdict(group) for group in groups]


def last_record(run: Path) -> dict[str, Any]:
    """Return the last record of a run's log that was written in training."""
    records = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [record for record in records if "tokens_per_second" in record][-1]


def shown(side: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the table shows of a model, beside its sizes."""
    return {
        "training_speed": median(side["training"]),
        **{f"bleu_{beams}": side["bleu"][beams] for beams in BEAMS},
        **{f"speed_{beams}": side["rows"] / median(side["seconds"][beams]) for beams in BEAMS},
        "shortest": group_in_words(side["by_length"][0]),
        "longest": group_in_words(side["by_length"][-1]),
    }


def group_in_words(group: Mapping[str, Any]) -> str:
    """Write the BLEU of sources of like lengths, with its interval."""
    low, high = group["interval"]
    return f"{group['bleu']:.1f} [{low:.1f}, {high:.1f}]"


def draw(result: Result, file: Path) -> None:
    """Draw BLEU by the length of the source."""
    sides = result["cases"]["all"]["sides"]
    groups = {name: [LengthGroup(**each) for each in side["by_length"]] for name, side in sides.items()}
    panel = LinePanel(
        "BLEU by length of the source, beam 5",
        "words of the source",
        {name: [(each.mean_length, each.bleu) for each in own] for name, own in groups.items()},
        {name: [each.interval for each in own] for name, own in groups.items()},
    )
    draw_lines([panel], file)


BENCHMARK = Benchmark(
    {"all": Pairs()},
    measure_case,
    {
        "model": "{side}",
        "parameters": "{parameters:,.0f}",
        "tokens of training": "{tokens:,.0f}",
        "training, tokens/s": "{training_speed:,.0f}",
        "BLEU, greedy": "{bleu_1:.2f}",
        "beam 5": "{bleu_5:.2f}",
        "shortest fifth": "{shortest}",
        "longest fifth": "{longest}",
        "sentences/s, greedy": "{speed_1:.0f}",
        "beam 5 ": "{speed_5:.0f}",
    },
    alignment="lr",
    options={
        "--runs": {"nargs": "+", "required": True, "metavar": "NAME=FOLDER", "help": "finished runs"},
        "--pairs": {"type": Path, "required": True, "help": 'JSON lines with the columns "en" and "de"'},
    },
    defaults={"rounds": 3},
    draw=draw,
)
