"""Measure a process's share of a step and of a stream, and plan a corpus of 10 TB for 1,024 processes.

    python examples/share_of_a_step.py

Prints the tables of docs/scaling.md. The processes are simulated one after another in this one: the
times are the processor's, for a process to collate its share and cut it into micro-batches, or to read a
window of a stream and tokenize its share. Of the large corpora there is an index alone, a formula of lengths.
"""

import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tercet.objectives.base_recipe import ObjectiveContext
from tercet.objectives.causal_language_modeling import CausalLanguageModeling, CausalLanguageModelingRecipe
from tercet.objectives.denoising import DenoisingRecipe
from tercet.objectives.masked_language_modeling import MaskedLanguageModelingRecipe
from tercet.objectives.span_corruption import SpanCorruptionRecipe
from tercet.reporting.blocks import Table
from tercet.reporting.text import for_terminal
from tercet.text.corpus import ARRAYS, TokenizedCorpus
from tercet.text.documents import EMBEDDED, open_documents
from tercet.text.streaming import WindowShares
from tercet.text.tokenization import tokenize
from tercet.text.tokenizer import train_tokenizer
from tercet.training.batches import StepDataset
from tercet.training.hashing import splitmix
from tercet.training.step_planning import share
from tercet.training.windows import WindowedSource
from tercet.training.workers import DataCursor

LENGTH, TOKENS_PER_STEP, TOKENS_PER_MICRO_BATCH = 256, 2**18, 2**14
RECIPES = {
    "masked": MaskedLanguageModelingRecipe("masked_language_modeling"),
    "causal": CausalLanguageModelingRecipe("causal_language_modeling"),
    "span corruption": SpanCorruptionRecipe("span_corruption"),
    "denoising": DenoisingRecipe("denoising"),
}
PROCESSES = (1, 2, 4)
STEPS = 8

BYTES_PER_TOKEN = 4.3
BLOCK, BLOCKS_OF_WINDOW = 2**12, 64
LARGE_STEP, LARGE_MICRO_BATCH = 2**22, 2**12


def draw_corpus(num_tokens: int) -> TokenizedCorpus:
    """Draw documents of about 200 tokens, in sentences of about 20."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(8, 33, num_tokens // 20)
    return TokenizedCorpus(
        rng.integers(200, 8000, sizes.sum()).astype(np.uint16),
        rng.random(sizes.sum()) < 0.7,
        np.append(0, sizes.cumsum()),
        np.append(np.arange(0, len(sizes), 10), len(sizes)),
        np.ones(-(-len(sizes) // 10), dtype=np.int64),
    )


def milliseconds(steps: StepDataset) -> float:
    """Time a process's share of a step: the median of several."""
    found = []
    for number in range(STEPS):
        begin = time.process_time()
        steps[DataCursor(0, number % len(steps.plan(0)[1]), number)].micro_batches(torch.device("cpu"))
        found.append(1000 * (time.process_time() - begin))
    return median(found)


def shares(tokenizer: Any) -> Table:
    """Tabulate the work of a process for its share of a step, by the number of processes."""
    corpus, rows = draw_corpus(STEPS * TOKENS_PER_STEP), []
    context = ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0)
    for name, recipe in RECIPES.items():
        source, objective = recipe.examples(corpus, context), recipe.build(context)
        times = [
            mean(
                milliseconds(
                    StepDataset(
                        source,
                        objective,
                        tokens_per_step=TOKENS_PER_STEP,
                        tokens_per_micro_batch=TOKENS_PER_MICRO_BATCH,
                        seed=0,
                        num_processes=processes,
                        process_index=index,
                    )
                )
                for index in range(processes)
            )
            for processes in PROCESSES
        ]
        rows.append([name, *(f"{each:.1f} ms ({each / times[0]:.2f})" for each in times)])
    return Table(["a process's share of a step", *map(str, PROCESSES)], rows)


def timed(make: Callable[[], Any]) -> tuple[float, Any]:
    """Return the fewest seconds of the processor that something takes of three times, and what it makes."""
    found = []
    for _ in range(3):
        begin, made = time.process_time(), make()
        found.append((time.process_time() - begin, made))
    return min(found, key=lambda each: each[0])


def windows() -> Table:
    """Tabulate the work of a process for a window of a stream, which is the embedded corpus as a whole."""
    documents = open_documents(EMBEDDED, split="train")
    read = partial(tokenize, tokenizer=train_tokenizer(documents, "byte_bpe", 8192))
    reading, texts = timed(lambda: [*documents])
    rows: list[list[str]] = [["read", *[f"{reading:.2f} s"] * len(PROCESSES)], ["tokenized"], ["sent"]]
    alone = 0.0
    for processes in PROCESSES:
        made = []
        for index in range(processes):
            shares = WindowShares(documents, read, len(texts), index, processes)
            made.append(timed(lambda shares=shares: shares[DataCursor(0, 0)]))
        seconds = max(seconds - reading for seconds, _ in made)
        alone = alone or seconds
        sizes = [sum(getattr(share, name).nbytes for name in ARRAYS) for _, share in made]
        rows[1].append(f"{seconds:.2f} s ({seconds / alone:.2f})")
        rows[2].append("-" if processes == 1 else f"{max(sizes) / 1e6:.2f} MB")
    characters = sum(map(len, texts)) / 1e6
    return Table([f"{len(texts):,} documents, {characters:.1f} MB", *map(str, PROCESSES)], rows)


class Formula:
    """The examples of a block, of which nothing exists but their lengths: 64 to 512 tokens."""

    def __init__(self, block: int):
        numbers = np.arange(BLOCK, dtype=np.uint64) + np.uint64(block * BLOCK)
        self.lengths = (64 + splitmix(numbers) % np.uint64(449)).astype(np.int64)

    def __len__(self) -> int:
        """Count the examples."""
        return BLOCK

    def __getitem__(self, index: int) -> Any:
        """There is no text."""
        raise NotImplementedError


def plan(num_bytes: float, processes: int) -> Sequence[str]:
    """Plan the windows of a corpus, and the share of one process of every step, beginning anywhere."""
    blocks = int(num_bytes / BYTES_PER_TOKEN / 288 / BLOCK)
    source = WindowedSource(lambda block, lap: Formula(block), blocks, BLOCKS_OF_WINDOW, seed=0)
    sizes = {"tokens_per_step": LARGE_STEP, "tokens_per_micro_batch": LARGE_MICRO_BATCH}
    steps = StepDataset(source, CausalLanguageModeling(), **sizes, seed=0)
    tracemalloc.start()
    steps.plan(0)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    begin, planned, own = time.process_time(), 0, 0
    for window in (1, source.windows - 1, source.windows + 7, 5 * source.windows + 1):
        examples, cut = steps.plan(window)
        for step in cut:
            own = len(share(examples.lengths[step], LARGE_MICRO_BATCH, processes, processes - 1)[0])
        planned += len(cut)
    passed = 1000 * (time.process_time() - begin) / planned
    size = f"{num_bytes / 1e12:g} TB, {blocks * BLOCK / 1e6:,.0f} million examples"
    return [size, f"{processes:,}", f"{passed:.1f} ms", f"{peak:.0f} MB", f"{own:,}"]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer of words that no text has, with the signs of all objectives."""
    signs = ["[PAD]", "[UNK]", "[MASK]", "<s>", "</s>", *(f"<extra_id_{number}>" for number in range(100))]
    names = [*signs, *(f"w{number}" for number in range(8192 - len(signs)))]
    words = WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    roles = {"pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]", "bos": "<s>", "eos": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), **{f"{role}_token": sign for role, sign in roles.items()}
    )


def main() -> None:
    """Print the tables."""
    planned = [plan(size, number) for size in (1e10, 1e12, 1e13) for number in (1, 1024)]
    columns = ["corpus", "processes", "plan of a step", "memory", "examples of a process"]
    print(for_terminal([shares(build_tokenizer()), windows(), Table(columns, planned)]))


if __name__ == "__main__":
    main()
