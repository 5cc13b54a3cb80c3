"""Make batches side by side with `datasets` and transformers' collators: real tokens per second, their ratio.

A pass is a whole epoch in random order, or a few, from files on the disk to batches in memory: equal token
ids in a corpus of ours and in a table of `datasets`, both tokenized before. Ours includes the plan of the
epoch, the corruption and the cutting into micro-batches. Texts are random, as in `cases.py`; only the
decoder's blocks are full.

The sides share a process, which keeps its heap, and one thread, and take turns: A B B A. What counts is
the processor's time, so that what else the machine does counts little.
"""

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
)

from tercet.data.corpus import TokenizedCorpus, offsets, save_corpus
from tercet.data.files.problems import Tally
from tercet.data.steps.batches import Step, StepDataset, endless_steps
from tercet.data.steps.examples import Examples
from tercet.data.steps.workers import DataCursor
from tercet.data.tokenizers.special_tokens import is_special
from tercet.pretraining.objectives.causal_language_modeling import CausalLanguageModelingRecipe
from tercet.pretraining.objectives.masked_language_modeling import MaskedLanguageModelingRecipe
from tercet.pretraining.objectives.masked_pairs import NextSentenceRecipe
from tercet.pretraining.objectives.recipes import Corpus, ObjectiveContext, SingleObjectiveRecipe
from tercet.pretraining.objectives.translation import TranslationRecipe
from tercet.training.devices.cpu import retain_heap

from ..publishing import Result, spread, summarize
from .benchmark import Benchmark
from .cases import SEED, random_lengths, without_text
from .measuring import Conditions, in_fresh_process, turns

SIGNS = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]"} | {
    "bos": "<s>", "eos": "</s>"
}  # fmt: skip
"""The first tokens of the vocabulary, by role."""

VOCABULARY = 30_522

EPOCHS = 4
"""Whose number of steps ours makes in a pass: one epoch would be over too soon."""

Draw = Callable[[Path, int, int], Corpus]
"""Writes a random corpus into a folder, for so many examples of at most so many tokens."""


def write(folder: Path, documents: Sequence[Any], rng: np.random.Generator) -> TokenizedCorpus:
    """Save random documents, whose sentences have the given lengths, and map them into memory."""
    sentences = np.hstack(documents)
    size, first = int(sentences.sum()), len(SIGNS)
    corpus = TokenizedCorpus(
        tokens=(first - 1 + np.exp(rng.random(size) * np.log(VOCABULARY - first))).astype(np.uint16),
        word_starts=rng.random(size) < 0.7,
        sentence_offsets=offsets(sentences),
        document_offsets=offsets(np.array([np.size(document) for document in documents])),
        document_bytes=np.zeros(len(documents), dtype=np.int64),
    )
    save_corpus([corpus], folder, VOCABULARY, Tally())
    return TokenizedCorpus.load(folder)


def draw_texts(folder: Path, number: int, length: int) -> Corpus:
    """Draw documents of one sequence each, with room for [CLS] and [SEP]."""
    rng = np.random.default_rng(SEED)
    return write(folder, list(random_lengths(length - 2, number, rng)), rng)


def draw_documents(folder: Path, number: int, length: int) -> Corpus:
    """Draw documents of several sentences, which are about two sequences long."""
    rng = np.random.default_rng(SEED)
    sizes = rng.integers(2, 2 * length // 11, size=number // 2)
    return write(folder, [rng.integers(4, 41, size=size) for size in sizes], rng)


def draw_pairs(folder: Path, number: int, length: int) -> Corpus:
    """Draw sources, and targets that are up to a fifth longer or shorter."""
    rng = np.random.default_rng(SEED)
    sources = random_lengths(length - 1, number, rng)
    targets = np.clip((sources * rng.uniform(0.8, 1.2, number)).astype(int), 1, length - 1)
    return write(folder / "sources", list(sources), rng), write(folder / "targets", list(targets), rng)


@dataclass(frozen=True)
class Flow:
    """One way from a corpus to batches."""

    name: str
    recipe: SingleObjectiveRecipe
    sequence_length: int
    draw: Draw
    collator: Callable[[PreTrainedTokenizerBase], Any]
    """Builds transformers' collator."""
    fields: tuple[str, ...] = ("input_ids",)
    """What the stock collator reads of an example."""
    batch_size: int = 32
    """Rows of a stock batch."""
    num_examples: int = 16_384
    """Of an epoch, about."""
    tokens_per_step: int = 16_384
    """Of ours: the engine's default."""

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Build a vocabulary without text."""
        return without_text(VOCABULARY, [*SIGNS.values()], SIGNS)

    def steps(self, folder: Path) -> StepDataset:
        """Write the texts and build our pipeline, as a recipe does; documents are joined for the decoder."""
        corpus, tokenizer = self.draw(folder, self.num_examples, self.sequence_length), self.tokenizer()
        is_joined = isinstance(self.recipe, CausalLanguageModelingRecipe)
        context = ObjectiveContext(
            tokenizer, self.sequence_length, SEED, isolate_documents=not is_joined, decoder_start_id=0
        )
        source, objective = self.recipe.examples(corpus, context), self.recipe.build(context)
        size = self.tokens_per_step
        return StepDataset(source, objective, tokens_per_step=size, tokens_per_micro_batch=size, seed=SEED)

    def stock(self, examples: Examples, folder: Path) -> DataLoader:
        """Write the same examples as a table, and build the stock pipeline."""
        datasets.Dataset.from_dict(self.columns(examples)).save_to_disk(folder)
        table: Any = datasets.load_from_disk(folder)
        return DataLoader(table, self.batch_size, shuffle=True, collate_fn=self.collator(self.tokenizer()))

    def columns(self, examples: Examples) -> dict[str, list[Any]]:
        """Turn examples into columns; which tokens are special is kept, as by `run_mlm.py`, to save time."""
        made = [examples[idx] for idx in range(len(examples))]
        is_sign = is_special(self.tokenizer())
        for example in made:
            example["special_tokens_mask"] = is_sign[example["input_ids"]].astype(int)
        return {name: [np.asarray(example[name]).tolist() for example in made] for name in self.fields}

    def shrunk(self) -> "Flow":
        """Return the same flow so small that it takes no time: to see that everything runs."""
        return replace(self, num_examples=256, tokens_per_step=1024)


MASKED = ("input_ids", "special_tokens_mask")

FLOWS: dict[str, Flow] = {
    flow.name: flow
    for flow in (
        Flow(
            "encoder",
            MaskedLanguageModelingRecipe("masked_language_modeling"),
            128,
            draw_texts,
            DataCollatorForLanguageModeling,
            MASKED,
        ),
        Flow(
            "encoder, pairs",
            NextSentenceRecipe("masked_language_modeling_with_next_sentence"),
            128,
            draw_documents,
            DataCollatorForLanguageModeling,
            (*MASKED, "token_type_ids", "next_sentence_label"),
        ),
        Flow(
            "decoder",
            CausalLanguageModelingRecipe("causal_language_modeling"),
            256,
            draw_documents,
            partial(DataCollatorForLanguageModeling, mlm=False),
            batch_size=8,
        ),
        Flow(
            "seq2seq, translation",
            TranslationRecipe("translation"),
            64,
            draw_pairs,
            DataCollatorForSeq2Seq,
            ("input_ids", "labels"),
        ),
    )
}
"""What is measured, by name."""


def time_flow(flow: Flow, rounds: int) -> dict[str, Any]:
    """Time both sides in turns: `seconds` of a token in each pass; the first pass does not count."""
    retain_heap()
    datasets.disable_progress_bars()
    with TemporaryDirectory() as folder:
        steps = flow.steps(Path(folder) / "corpus")
        examples, number = steps.source.epoch(0), EPOCHS * len(steps.plan(0)[1])
        tokens, table = int(examples.lengths.sum()), flow.stock(examples, Path(folder) / "table")
        passes = {
            "stock": partial(drain, table, tokens),
            "tercet": partial(take, endless_steps(steps, DataCursor(0, 0)), number),
        }
        seconds: dict[str, list[float]] = {name: [] for name in passes}
        for name in (*passes, *turns(list(passes), rounds)):
            seconds[name].append(seconds_per_token(passes[name]))
    sides = {name: {"seconds": found[1:]} for name, found in seconds.items()}
    summarize(sides, 1, "tokens_per_second", {"stock": ("stock",)})
    return {"sides": sides}


def take(steps: Iterator[Step], number: int) -> int:
    """Make the next steps, cut into micro-batches; return their tokens."""
    tokens = 0
    for step in islice(steps, number):
        step.micro_batches(torch.device("cpu"))
        tokens += step.tokens
    return tokens


def drain(loader: DataLoader, tokens: int) -> int:
    """Make the batches of a stock epoch, which has so many tokens."""
    for _ in loader:
        pass
    return tokens


def seconds_per_token(make_batches: Callable[[], int]) -> float:
    """Relate the processor's seconds to the tokens of a pass."""
    start = time.process_time()
    tokens = make_batches()
    return (time.process_time() - start) / tokens


def measure_flow(flow: Flow, options: Namespace, conditions: Conditions, result: Result) -> dict[str, Any]:
    """Time both sides in a process of their own."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    result["machine"]["versions"]["datasets"] = datasets.__version__
    return in_fresh_process(conditions, time_flow, flow, options.rounds)


BENCHMARK = Benchmark(
    __doc__,
    FLOWS,
    measure_flow,
    {
        "flow": "{case}",
        "stock, tokens/s": spread("stock", "tokens_per_second"),
        "tercet, tokens/s": spread("tercet", "tokens_per_second"),
        "ratio": "{tercet[ratio_to_stock]:.0f}x",
    },
    has_row_per_case=True,
    defaults={"threads": 1},
)
