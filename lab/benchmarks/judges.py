"""What makes and judges the models of a study, through the code of the commands.

Every judgement has `values`, one for each seed of its own, or `scores` by what was asked and who answered;
and where these are known, `interval`, 95 % over rows, and `guess`, what needs no model.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from pathlib import Path
from statistics import mean
from typing import Any, cast

import numpy as np
import torch
from samples import row_sample
from transformers import AutoTokenizer

import tercet
from tercet import (
    TercetDecoderForSentenceEmbedding,
    TercetEncoderConfig,
    TercetEncoderForSentenceEmbedding,
    TercetEncoderModel,
)
from tercet.configs.messages import quietly
from tercet.configs.recipe import load_recipe, read_overrides
from tercet.data.documents import open_documents
from tercet.data.files.rows import read_file
from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.fewshot.output import ITEMS
from tercet.fewshot.recipe import FewShotRecipe
from tercet.finetune.output import PREDICTIONS
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.tasks.tagging import TaggingRecipe
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.pretraining.text import TextReader, open_text
from tercet.training.devices.precision import build_accelerator
from tercet.training.evaluation import evaluate_held_out
from tercet.training.metrics.bootstrap import bootstrap_interval, mean_interval
from tercet.training.metrics.numbers import spearman
from tercet.training.run_folder import MODEL, RECIPE, SCORES
from tercet.training.stages import StepCutter

TEXTS_AT_ONCE = 64

Judgement = dict[str, Any]


@dataclass(frozen=True)
class Exam:
    """What is judged, and by what."""

    recipe: str
    overrides: tuple[str, ...]
    model: Path
    limits: dict[str, int | None]
    """Split of the data -> rows at most."""
    options: dict[str, Any]
    """What the kind of judge reads besides; and `is_trial`: whether all may be short."""
    training: tuple[str, tuple[str, ...]] = ("", ())
    """Recipe and overrides of all rows' training."""


def pretrained(recipe: str, overrides: list[str], folder: Path) -> dict[str, Any]:
    """Pretrain, going on with an interrupted run; what it cost."""
    loaded = load_recipe(PretrainingRecipe, recipe, [*overrides, f"output={folder / 'run'}"])
    model = pretrain(loaded, resume=True)
    told = json.loads((model.parent / "evaluation.json").read_text(encoding="utf-8"))
    cost = {"seconds": told["seconds"], "steps": told["step"], "tokens": told["tokens"]}
    return cost | {
        "parameters": Checkpoint.open(str(model)).ours().num_parameters(),
        "scores": told["scores"],
    }


def untrained(recipe: str, overrides: list[str], folder: Path) -> dict[str, Any]:
    """Build an encoder with random weights, and a tokenizer of its rows."""
    about = read_overrides(overrides)
    tokenizer = train_tokenizer(read_file(about["text"], ("text",))["text"], **about["tokenizer"])
    sizes = about["config"] | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    model = TercetEncoderModel(TercetEncoderConfig(**sizes))
    for part in (model, tokenizer):
        part.save_pretrained(folder / "run" / MODEL)
    return {"seconds": 1.0, "steps": 1, "tokens": 0, "parameters": model.num_parameters()}


def by_finetuning(exam: Exam, folder: Path) -> Judgement:
    """Fine-tune on a task's rows, going on with an interrupted run."""
    given = [*exam.overrides, f"output={folder / 'run'}"]
    recipe = load_recipe(FineTuningRecipe, exam.recipe, given)
    for split in ("train", "validation", "test"):
        if (source := getattr(recipe.data, split)) is not None:
            given += split_of(exam, split, str(source), recipe.task.columns, folder)
    if exam.options["is_trial"]:
        given.append("training.epochs=1")
    tercet.finetune(load_recipe(FineTuningRecipe, exam.recipe, given), resume=True)
    told = json.loads((folder / "run" / SCORES).read_text(encoding="utf-8"))
    criterion, split, seeds = told["criterion"], told["split"], told["seeds"].values()
    baselines = {name: scores.get(criterion, 0.0) for name, scores in told["baselines"].items()}
    found = {
        "values": [seed[split][criterion] for seed in seeds],
        "mean": told["mean"][split][criterion],
        "deviation": told["standard_deviation"][split][criterion],
        "interval": told["interval"],
        "guess": next(iter(baselines.values())),
        "baselines": baselines,
        "seconds": mean(seed["seconds"] for seed in seeds),
    }
    return found | ({"unseen": unseen_share(folder / "run")} if exam.options.get("unseen") else {})


def split_of(exam: Exam, split: str, source: str, columns: Sequence[str], folder: Path) -> list[str]:
    """Draw the rows of a split if they are limited; the override that names them."""
    limit = exam.limits.get(split)
    if limit is None:
        return []
    return [f"data.{split}={row_sample(source, columns, limit, folder / f'{split}.jsonl')}"]


def unseen_share(run: Path) -> float:
    """Return the share of right labels among the words of the test rows that no training row has.

    They are those of the best seed.
    """
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
        return {"values": [float(bits.mean())], "interval": list(mean_interval(bits)), "guess": None}
    results = json.loads((folder / "run" / SCORES).read_text(encoding="utf-8"))
    own = results["models"][0]["shots"]["0"]
    found = {"values": [own["mean"]], "interval": own["interval"], "guess": exam.options.get("guess")}
    return found | {"ties": own["ties"]}


def by_held_out_text(exam: Exam, folder: Path) -> Judgement:
    """Measure a `term` of the loss on the validation text of the training, with the judge's overrides.

    With `bits_per_character`, bits of a target are divided by the characters of an average token, which is
    the same for all models.
    """
    name, overrides = exam.training
    recipe = load_recipe(PretrainingRecipe, name, [*overrides, *exam.overrides])
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

    The overrides name `file`, and `decoder`: whether the model is one. Nothing is fine-tuned.
    """
    about = read_overrides(exam.overrides)
    rows = read_file(about["file"], ("sentence1", "sentence2", "score"))
    rows = rows.select(range(min(len(rows), exam.limits.get("test") or len(rows))))
    first, second = (
        np.concatenate([*vectors(exam.model, about["decoder"], rows[name][:])])
        for name in ("sentence1", "sentence2")
    )
    found, people = (first * second).sum(axis=1), np.array(rows["score"])
    interval = bootstrap_interval(lambda drawn: spearman(found[drawn], people[drawn]), len(rows))
    return {"values": [spearman(found, people)], "interval": list(interval), "guess": 0.0}


@torch.inference_mode()
def vectors(path: Path, is_decoder: bool, texts: list[str]) -> Iterator[np.ndarray]:
    """Yield vectors of texts, (S, C) for each batch."""
    head = TercetDecoderForSentenceEmbedding if is_decoder else TercetEncoderForSentenceEmbedding
    with quietly():
        tokenizer: Any = AutoTokenizer.from_pretrained(path)
        model = head.from_pretrained(path, classifier_pooling="mean").eval()
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        part = texts[start : start + TEXTS_AT_ONCE]
        inputs = tokenizer(part, padding=True, truncation=True, return_tensors="pt")
        yield model(**inputs).sentence_embeddings.numpy()


JUDGES: dict[str, Callable[[Exam, Path], Judgement]] = {
    "finetune": by_finetuning,
    "fewshot": by_prompting,
    "held_out": by_held_out_text,
    "similarity": by_similarity,
}
"""Kinds of judges, by the name that a study has."""
