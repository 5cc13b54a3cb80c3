"""Fine-tune one real checkpoint with transformers' Trainer and with ours: equal scores, and in which time.

    python -m lab.benchmarks finetuning --model FOLDER

Both sides begin with the same stock BERT, learn from the same rows for as many epochs with the same rate,
batch size, schedule and seeds, are measured after every epoch, keep the best weights, and are scored by the
same functions. The clock runs from the files to the scores: reading, tokenizing, training, measuring, saving.

stock          Trainer as shipped: float32, batches padded to their longest row
stock-tuned    bfloat16 where that is faster, rows of like length batched together, freed memory kept
tercet         `tercet finetune`, `precision: auto`

Runs take turns, each in a process of its own. Legend: E rows, L labels, W words.
"""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)

import tercet
from tercet.configs.messages import quietly
from tercet.configs.recipe import parse_recipe
from tercet.data.files.rows import read_file
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.tasks.task import Task, build_task
from tercet.training.devices.cpu import retain_heap
from tercet.training.devices.precision import fast_bfloat16
from tercet.training.metrics.spans import span_scores

from ..publishing import Result, summarize
from .benchmark import Benchmark
from .measuring import Conditions, in_fresh_process, present_device, turns

BATCH_SIZE, RATE, WARMUP, DECAY = 32, 2e-4, 0.1, 0.01
"""As in Devlin et al., 2019, section A.3, but for the rate, of which a small model needs more."""

EPSILON = 1e-6
"""Of AdamW, as in BERT's own fine-tuning, and in ours."""

IGNORED = -100

TASKS: dict[str, dict[str, Any]] = {
    "sst2": {"kind": "classification", "texts": ["sentence"], "label_names": ["negative", "positive"]},
    "mrpc": {"kind": "classification", "texts": ["sentence1", "sentence2"]},
    "conll2003": {"kind": "tagging", "tags": "ner_tags"},
}
"""Task -> its part of our recipe; each is a folder with the files `train` and `validation`."""

CRITERIA = {"sst2": "accuracy", "mrpc": "accuracy", "conll2003": "span_f1"}
"""Task -> the score that is compared."""


@dataclass(frozen=True)
class Contest:
    """One task for both sides."""

    task: str
    model: Path = Path()
    data: Path = Path()
    rows: int = 2500
    """To learn from, at most: the first ones of the file in a random order."""
    epochs: int = 3

    def shrunk(self) -> "Contest":
        """Return the same with so few rows that it takes little time."""
        return replace(self, rows=64, epochs=1)

    def recipe(self, seed: int, folder: Path) -> Any:
        """Write our recipe, for rows and a run in a folder."""
        data = {
            "model": {"path": str(self.model)},
            "task": TASKS[self.task],
            "data": {name: str(folder / f"{name}.jsonl") for name in ("train", "validation")},
            "training": {
                "epochs": self.epochs,
                "batch_size": BATCH_SIZE,
                "learning_rate": RATE,
                "warmup_ratio": WARMUP,
                "weight_decay": DECAY,
                "seeds": [seed],
            },
            "output": str(folder / "run"),
        }
        return parse_recipe(FineTuningRecipe, data)

    def read(self, columns: Sequence[str]) -> tuple[Dataset, Dataset]:
        """Read the rows to learn from, and those to be measured on."""
        folder = self.data / self.task
        train, held_out = (
            read_file(str(folder / f"{name}.jsonl.gz"), columns) for name in ("train", "validation")
        )
        chosen = np.sort(np.random.default_rng(0).permutation(len(train))[: self.rows])
        return train.select(chosen), held_out


def fine_tune_ours(contest: Contest, seed: int, folder: Path) -> dict[str, Any]:
    """Fine-tune as `tercet finetune` does; the score and the seconds."""
    began, recipe = time.perf_counter(), contest.recipe(seed, folder)
    train, held_out = contest.read(recipe.task.columns)
    train.to_json(folder / "train.jsonl")
    held_out.to_json(folder / "validation.jsonl")
    tercet.finetune(recipe, overwrite=True)
    told = json.loads((folder / "run" / "scores.json").read_text(encoding="utf-8"))
    score = told["mean"]["validation"][CRITERIA[contest.task]]
    return {"seconds": time.perf_counter() - began, "score": score}


def fine_tune_stock(contest: Contest, seed: int, folder: Path, *, is_tuned: bool = False) -> dict[str, Any]:
    """Fine-tune with transformers' Trainer; the score and the seconds."""
    if is_tuned:
        retain_heap()
    began, recipe = time.perf_counter(), contest.recipe(seed, folder).task
    train, held_out = contest.read(recipe.columns)
    task = build_task(recipe, train)
    tokenizer = AutoTokenizer.from_pretrained(contest.model)
    if recipe.kind == "tagging":
        encode, model_class = encode_words, BertForTokenClassification
        collator: Any = DataCollatorForTokenClassification
    else:
        encode, model_class = encode_texts, BertForSequenceClassification
        collator = DataCollatorWithPadding
    with quietly():
        model = model_class.from_pretrained(contest.model, **task.config_fields)
    trainer = Trainer(
        model,
        arguments_of(contest, seed, folder, is_tuned),
        data_collator=collator(tokenizer),
        train_dataset=encode(train, tokenizer, task),
        eval_dataset=encode(held_out, tokenizer, task),
        compute_metrics=partial(scores, names=task.config_fields["id2label"]),
    )
    trainer.train()
    trainer.save_model(str(folder / "model"))
    score = trainer.evaluate()[f"eval_{CRITERIA[contest.task]}"]
    return {"seconds": time.perf_counter() - began, "score": score}


def arguments_of(contest: Contest, seed: int, folder: Path, is_tuned: bool) -> TrainingArguments:
    """Tell Trainer what our recipe says."""
    is_faster = fast_bfloat16(present_device()) is not None
    faster = {"bf16": is_faster, "train_sampling_strategy": "group_by_length"}
    return TrainingArguments(
        str(folder),
        num_train_epochs=contest.epochs,
        per_device_train_batch_size=BATCH_SIZE,
        per_device_eval_batch_size=BATCH_SIZE,
        learning_rate=RATE,
        warmup_steps=WARMUP,
        weight_decay=DECAY,
        adam_epsilon=EPSILON,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model=CRITERIA[contest.task],
        seed=seed,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        **faster if is_tuned else {},
    )


def encode_texts(rows: Dataset, tokenizer: PreTrainedTokenizerBase, task: Task) -> Dataset:
    """Tokenize texts or pairs as transformers' examples do."""
    encoded = tokenizer(*(rows[column][:] for column in task.recipe.texts), truncation=True)
    return Dataset.from_dict({**encoded, "labels": np.asarray(task.references(rows)).tolist()})


def encode_words(rows: Dataset, tokenizer: PreTrainedTokenizerBase, task: Task) -> Dataset:
    """Tokenize words, with the label of each at its first token, as transformers' examples do."""
    tags = [[task.config_fields["label2id"][tag] for tag in row] for row in task.references(rows)]
    encoded = tokenizer(rows[task.recipe.words][:], is_split_into_words=True, truncation=True)
    labels = []
    for index, row in enumerate(tags):
        words = encoded.word_ids(index)
        pairs = zip([None, *words], words, strict=False)
        labels.append([IGNORED if word in (None, last) else row[word] for last, word in pairs])
    return Dataset.from_dict({**encoded, "labels": labels})


def scores(prediction: EvalPrediction, names: Mapping[int, str]) -> dict[str, float]:
    """Score Trainer's logits: the accuracy of rows, or F1 of spans where words have labels."""
    found, right = np.asarray(prediction.predictions).argmax(-1), np.asarray(prediction.label_ids)
    if right.ndim == 1:
        return {"accuracy": float((found == right).mean())}
    is_word = right != IGNORED
    own, theirs = (
        [[names[int(number)] for number in row[of]] for row, of in zip(each, is_word, strict=True)]
        for each in (found, right)
    )
    return span_scores(own, theirs)


SIDES: dict[str, Callable[..., dict[str, Any]]] = {
    "stock": fine_tune_stock,
    "stock-tuned": partial(fine_tune_stock, is_tuned=True),
    "tercet": fine_tune_ours,
}
"""Side -> what fine-tunes."""


def settle(options: Namespace) -> Conditions:
    """Ask for the model, which is not shipped."""
    if options.model is None:
        raise ValueError("--model is missing: name the folder of a stock BERT that is to be fine-tuned")
    return Conditions(options.threads)


def measure_task(case: Contest, options: Namespace, conditions: Conditions, _: Result) -> Result:
    """Fine-tune by all sides in turns, with one seed after another."""
    contest = replace(case, model=options.model.resolve(), data=options.data.resolve())
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for number, side in enumerate(turns([*SIDES], options.rounds)):
        seed = number // len(SIDES)
        if side == "stock" and seed:  # the slowest, once
            continue
        with TemporaryDirectory() as folder:
            found = in_fresh_process(conditions, SIDES[side], contest, seed, Path(folder))
        print(f"{case.task}, {side}, seed {seed}: {found}", file=sys.stderr, flush=True)
        runs[side].append(found)
    about = {"criterion": CRITERIA[case.task].replace("_", " "), "rows": case.rows}
    sides = {side: about | described(own) for side, own in runs.items()}
    summarize(sides, 1, "speed", {"stock": ("stock",), "best_stock": ("stock", "stock-tuned")})
    return {"sides": sides}


def described(runs: Sequence[dict[str, Any]]) -> Result:
    """Describe a side's runs: their scores as mean and deviation over seeds."""
    seconds, scores = ([run[name] for run in runs] for name in ("seconds", "score"))
    score = f"{mean(scores):.4g}" + (f" ± {stdev(scores):.2g}" if len(scores) > 1 else "")
    return {"seconds": seconds, "median": median(seconds), "scores": scores, "score": score}


BENCHMARK = Benchmark(
    __doc__,
    {task: Contest(task) for task in TASKS},
    measure_task,
    {
        "task": "{case} ({rows:,} rows)",
        "score": "{criterion}",
        "side": "{side}",
        "validation rows": "{score}",
        "seconds, median": "{median:,.0f}",
        "over best stock": "{ratio_to_best_stock:.2f}x",
        "over stock": "{ratio_to_stock:.2f}x",
    },
    alignment="lllr",
    options={
        "--model": {"type": Path, "help": "folder of a stock BERT"},
        "--data": {"type": Path, "default": Path("corpora"), "help": "folder of the tasks' folders"},
    },
    settle=settle,
    defaults={"rounds": 3},
)
