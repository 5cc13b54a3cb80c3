"""Prepare a corpus with one worker and with two: documents per second of `tercet prepare`, by the clock.

The text is the embedded corpus, written several times into plain files, of which a shard has one; what it is
tokenized by was trained on it. Each preparation is in a process of its own, in turns, and begins when a small
one has started what it needs.

    one thread   a worker whose tokenizer has one thread, as those of several workers have
    one worker   the same with the tokenizer's own threads, as a preparation with `workers=1` has
    two workers  tasks of one thread each, two at a time
"""

import json
import os
import time
from argparse import Namespace
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from measuring import Conditions, in_fresh_process, turns
from publishing import Result, summarize
from speed import Benchmark

from tercet.preparation.recipe import PreparationRecipe, TextRecipe
from tercet.preparation.run import prepare
from tercet.text.documents import EMBEDDED, open_documents
from tercet.text.tokenizer import train_tokenizer

SIDES = {"one thread": (1, False), "one worker": (1, True), "two workers": (2, False)}
"""Name -> workers, and whether their tokenizers have threads."""


@dataclass(frozen=True)
class TextCase:
    """The embedded corpus, or its first documents, several times."""

    num_documents: int | None = None
    num_files: int = 4
    vocabulary: int = 8192

    def shrunk(self) -> "TextCase":
        """Return a few documents: to see that everything runs."""
        return replace(self, num_documents=20, num_files=2, vocabulary=600)

    def write(self, folder: Path) -> tuple[int, int]:
        """Write the text, a short one and a tokenizer; return how many documents and bytes there are."""
        texts = list(islice(open_documents(EMBEDDED, split="train"), self.num_documents))
        train_tokenizer(texts, "byte_bpe", self.vocabulary).save_pretrained(folder / "tokenizer")
        for name, part, number in (("text", texts, self.num_files), ("short", texts[:4], 2)):
            (folder / name).mkdir()
            lines = "".join(json.dumps({"text": text}) + "\n" for text in part)
            for idx in range(number):
                (folder / name / f"{idx}.jsonl").write_text(lines)
        size = sum(len(text.encode()) for text in texts)
        return self.num_files * len(texts), self.num_files * size


def measure_case(case: TextCase, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Time all sides in turns."""
    sides: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in options.sides}
    with TemporaryDirectory() as name:
        folder = Path(name)
        documents, size = case.write(folder)
        for side in turns(list(sides), options.rounds):
            sides[side]["seconds"].append(in_fresh_process(conditions, time_preparation, folder, side))
    summarize(sides, documents, "documents_per_second", {"first": [options.sides[0]]})
    for found in sides.values():
        found["megabytes_per_second"] = size / 1e6 / median(found["seconds"])
    return {"case": asdict(case), "documents": documents, "bytes": size, "sides": sides}


def time_preparation(folder: Path, side: str) -> float:
    """Prepare the text into a new folder, after a short one; return the seconds."""
    workers, has_threads = SIDES[side]
    os.environ["TOKENIZERS_PARALLELISM"] = json.dumps(has_threads)
    seconds = []
    for name in ("short", "text"):
        with TemporaryDirectory(dir=folder) as output:
            size = (folder / name / "0.jsonl").stat().st_size
            text = TextRecipe(path=str(folder / name), shard_bytes=size)
            begin = time.perf_counter()
            prepare(PreparationRecipe(text, str(folder / "tokenizer"), f"{output}/corpus", workers=workers))
            seconds.append(time.perf_counter() - begin)
    return seconds[-1]


def facts_of(result: Result) -> list[str]:
    """Say what is prepared."""
    return [
        f"- {name}: {case['documents']:,} documents of {case['bytes'] / case['documents']:,.0f} bytes, in "
        f"{case['case']['num_files']} shards"
        for name, case in result["cases"].items()
    ]


BENCHMARK = Benchmark(
    cases={"documentation": TextCase()},
    measure=measure_case,
    sides=tuple(SIDES),
    columns={
        "": "{side}",
        "documents/s": "{documents_per_second:,.0f}",
        "slowest to fastest": "{slowest:,.0f} to {fastest:,.0f}",
        "MB/s": "{megabytes_per_second:.2f}",
        "ratio": "{ratio_to_first:.2f}x",
    },
    alignment="lrr",
    facts=facts_of,
    defaults={"threads": 1, "rounds": 3},
)
