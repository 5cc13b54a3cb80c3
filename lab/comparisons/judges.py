"""What judges the models of a comparison, through the code of the commands.

A judgement has `values`, one for each seed of its own; `interval`, 95 % over rows, where it is known; and
other numbers that a table may show.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from math import log
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import torch
from sacrebleu.metrics.bleu import BLEU
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import tercet
from tercet.configs.recipe import load_recipe, read_overrides
from tercet.data.documents import open_documents
from tercet.data.files.rows import read_file
from tercet.data.tokenizers.tokenizer import load_tokenizer
from tercet.fewshot.output import ITEMS
from tercet.fewshot.recipe import FewShotRecipe
from tercet.finetune.output import PREDICTIONS
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.tasks.tagging import TaggingRecipe
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.sentence_vectors import SentenceVectors
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import TextReader, open_text
from tercet.pretraining.translation_scores import score_translations, translate
from tercet.tools.convert.run import convert_model
from tercet.tools.embed.embedding import load_embedder
from tercet.training.devices.precision import build_accelerator
from tercet.training.evaluation import evaluate_held_out
from tercet.training.metrics.bootstrap import bootstrap_interval, mean_interval
from tercet.training.metrics.numbers import spearman
from tercet.training.run_folder import RECIPE, SCORES
from tercet.training.stages import StepCutter

Judgement = dict[str, Any]


@dataclass(frozen=True)
class Exam:
    """What is judged, and by what."""

    recipe: str
    """Of the judge, or of the training where the judge has none."""
    overrides: tuple[str, ...]
    model: Path
    options: dict[str, Any]
    """What the kind of judge reads besides."""


def by_finetuning(exam: Exam, folder: Path) -> Judgement:
    """Fine-tune on a task's rows, on the first `rows` of each file if that many are told."""
    recipe = load_recipe(FineTuningRecipe, exam.recipe, [*exam.overrides, f"output={folder / 'run'}"])
    files = []
    for split in ("train", "validation", "test") if exam.options.get("rows") else ():
        rows = read_file(str(getattr(recipe.data, split)), recipe.task.columns)
        rows.select(range(min(exam.options["rows"], len(rows)))).to_json(folder / f"{split}.jsonl")
        files.append(f"data.{split}={folder / split}.jsonl")
    tercet.finetune(recipe, *files, resume=True)
    told = json.loads((folder / "run" / SCORES).read_text(encoding="utf-8"))
    criterion, split = told["criterion"], told["split"]
    found = {
        "values": [seed[split][criterion] for seed in told["seeds"].values()],
        "interval": told["interval"],
        "baselines": {name: scores.get(criterion, 0.0) for name, scores in told["baselines"].items()},
    }
    is_tagging = isinstance(recipe.task, TaggingRecipe)
    return found | ({"unseen": unseen_share(folder / "run")} if is_tagging else {})


def unseen_share(run: Path) -> float:
    """Return the share of right labels among the test words that no training row has, by the best seed."""
    recipe = load_recipe(FineTuningRecipe, str(run / RECIPE))
    task = cast(TaggingRecipe, recipe.task)
    words, tags = task.words, task.tags
    seen = set(chain.from_iterable(read_file(str(recipe.data.train), (words,))[words]))
    rows = read_file(str(recipe.data.test), (words, tags))
    lines = (run / PREDICTIONS).read_text(encoding="utf-8").splitlines()
    predicted = [json.loads(line)[tags] for line in lines]
    is_right = [
        found == right
        for row in zip(rows[words], rows[tags], predicted, strict=True)
        for word, right, found in zip(*row, strict=True)
        if word not in seen
    ]
    return sum(is_right) / len(is_right)


def by_prompting(exam: Exam, folder: Path) -> Judgement:
    """Evaluate a recipe of `tercet fewshot`: its score, or with `bits` the bits of an answer."""
    overrides = [f"models=[{exam.model}]", *exam.overrides, f"output={folder / 'run'}"]
    tercet.fewshot(load_recipe(FewShotRecipe, exam.recipe, overrides), overwrite=True)
    if exam.options.get("bits"):
        lines = (folder / "run" / ITEMS).read_text(encoding="utf-8").splitlines()
        bits = np.array([-json.loads(line)["log_likelihood"] for line in lines]) / np.log(2)
        return {"values": [float(bits.mean())], "interval": list(mean_interval(bits))}
    results = json.loads((folder / "run" / SCORES).read_text(encoding="utf-8"))
    own = results["models"][0]["shots"]["0"]
    return {"values": [own["mean"]], "interval": own["interval"]}


def by_held_out_text(exam: Exam, folder: Path) -> Judgement:
    """Measure a `term` of the loss on the validation text of the training, with the judge's overrides.

    With `bits_per_character`, bits of a target are divided by the characters of an average token, which is
    the same for all models.
    """
    recipe = load_recipe(PretrainingRecipe, exam.recipe, exam.overrides)
    tokenizer = load_tokenizer(str(exam.model))
    accelerator = build_accelerator(recipe.training, exam.model.parent)
    reader = TextReader(recipe.corpus, recipe.objective, tokenizer, recipe.training.seed)
    held_out = reader.held_out(open_text(recipe.corpus, recipe.objective, "validation"))
    assert held_out.source is not None
    objective = recipe.objective.build(reader.context).at(1.0)
    steps = StepCutter(objective, recipe.training, accelerator).held_out(held_out.source)
    network = accelerator.prepare(Checkpoint.open(str(exam.model)).ours())
    scores = evaluate_held_out(network, objective, held_out, steps, accelerator)
    loss = scores[f"{exam.options['term']}/loss"]
    if exam.options.get("bits_per_character"):
        texts = [*open_documents(str(recipe.corpus.validation))]
        ids: Any = tokenizer(texts, add_special_tokens=False)["input_ids"]
        loss *= sum(map(len, ids)) / sum(map(len, texts)) / log(2)
    return {"values": [loss]}


def by_similarity(exam: Exam, folder: Path) -> Judgement:
    """Correlate the similarity of two sentences' vectors, mean states, with that which people see.

    The overrides name `file`, `rows` (all if null) and `stack` (the member that the model is converted to, if
    any). Nothing is fine-tuned.
    """
    about, path = read_overrides(exam.overrides), exam.model
    if about["stack"]:
        path = folder / "model"
        convert_model(str(exam.model), about["stack"], str(path), overwrite=True)
    rows = read_file(about["file"], ("sentence1", "sentence2", "score"))[: about["rows"]]
    embedder: Any = load_embedder(str(path))
    embedder.vectors = SentenceVectors("mean")
    first, second = (embedder.embed(rows[name]) for name in ("sentence1", "sentence2"))
    found, people = (first * second).sum(axis=1), np.array(rows["score"])
    interval = bootstrap_interval(lambda drawn: spearman(found[drawn], people[drawn]), len(people))
    return {"values": [spearman(found, people)], "interval": list(interval)}


@torch.inference_mode()
def by_translating(exam: Exam, folder: Path) -> Judgement:
    """Translate pairs, and compare in lower case: BLEU and chrF, or BLEU of a `fifth` by the length.

    The overrides name the `pairs`, how many `rows` of them (all if null), and the number of `beams`.
    """
    about = read_overrides(exam.overrides)
    table = datasets.load_dataset("json", data_files=about["pairs"], split="train")
    sources, references = (table[language][: about["rows"]] for language in ("en", "de"))
    model = AutoModelForSeq2SeqLM.from_pretrained(exam.model)
    written = translate(model, AutoTokenizer.from_pretrained(exam.model), sources, about["beams"])
    if (fifth := exam.options.get("fifth")) is not None:
        rows = group_by_length(np.array([len(source.split()) for source in sources]), 5)[fifth]
        bleu, interval = score_rows(written, references, rows)
        return {"values": [bleu], "interval": list(interval)}
    scores = score_translations(written, references, lowercase=True)
    return {"values": [scores.bleu], "chrf": scores.chrf}


def group_by_length(lengths: np.ndarray, num_groups: int) -> list[np.ndarray]:
    """Put rows of these lengths (E,) into groups from short to long, and give the rows of each.

    Groups are of nearly equal size, so that each score is that of as many rows (Bahdanau et al., 2015, figure
    2, ask whether long sentences are translated worse); rows of one length stay together.

    >>> [rows.tolist() for rows in group_by_length(np.array([3, 9, 3, 5, 7, 9]), 3)]
    [[0, 2], [3, 4], [1, 5]]
    """
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, num_groups + 1)[1:-1], method="lower"))
    numbers = np.searchsorted(edges, lengths, side="left")
    groups = (np.flatnonzero(numbers == number) for number in range(len(edges) + 1))
    return [rows for rows in groups if len(rows)]


def score_rows(
    translations: list[str], references: list[str], rows: np.ndarray
) -> tuple[float, tuple[float, float]]:
    """Return the BLEU in lower case of some rows, from 0 to 100, and its 95 % interval by the bootstrap."""
    bleu = BLEU(lowercase=True, effective_order=True)

    def score(rows: np.ndarray) -> float:
        found, right = ([texts[row] for row in rows.tolist()] for texts in (translations, references))
        return bleu.corpus_score(found, [right]).score

    return score(rows), bootstrap_interval(lambda drawn: score(rows[drawn]), len(rows), resamples=200)


JUDGES: dict[str, Callable[[Exam, Path], Judgement]] = {
    "finetune": by_finetuning,
    "fewshot": by_prompting,
    "held_out": by_held_out_text,
    "similarity": by_similarity,
    "translation": by_translating,
}
"""Kinds of judges, by the name that a comparison has."""
