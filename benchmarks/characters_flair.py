"""Flair's side of characters.py, which runs it with the Python of an environment that has flair.

Flair 0.15 needs transformers 4, and so an environment of its own. The first line of the standard input
describes the models and the text, as JSON; each other line names a kind of work. The answer is a line with
the processor's seconds.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from flair.data import Dictionary, Sentence  # pyright: ignore[reportMissingImports]
from flair.embeddings import FlairEmbeddings, StackedEmbeddings  # pyright: ignore[reportMissingImports]
from flair.models import LanguageModel  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F

BATCH = 32
"""Sentences that are embedded together, the batch size of flair's trainers."""


def language_models(characters: list[str], hidden: int, embedding: int) -> list[Any]:
    """Build flair's language models of both directions."""
    known: Any = Dictionary()
    for each in characters:
        known.add_item(each)
    return [
        LanguageModel(known, is_forward, hidden, 1, embedding_size=embedding, dropout=0.0)
        for is_forward in (True, False)
    ]


def training_step(models: list[Any], rows: int, length: int) -> Callable[[], float]:
    """Return a step on random characters, each row from an empty state; its seconds."""
    parameters = [parameter for model in models for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-3, fused=True)

    def step() -> float:
        columns = torch.randint(1, len(models[0].dictionary), (length, rows))
        start = time.process_time()
        for model, read in zip(models, (columns, columns.flip(0)), strict=True):
            output, _, _ = model(read[:-1], model.init_hidden(rows))
            F.cross_entropy(output.flatten(0, 1), read[1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - start

    return step


def embedding_pass(models: list[Any], sentences: list[list[str]]) -> Callable[[], float]:
    """Return a reading of all sentences, those of like lengths together; its seconds."""
    embeddings = StackedEmbeddings([FlairEmbeddings(model) for model in models])

    def embed() -> float:
        new = [Sentence(words) for words in sorted(sentences, key=lambda words: len(" ".join(words)))]
        start = time.process_time()
        for first in range(0, len(new), BATCH):
            embeddings.embed(new[first : first + BATCH])
        return time.process_time() - start

    return embed


def main() -> None:
    """Do the work that the standard input names."""
    answers, sys.stdout = sys.stdout, sys.stderr
    about = json.loads(sys.stdin.readline())
    torch.set_num_threads(1)
    models = language_models(about["characters"], about["hidden"], about["embedding"])
    work = {
        "train": training_step(models, about["rows"], about["length"]),
        "embed": embedding_pass(models, about["sentences"]),
    }
    for line in sys.stdin:
        print(work[line.strip()](), file=answers, flush=True)


if __name__ == "__main__":
    main()
