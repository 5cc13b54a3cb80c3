"""What the data pipeline is measured with: equal token ids in a corpus of ours and in a table of `datasets`.

Texts are random, as in `cases.py`: ranks of words follow Zipf's law, and lengths are such that about 58 % of
a padded batch is text; only the decoder's blocks are full. Both sides map from disk what was tokenized
before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from cases import LONGEST_OF_OTHERS, SEED, SHARE_FULL, SHORTEST
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from tercet.objectives.base_recipe import Corpus, ObjectiveContext
from tercet.objectives.recipes import (
    CausalLanguageModelingRecipe,
    DenoisingRecipe,
    MaskedLanguageModelingRecipe,
    NextSentenceRecipe,
    SingleObjectiveRecipe,
    SpanCorruptionRecipe,
    TranslationRecipe,
)
from tercet.text.bad_records import Tally
from tercet.text.corpus import TokenizedCorpus, offsets, save_corpus
from tercet.text.special_tokens import SENTINEL, is_special
from tercet.training.batches import StepDataset
from tercet.training.examples import Examples

SIGNS = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]"} | {
    "bos": "<s>", "eos": "</s>"
}  # fmt: skip
"""The first tokens of the vocabulary, by role."""

VOCABULARY, SENTINELS = 30_522, 100
"""Tokens, and how many of them are sentinels where there are any."""

TOKENS_PER_STEP = 16_384
"""Of ours: the engine's default."""

Draw = Callable[[Path, int, int], Corpus]
"""Writes a random corpus into a folder, for so many examples of at most so many tokens."""


def write(folder: Path, documents: Sequence[Any], rng: np.random.Generator) -> TokenizedCorpus:
    """Save random documents, whose sentences have the given lengths, and map them into memory."""
    sentences = np.hstack(documents)
    size, first = int(sentences.sum()), len(SIGNS) + SENTINELS
    corpus = TokenizedCorpus(
        tokens=(first - 1 + np.exp(rng.random(size) * np.log(VOCABULARY - first))).astype(np.uint16),
        word_starts=rng.random(size) < 0.7,
        sentence_offsets=offsets(sentences),
        document_offsets=offsets(np.array([np.size(document) for document in documents])),
        document_bytes=np.zeros(len(documents), dtype=np.int64),
    )
    save_corpus([corpus], folder, VOCABULARY, Tally())
    return TokenizedCorpus.load(folder)


def random_lengths(longest: int, number: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the lengths of texts that are cut at `longest`: (number,)."""
    others = rng.integers(SHORTEST, round(LONGEST_OF_OTHERS * longest) + 1, size=number)
    return np.where(rng.random(number) < SHARE_FULL, longest, others)


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
    collator: Callable[[PreTrainedTokenizerBase], Any] | None = None
    """Builds transformers' collator, if it has one for this objective."""
    fields: tuple[str, ...] = ("input_ids",)
    """What the stock collator reads of an example."""
    batch_size: int = 32
    """Rows of a stock batch."""
    num_examples: int = 16_384
    """Of an epoch, about."""
    tokens_per_step: int = TOKENS_PER_STEP

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Build a vocabulary without text; sentinels would slow the stock collators down."""
        has_sentinels = isinstance(self.recipe, SpanCorruptionRecipe)
        sentinels = [SENTINEL.format(idx) for idx in range(SENTINELS if has_sentinels else 0)]
        tokens = [*SIGNS.values(), *sentinels]
        tokens += [f"word{idx}" for idx in range(len(tokens), VOCABULARY)]
        vocabulary = {token: idx for idx, token in enumerate(tokens)}
        return PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token=SIGNS["unk"])),
            extra_special_tokens=sentinels,
            **{f"{role}_token": sign for role, sign in SIGNS.items()},
        )

    def steps(self, folder: Path) -> StepDataset:
        """Write the texts and build our pipeline, as a recipe does; documents are joined for the decoder."""
        corpus, tokenizer = self.draw(folder, self.num_examples, self.sequence_length), self.tokenizer()
        is_joined = isinstance(self.recipe, CausalLanguageModelingRecipe)
        context = ObjectiveContext(tokenizer, self.sequence_length, SEED, not is_joined, decoder_start_id=0)
        source, objective = self.recipe.examples(corpus, context), self.recipe.build(context)
        size = self.tokens_per_step
        return StepDataset(source, objective, tokens_per_step=size, tokens_per_micro_batch=size, seed=SEED)

    def stock(self, examples: Examples, folder: Path, num_workers: int = 0) -> DataLoader | None:
        """Write the same examples as a table, and build the stock pipeline, if there is one."""
        if self.collator is None:
            return None
        datasets.Dataset.from_dict(self.columns(examples)).save_to_disk(folder)
        table: Any = datasets.load_from_disk(folder)
        return DataLoader(
            table,
            self.batch_size,
            shuffle=True,
            collate_fn=self.collator(self.tokenizer()),
            num_workers=num_workers,
        )

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
            sequence_length=128,
            draw=draw_texts,
            collator=DataCollatorForLanguageModeling,
            fields=MASKED,
        ),
        Flow(
            "encoder, pairs",
            NextSentenceRecipe("masked_language_modeling_with_next_sentence"),
            sequence_length=128,
            draw=draw_documents,
            collator=DataCollatorForLanguageModeling,
            fields=(*MASKED, "token_type_ids", "next_sentence_label"),
        ),
        Flow(
            "decoder",
            CausalLanguageModelingRecipe("causal_language_modeling"),
            sequence_length=256,
            draw=draw_documents,
            collator=partial(DataCollatorForLanguageModeling, mlm=False),
            batch_size=8,
        ),
        Flow(
            "seq2seq, translation",
            TranslationRecipe("translation"),
            sequence_length=64,
            draw=draw_pairs,
            collator=DataCollatorForSeq2Seq,
            fields=("input_ids", "labels"),
        ),
        Flow(
            "encoder, static masks of words",
            MaskedLanguageModelingRecipe("masked_language_modeling", whole_word=True, masking="static"),
            sequence_length=128,
            draw=draw_texts,
        ),
        Flow("seq2seq, span corruption", SpanCorruptionRecipe("span_corruption"), 128, draw_documents),
        Flow("seq2seq, denoising", DenoisingRecipe("denoising"), 128, draw_documents),
    )
}
"""What is measured, by name; the last three have no counterpart among transformers' collators."""
