"""Translators beside each other: BLEU, by the length of the source, and the speed of training and decoding.

    python lab/benchmarks/benchmark.py translators --runs recurrent=runs/translation-multi30k-recurrent \
        "without attention=runs/without-attention" transformer=runs/translation-multi30k \
        --pairs corpora/multi30k_en_de/test_2016_flickr.jsonl.gz --page docs/recurrent.md

--runs names finished runs of `tercet pretrain` or `distill`. Each model translates the test set greedily and
with five beams; the models take turns. The speed of training is the median of a run's log. Lines above the
table have chrF, how much of the first model's BLEU the others keep, and sacrebleu's signatures, which say
exactly what was compared. The picture shows whether attention rescues long sentences (Bahdanau et al., 2015,
figure 2).
"""

import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import datasets
import torch
from benchmark import Benchmark
from measuring import Conditions, in_fresh_process
from publishing import Result
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tercet.pretraining.translation_scores import (
    LengthGroup,
    bleu_by_length,
    score_translations,
    translate,
)
from tercet.reports.distill.comparison import keep_of_translations
from tercet.reports.distill.report import shown_interval, shown_share
from tercet.reports.line_charts import LinePanel, draw_lines
from tercet.training.run_folder import MODEL
from tercet.training.tracking import LOG, read_log

BEAMS = (1, 5)


@dataclass(frozen=True)
class Pairs:
    """The pairs that all models translate."""

    rows: int | None = None
    """How many, at most."""

    def shrunk(self) -> "Pairs":
        """Return a few of them."""
        return replace(self, rows=24)


def measure_case(case: Pairs, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Translate with the models of all runs that are named."""
    runs = dict(each.split("=", 1) for each in options.runs)
    measured = (runs, str(options.pairs), case.rows, options.rounds)
    return {"sides": in_fresh_process(conditions, measure_all, *measured)}


def measure_all(runs: Mapping[str, str], pairs: str, rows: int | None, rounds: int) -> Mapping[str, Result]:
    """Translate with all models in turns, and score what they write: figures of each."""
    table = datasets.load_dataset("json", data_files=pairs, split="train")
    sources, references = table["en"][:rows], table["de"][:rows]
    folders = {name: Path(run) / MODEL for name, run in runs.items()}
    models = {name: AutoModelForSeq2SeqLM.from_pretrained(each).eval() for name, each in folders.items()}
    tokenizers = {name: AutoTokenizer.from_pretrained(each) for name, each in folders.items()}
    written: dict[tuple[str, int], list[str]] = {}
    speeds: dict[tuple[str, int], list[float]] = {(name, beams): [] for name in runs for beams in BEAMS}
    for _ in range(rounds):
        for name, beams in speeds:
            start = time.perf_counter()
            with torch.inference_mode():
                written[name, beams] = translate(models[name], tokenizers[name], sources, num_beams=beams)
            speeds[name, beams].append(len(sources) / (time.perf_counter() - start))
    first = next(iter(runs))
    found = {}
    for name, run in runs.items():
        log = [each for each in read_log(Path(run) / LOG) if "tokens_per_second" in each]
        found[name] = {
            "parameters": models[name].num_parameters(),
            "tokens": log[-1]["tokens"],
            "training_speed": median(each["tokens_per_second"] for each in log),
            **{f"speed_{beams}": median(speeds[name, beams]) for beams in BEAMS},
            **{f"bleu_{beams}": bleu(written[name, beams], references) for beams in BEAMS},
            **by_length(sources, written[name, max(BEAMS)], references),
            "remark": remark(written[name, max(BEAMS)], written[first, max(BEAMS)], references),
        }
    return found


def bleu(translations: list[str], references: list[str]) -> float:
    """Score translations in lower case."""
    return score_translations(translations, references, lowercase=True).bleu


def by_length(sources: list[str], translations: list[str], references: list[str]) -> Result:
    """Score translations by the length of their sources, and write BLEU of the shortest and the longest."""
    groups = [asdict(each) for each in bleu_by_length(sources, translations, references, lowercase=True)]
    shown = ("{bleu:.1f} [{interval[0]:.1f}, {interval[1]:.1f}]".format(**groups[end]) for end in (0, -1))
    return {"by_length": groups} | dict(zip(("shortest", "longest"), shown, strict=True))


def remark(translations: list[str], first: list[str], references: list[str]) -> str:
    """Describe translations beyond BLEU: chrF, signatures, and what they keep of the first model's BLEU."""
    scores = score_translations(translations, references, lowercase=True)
    kept = keep_of_translations(translations, first, references, lowercase=True)
    share = f"{shown_share(kept.share)} of the first one's BLEU ({shown_interval(kept.interval)})"
    return f"chrF {scores.chrf:.2f}, {share}; {scores.bleu_signature}, {scores.chrf_signature}"


def remarks(result: Result) -> list[str]:
    """Write what the table has no column for, of models with five beams."""
    sides = result["cases"]["all"]["sides"].items()
    return [f"- {name}, beam {max(BEAMS)}: {side['remark']}" for name, side in sides if "remark" in side]


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
    options={
        "--runs": {"nargs": "+", "required": True, "metavar": "NAME=FOLDER", "help": "finished runs"},
        "--pairs": {"type": Path, "required": True, "help": 'JSON lines with the columns "en" and "de"'},
    },
    defaults={"rounds": 3},
    facts=remarks,
    draw=draw,
)
