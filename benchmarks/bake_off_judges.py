"""What judges a pretrained model in the bake-off, through the code of `tercet fewshot` and `tercet finetune`.

Every judge gives `values`, one for each seed of its own; `interval`, 95 % over rows; and `guess`, what needs
no model, where that is known.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bake_off_entrants import Reading
from samples import row_sample
from transformers import AutoTokenizer

from tercet import TercetDecoderForSentenceEmbedding, TercetEncoderForSentenceEmbedding
from tercet.configs.recipe import load_recipe
from tercet.fewshot.output import ITEMS, RESULTS
from tercet.fewshot.recipe import FewShotRecipe
from tercet.fewshot.run import fewshot
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune
from tercet.ground.messages import quietly
from tercet.metrics.bootstrap import bootstrap_interval, mean_interval
from tercet.metrics.numbers import spearman
from tercet.text.row_files import read_file

BLIMP_PAIRS = 67_000

LAMBADA_ROWS = 1_000
"""Passages that are read, of 5,153."""

SHORT = ("trec", "cola")
"""Tasks that are learned with the three seeds of their recipes; longer ones with the seed of pretraining."""

TEXTS_AT_ONCE = 64

Judgement = dict[str, Any]


@dataclass(frozen=True)
class Judge:
    """One way to judge, and how its score is shown."""

    name: str
    title: str
    """With the score."""
    shown: str = "{:.1f}"
    scale: float = 100.0
    is_higher_better: bool = True
    is_of_one_reading: bool = False
    """Whether scores of masked tokens and of next tokens mean different things."""
    needs_lm_head: bool = False


JUDGES = {
    judge.name: judge
    for judge in (
        Judge("blimp", "BLiMP, accuracy", needs_lm_head=True),
        Judge("trec", "TREC, accuracy"),
        Judge("conll2003", "CoNLL-2003, F1 of spans"),
        Judge("cola", "CoLA, Matthews correlation"),
        Judge("sst2", "SST-2, accuracy"),
        Judge("stsb", "STS-B by vectors, Spearman correlation"),
        Judge(
            "lambada",
            "LAMBADA, bits per word",
            shown="{:.2f}",
            scale=1.0,
            is_higher_better=False,
            is_of_one_reading=True,
            needs_lm_head=True,
        ),
    )
}
"""By name."""


@dataclass(frozen=True)
class Exam:
    """What is judged, and on how much."""

    model: Path
    """Gives probabilities of tokens."""
    learner: Path
    """Learns tasks: the same, or the encoder that it is converted to."""
    stack: Path
    """Gives vectors of sentences: an encoder or a decoder."""
    is_decoder: bool
    """Whether that is a decoder."""
    reading: Reading
    data: Path
    seed: int
    """Of the pretraining."""
    blimp_share: float
    rows: int | None
    """Training rows of a task at most; all if there is no limit."""
    judged_rows: int | None
    """The same for the rows that judge."""

    @property
    def is_trial(self) -> bool:
        """Whether only few rows judge, so that what teaches may be short, too."""
        return self.judged_rows is not None

    def depends_on(self, name: str) -> tuple[object, ...]:
        """List what decides a judgement, beside the model."""
        if name == "blimp":
            return (self.reading, self.blimp_share)
        learned = () if name in ("lambada", "stsb") else (self.rows, self.seed)
        return (self.reading, self.judged_rows, *learned)

    def judge(self, name: str, folder: Path) -> Judgement:
        """Judge in a folder, which goes on where an interrupted call has stopped."""
        ways: dict[str, Callable[[Path], Judgement]]
        ways = {"blimp": self.blimp, "lambada": self.lambada, "stsb": self.stsb}
        return ways[name](folder) if name in ways else self.task(name, folder)

    def blimp(self, folder: Path) -> Judgement:
        """Compare the two sentences of BLiMP's pairs."""
        own = self.prompt("blimp", round(BLIMP_PAIRS * self.blimp_share), folder)
        return {"values": [own["mean"]], "interval": own["interval"], "guess": 0.5, "ties": own["ties"]}

    def lambada(self, folder: Path) -> Judgement:
        """Count the bits of the last word of passages."""
        self.prompt("lambada", min(LAMBADA_ROWS, self.judged_rows or LAMBADA_ROWS), folder)
        lines = (folder / "run" / ITEMS).read_text(encoding="utf-8").splitlines()
        bits = np.array([-json.loads(line)["log_likelihood"] for line in lines]) / np.log(2)
        return {"values": [float(bits.mean())], "interval": list(mean_interval(bits)), "guess": None}

    def prompt(self, recipe: str, limit: int, folder: Path) -> dict[str, Any]:
        """Evaluate a recipe of `tercet fewshot` on some rows, without demonstrations."""
        overrides = [
            f"models=[{self.model}]",
            f"data.folder={self.data}",
            f"data.limit={limit}",
            f"prompting.head={self.reading.head}",
            f"prompting.sentinel={str(self.reading.sentinel).lower()}",
            f"output={folder / 'run'}",
        ]
        fewshot(load_recipe(FewShotRecipe, recipe, overrides), resume=True)
        results = json.loads((folder / "run" / RESULTS).read_text(encoding="utf-8"))
        return results["models"][0]["shots"]["0"]

    def task(self, name: str, folder: Path) -> Judgement:
        """Fine-tune on a task's rows."""
        overrides = [f"model.path={self.learner}", f"output={folder / 'run'}"]
        if name not in SHORT or self.is_trial:
            overrides.append(f"training.seeds=[{self.seed}]")
        if self.is_trial:
            overrides.append("training.epochs=1")
        recipe = load_recipe(FineTuningRecipe, name, overrides)
        columns = recipe.task.columns
        for split, limit in (
            ("train", self.rows),
            ("validation", self.judged_rows),
            ("test", self.judged_rows),
        ):
            if (source := getattr(recipe.data, split)) is not None:
                file = self.data / Path(source).relative_to("data")
                if limit is not None:
                    file = row_sample(str(file), columns, limit, folder / f"{split}.jsonl")
                overrides.append(f"data.{split}={file}")
        finetune(load_recipe(FineTuningRecipe, name, overrides), resume=True)
        told = json.loads((folder / "run" / "scores.json").read_text(encoding="utf-8"))
        criterion, split = told["criterion"], told["split"]
        return {
            "values": [seed[split][criterion] for seed in told["seeds"].values()],
            "interval": told["interval"],
            "guess": next(iter(told["baselines"].values())).get(criterion, 0.0),
        }

    def stsb(self, folder: Path) -> Judgement:
        """Correlate the similarity of two sentences' vectors, mean states, with that which people see."""
        rows = read_file(
            str(self.data / "stsb" / "en" / "test.jsonl.gz"), ("sentence1", "sentence2", "score")
        )
        rows = rows.select(range(min(len(rows), self.judged_rows or len(rows))))
        first, second = (
            np.concatenate([*self.vectors(rows[name][:])]) for name in ("sentence1", "sentence2")
        )
        found, people = (first * second).sum(axis=1), np.array(rows["score"])
        return {
            "values": [spearman(found, people)],
            "interval": list(
                bootstrap_interval(lambda drawn: spearman(found[drawn], people[drawn]), len(rows))
            ),
            "guess": 0.0,
        }

    @torch.inference_mode()
    def vectors(self, texts: list[str]) -> Iterator[np.ndarray]:
        """Yield vectors of texts, (S, C) for each batch, without any fine-tuning."""
        heads = (TercetEncoderForSentenceEmbedding, TercetDecoderForSentenceEmbedding)
        with quietly():
            tokenizer: Any = AutoTokenizer.from_pretrained(self.stack)
            model = heads[self.is_decoder].from_pretrained(self.stack, classifier_pooling="mean").eval()
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = texts[start : start + TEXTS_AT_ONCE]
            inputs = tokenizer(part, padding=True, truncation=True, return_tensors="pt")
            yield model(**inputs).sentence_embeddings.numpy()
