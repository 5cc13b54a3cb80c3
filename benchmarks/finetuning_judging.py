"""Models that were fine-tuned, scored on rows of the training file that none of them has learned from.

There are many more of these than validation rows, and no checkpoint was chosen by them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from finetuning_sides import FILES, TASKS, Contest, parse_task
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tercet.finetune.tasks import build_task
from tercet.ground.messages import quietly
from tercet.text.row_files import read_file

BATCH_SIZE = 64

JUDGED = tuple(name for name in TASKS if TASKS[name]["kind"] == "classification")
"""Tasks of which further rows can be judged."""


def judge(contest: Contest, folder: Path, num_rows: int) -> float:
    """Score the model of one run on rows that nobody learned from.

    Args:
        contest: Which task, and which rows were learned from.
        folder: Of the run.
        num_rows: How many rows to read, at most.
    """
    train, _ = contest.read()
    rows = unread(contest, train, num_rows)
    task = build_task(parse_task(contest), train)
    path = next(path for path in (folder / "run" / "model", folder / "model") if path.exists())
    answers = read(path, rows, task.recipe.texts)
    return task.score(task.predictions(answers, rows), task.references(rows))[contest.criterion]


def unread(contest: Contest, train: Dataset, num_rows: int) -> Dataset:
    """Draw rows of the training file whose texts are not among those that were learned from."""
    columns = parse_task(contest).columns
    rows = read_file(str(contest.data / f"{FILES[contest.task][0]}.jsonl.gz"), columns)
    texts = TASKS[contest.task]["texts"]
    known = set(zip(*(train[column][:] for column in texts), strict=True))
    others = [
        index
        for index, row in enumerate(zip(*(rows[column][:] for column in texts), strict=True))
        if row not in known
    ]
    return rows.select(np.sort(np.random.default_rng(1).permutation(others)[:num_rows]))


@torch.inference_mode()
def read(path: Path, rows: Dataset, columns: tuple[str, ...]) -> list[np.ndarray]:
    """Let a model read rows in batches, in float32; its logits, as lists of arrays (L,)."""
    with quietly():
        tokenizer: Any = AutoTokenizer.from_pretrained(path)
        model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    answers = []
    for start in range(0, len(rows), BATCH_SIZE):
        batch = rows[start : start + BATCH_SIZE]
        texts = [batch[column] for column in columns]
        answers += list(
            model(**tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")).logits.numpy()
        )
    return answers
