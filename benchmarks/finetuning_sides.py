"""Who fine-tunes: transformers' Trainer, as shipped and tuned, and our engine with a recipe.

Legend: E rows.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import SequentialSampler
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

from tercet.configs.recipe import parse_recipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune
from tercet.finetune.task import Task
from tercet.finetune.tasks import build_task
from tercet.ground.messages import quietly
from tercet.text.row_files import read_file
from tercet.training.heap import retain_heap

BATCH_SIZE, RATE, WARMUP, DECAY = 32, 2e-4, 0.1, 0.01
"""As in Devlin et al., 2019, section A.3, but for the rate, of which a small model needs more."""

EPSILON = 1e-6
"""Of AdamW, as in BERT's own fine-tuning, and in ours."""

IGNORED = -100

TASKS: dict[str, dict[str, Any]] = {
    "sst2": {"kind": "classification", "texts": ["sentence"], "label_names": ["negative", "positive"]},
    "cola": {
        "kind": "classification",
        "texts": ["sentence"],
        "label_names": ["unacceptable", "acceptable"],
        "metric_for_best_model": "matthews_correlation",
    },
    "mrpc": {"kind": "classification", "texts": ["sentence1", "sentence2"], "label_names": ["no", "yes"]},
    "stsb": {"kind": "regression", "texts": ["sentence1", "sentence2"], "metric_for_best_model": "spearman"},
    "conll2003": {"kind": "tagging", "tags": "ner_tags"},
}
"""Name -> what our recipe says of it."""

FILES = {
    "sst2": ("sst2/train", "sst2/validation"),
    "cola": ("cola/train", "cola/validation_in_domain"),
    "mrpc": ("mrpc/train", "mrpc/test"),
    "stsb": ("stsb/en/train", "stsb/en/validation"),
    "conll2003": ("conll2003/train", "conll2003/validation"),
}
"""Name -> files to learn from and to be measured on, without their ending."""


@dataclass(frozen=True)
class Contest:
    """One task for both sides."""

    task: str
    model: Path
    data: Path
    rows: int
    """To learn from, at most: the first ones of the file in a random order."""
    epochs: int

    @property
    def criterion(self) -> str:
        """The score that is compared."""
        return TASKS[self.task].get("metric_for_best_model") or (
            "span_f1" if self.task == "conll2003" else "accuracy"
        )

    def read(self) -> tuple[Dataset, Dataset]:
        """Read the rows."""
        columns = parse_task(self).columns
        train, held_out = (
            read_file(str(self.data / f"{name}.jsonl.gz"), columns) for name in FILES[self.task]
        )
        chosen = np.sort(np.random.default_rng(0).permutation(len(train))[: self.rows])
        return train.select(chosen), held_out


def fine_tune_ours(contest: Contest, seed: int, folder: Path) -> dict[str, Any]:
    """Fine-tune as `tercet finetune` does; the score and the seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    train, held_out = contest.read()
    for name, rows in (("train", train), ("validation", held_out)):
        rows.to_json(folder / f"{name}.jsonl")
    recipe = parse_recipe(
        FineTuningRecipe,
        {
            "model": {"path": str(contest.model)},
            "task": TASKS[contest.task],
            "data": {name: str(folder / f"{name}.jsonl") for name in ("train", "validation")},
            "training": {
                "epochs": contest.epochs,
                "batch_size": BATCH_SIZE,
                "learning_rate": RATE,
                "warmup_ratio": WARMUP,
                "weight_decay": DECAY,
                "seeds": [seed],
            },
            "output": str(folder / "run"),
        },
    )
    finetune(recipe, overwrite=True)
    told = json.loads((folder / "run" / "scores.json").read_text(encoding="utf-8"))
    seconds = time.perf_counter() - began
    in_steps = told["seeds"][str(seed)]["seconds"]
    return {"score": told["mean"]["validation"][contest.criterion], "seconds": seconds, "in_steps": in_steps}


def fine_tune_stock(contest: Contest, seed: int, folder: Path, *, is_tuned: bool = False) -> dict[str, Any]:
    """Fine-tune with transformers' Trainer; the score and the seconds."""
    if is_tuned:
        retain_heap()
    began = time.perf_counter()
    train, held_out = contest.read()
    task = build_task(parse_task(contest), train)
    tokenizer = AutoTokenizer.from_pretrained(contest.model)
    is_tagging = contest.task == "conll2003"
    encode = encode_words if is_tagging else encode_texts
    model_class = BertForTokenClassification if is_tagging else BertForSequenceClassification
    with quietly():
        model = model_class.from_pretrained(contest.model, **task.config_fields)
    collator = (DataCollatorForTokenClassification if is_tagging else DataCollatorWithPadding)(tokenizer)
    faster = {"bf16": True, "bf16_full_eval": False, "train_sampling_strategy": "group_by_length"}
    arguments = TrainingArguments(
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
        metric_for_best_model=contest.criterion,
        seed=seed,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        **faster if is_tuned else {},
    )
    measured = encode(held_out, tokenizer, task)
    if is_tuned:
        measured, held_out = from_short_to_long(measured, held_out)
    trainer = OrderlyTrainer(
        model,
        arguments,
        data_collator=collator,
        train_dataset=encode(train, tokenizer, task),
        eval_dataset=measured,
        compute_metrics=scores_of(task, held_out),
    )
    trainer.train()
    trainer.save_model(str(folder / "model"))
    score = trainer.evaluate()[f"eval_{contest.criterion}"]
    return {"score": score, "seconds": time.perf_counter() - began}


class OrderlyTrainer(Trainer):
    """Trainer, whose `group_by_length` would shuffle the rows to be measured on, too."""

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        return SequentialSampler(eval_dataset)


def from_short_to_long(encoded: Dataset, rows: Dataset) -> tuple[Dataset, Dataset]:
    """Sort encoded rows by length, and the rows with them: batches of like length."""
    order = np.argsort([len(ids) for ids in encoded["input_ids"]], kind="stable")
    return encoded.select(order), rows.select(order)


def parse_task(contest: Contest) -> Any:
    """Read what a recipe says of the task."""
    data = {"model": {"path": "x"}, "task": TASKS[contest.task], "data": {"train": "x"}, "output": "x"}
    return parse_recipe(FineTuningRecipe, data).task


def encode_texts(rows: Dataset, tokenizer: PreTrainedTokenizerBase, task: Task) -> Dataset:
    """Tokenize texts or pairs as transformers' examples do."""
    columns = task.recipe.texts
    labels = np.asarray(task.references(rows)).tolist()

    def encode(batch: Mapping[str, list[str]]) -> Any:
        texts, *others = (batch[column] for column in columns)
        return tokenizer(texts, others[0] if others else None, truncation=True)

    encoded = rows.map(encode, batched=True, remove_columns=rows.column_names)
    return encoded.add_column("labels", labels)  # pyright: ignore[reportCallIssue]


def encode_words(rows: Dataset, tokenizer: PreTrainedTokenizerBase, task: Task) -> Dataset:
    """Tokenize words, with the label of each at its first token, as transformers' examples do."""
    tags = [[task.config_fields["label2id"][tag] for tag in row] for row in task.references(rows)]
    encoded = tokenizer(rows[task.recipe.words][:], is_split_into_words=True, truncation=True)
    labels = []
    for index, row in enumerate(tags):
        words = encoded.word_ids(index)
        before = [None, *words[:-1]]
        labels.append(
            [
                IGNORED if word is None or word == last else row[word]
                for word, last in zip(words, before, strict=True)
            ]
        )
    return Dataset.from_dict({**encoded, "labels": labels})


def scores_of(task: Task, rows: Dataset) -> Callable[[EvalPrediction], dict[str, float]]:
    """Score Trainer's logits as ours are scored."""
    references = task.references(rows)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        logits: Any = prediction.predictions
        if task.head == "ForTokenClassification":
            answers = [tagged(*pair) for pair in zip(logits, prediction.label_ids, strict=True)]
        else:
            answers = list(logits)
        return task.score(task.predictions(answers, rows), references)

    return compute


def tagged(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the numbers of the words that have a token, and their best labels, (W, 2)."""
    found = logits[labels != IGNORED].argmax(-1)
    return np.stack((np.arange(len(found)), found), axis=1)


SIDES: dict[str, Callable[..., dict[str, Any]]] = {
    "stock": fine_tune_stock,
    "stock-tuned": partial(fine_tune_stock, is_tuned=True),
    "tercet": fine_tune_ours,
}
"""Name of a side -> fine-tunes."""
