"""Digests of what tiny runs of every kind come to, equal before and after a change of no number.

    python -m tests.house.bit_identity > before.txt

Two runs of each kind with fixed seeds, on this CPU with one thread. A line is a run, what is compared,
and its digest: losses of the log, weights, logits, generated ids, predictions, scores with intervals,
baselines, verdicts and the report without times. `--values FOLDER` also writes what the digests are of.
"""

import json
import os
import random
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import tercet

from ..finetune.conftest import WORDS

TINY = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TIMED = re.compile(r"[\d,.]+ s(econds)?\b|\d{4}-\d\d-\d\d\S*|\b[mp][0-9a-f]{10}\b")
"""What differs from run to run in a report, such as the names that matplotlib gives to shapes."""

NOT_COMPARED = ("seconds", "per_second", "time", "utilization", "memory", "date")
"""Parts of the names of what a log has that differs from run to run."""


def main() -> None:
    """Carry out the runs in a temporary folder, and print the digests."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--values", metavar="FOLDER", type=Path, help="where to write what is compared")
    values = parser.parse_args().values
    values = None if values is None else values.resolve()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        write_data()
        for name, run in runs():
            for what, value in facts_of(run):
                text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
                print(f"{name:<16}{what:<12}{sha256(text.encode()).hexdigest()[:20]}", flush=True)
                if values is not None:
                    values.mkdir(parents=True, exist_ok=True)
                    (values / f"{name}-{what}.txt").write_text(text, encoding="utf-8")
        os.chdir("/")


def write_data() -> None:
    """Write a text and rows; the label of a sentence is its first animal."""
    draw = random.Random(0)
    for split, size in (("train", 40), ("held-out", 12)):
        sentences = [[draw.choices(WORDS, k=draw.randint(2, 9)) for _ in range(5)] for _ in range(size)]
        paragraphs = ["\n".join(" ".join(words) + "." for words in each) for each in sentences]
        Path(f"{split}.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
        rows = [words for each in sentences for words in each][: 2 * size]
        animals = [next((word for word in words if word in ("cat", "dog")), "none") for words in rows]
        write_rows(
            f"{split}.jsonl", [{"text": " ".join(w), "label": a} for w, a in zip(rows, animals, strict=True)]
        )
        tags = [["B-ANIMAL" if word in ("cat", "dog") else "O" for word in words] for words in rows]
        write_rows(f"{split}-tags.jsonl", [{"tokens": w, "tags": t} for w, t in zip(rows, tags, strict=True)])


def write_rows(name: str, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSON lines."""
    Path(name).write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")


def runs() -> Iterator[tuple[str, Any]]:
    """Carry out the runs, and yield each with its name."""
    yield "encoder", tercet.pretrain(pretraining("encoder", "masked_language_modeling", "wordpiece"))
    yield "decoder", tercet.pretrain(pretraining("decoder", "causal_language_modeling", "byte_bpe"))
    labels = {"kind": "classification"}
    yield "labels", tercet.finetune(fine_tuning("labels", labels, "", seeds=[0, 1]))
    yield "tags", tercet.finetune(fine_tuning("tags", {"kind": "tagging"}, "-tags", seeds=[0]))
    report = {"speed": False}
    learning = {"steps": 3, "tokens_per_step": 256, "precision": "fp32", "measure_utilization": False}
    general = {
        "teacher": "encoder/model",
        "corpus": {
            "train": "train.txt",
            "validation": "held-out.txt",
            "sequence_length": 32,
            "cache": "cache",
        },
        "objective": {"kind": "masked_language_modeling"},
        "training": learning,
    }
    yield "general", tercet.distill({"general": general, "report": report, "output": "general"})
    data = {"train": "train.jsonl", "validation": "train.jsonl", "test": "held-out.jsonl"}
    task = {"teacher": "labels/model", "data": data, "training": {"epochs": 1, "precision": "fp32"}}
    yield "task", tercet.distill({"task": task, "report": report, "output": "task"})
    choices = {
        "kind": "multiple_choice",
        "context": "{{ text }}:",
        "choices": ["cat", "dog", "none"],
        "target": "['cat', 'dog', 'none'].index(label)",
    }
    yield "choices", tercet.fewshot(prompting("choices", choices, [0, 2]))
    writing = {"kind": "generation", "context": "{{ text }}:", "answers": "{{ label }}", "max_new_tokens": 4}
    yield "writing", tercet.fewshot(prompting("writing", writing, [1]))


def pretraining(member: str, objective: str, tokenizer: str) -> dict[str, Any]:
    """Describe a pretraining run of a few steps."""
    return {
        "model": {"preset": f"{member}-tiny", "overrides": TINY | {"max_position_embeddings": 64}},
        "tokenizer": {"kind": tokenizer, "vocab_size": 300},
        "corpus": {
            "train": "train.txt",
            "validation": "held-out.txt",
            "sequence_length": 32,
            "cache": "cache",
        },
        "objective": {"kind": objective},
        "training": {
            "steps": 6,
            "tokens_per_step": 256,
            "evaluate_every": 3,
            "log_every": 1,
            "precision": "fp32",
            "measure_utilization": False,
        },
        "output": member,
    }


def fine_tuning(name: str, task: dict[str, Any], rows: str, seeds: list[int]) -> dict[str, Any]:
    """Describe a run of fine-tuning."""
    return {
        "model": {"path": "encoder/model"},
        "task": task,
        "data": {"train": f"train{rows}.jsonl", "test": f"held-out{rows}.jsonl"},
        "training": {"epochs": 2, "learning_rate": 0.003, "seeds": seeds, "precision": "fp32"},
        "output": name,
    }


def prompting(name: str, task: dict[str, Any], shots: list[int]) -> dict[str, Any]:
    """Describe an evaluation with prompts."""
    return {
        "task": task,
        "data": {"test": "held-out.jsonl", "demonstrations": "train.jsonl"},
        "prompting": {"num_fewshot": shots, "seeds": [0, 1]},
        "models": ["decoder/model"],
        "output": name,
    }


def facts_of(run: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is compared of a run."""
    if logs := sorted(run.folder.rglob("log.jsonl")):
        yield "losses", [losses_in(log) for log in logs]
    for name in ("predictions.jsonl", "items.jsonl"):
        if (file := run.folder / name).exists():
            yield "predictions", file.read_text(encoding="utf-8")
    if run.command != "fewshot":
        model = run.model()
        yield "weights", {name: digest(weights) for name, weights in sorted(model.state_dict().items())}
        ids = torch.arange(5, 29)[None]
        with torch.inference_mode():
            yield "logits", model(input_ids=ids).logits.tolist()
            if model.can_generate():
                yield "ids", model.generate(ids, max_new_tokens=8, do_sample=False).tolist()
    yield "scores", [[name, each.value, each.interval] for name, each in run.scores.items()]
    yield "baselines", run.baselines
    yield "verdicts", run.verdicts
    yield "report", TIMED.sub("TIME", (run.folder / "report.md").read_text(encoding="utf-8"))
    yield "page", TIMED.sub("TIME", run.report.read_text(encoding="utf-8"))


def losses_in(log: Path) -> list[dict[str, Any]]:
    """Read a log without what differs from run to run."""
    return [
        {
            key: value
            for key, value in json.loads(line).items()
            if not any(part in key for part in NOT_COMPARED)
        }
        for line in log.read_text(encoding="utf-8").splitlines()
    ]


def digest(weights: torch.Tensor) -> str:
    """Hash the bytes of a tensor."""
    return sha256(weights.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
