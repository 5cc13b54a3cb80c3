"""The sequence-to-sequence model writes telegrams out as sentences, beside counting.

A telegram is a sentence without its small words, capitals and punctuation. The baseline fills every place
between two of its words with what most probably stood between them in the training sentences.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from ..metrics.texts import rouge_of_each
from ..pretraining.recipe import PretrainingRecipe
from ..pretraining.translation_scores import translate
from ..training.run_folder import MODEL
from .continuing import lines_of
from .finetuning import ROWS
from .measured import Measured
from .neighbours import NeighbourCounts
from .prompts import TELEGRAMS
from .tasks import SMALL_WORDS, WORD

TASK = "telegrams"

TRAINED = "this model"
COUNTING = "counting neighbours"
COPY = "the telegram itself"

EDGE = ""
"""What stands before the first word and behind the last one."""
LONGEST = 64
"""Tokens of a sentence, at most."""


@dataclass(frozen=True)
class Telegrams:
    """What was written for the test rows and for the prompts."""

    rows: Sequence[Mapping[str, Any]]
    written: Mapping[str, Sequence[str]]
    """By who wrote it."""
    exact: Mapping[str, Measured]
    """Whether a sentence is right to the letter."""
    restored: Mapping[str, Measured]
    """The share of a sentence's words and marks that were restored in their order: ROUGE-L."""
    prompted: Sequence[tuple[str, str]]
    """Telegrams that the author made up, and what the model wrote."""
    num_rows: int
    """Sentences that were learned from."""

    @property
    def in_one_line(self) -> str:
        """Compare the scores in one line."""
        scores = (
            f"{name} {own.score:.3f} (ROUGE-L {self.restored[name].score:.3f})"
            for name, own in self.exact.items()
        )
        return f"sentences restored: {', '.join(scores)}"


def with_rows(recipe: PretrainingRecipe, folder: Path) -> PretrainingRecipe:
    """Let a recipe whose rows are the shipped one's read those of the demonstration."""
    files = {split: str(folder / ROWS / f"{TASK}-{split}.jsonl") for split in ("train", "validation")}
    return replace(recipe, corpus=replace(recipe.corpus, **files))


def write_telegrams_out(recipe: PretrainingRecipe) -> Telegrams:
    """Let a trained model write the test rows out, and count for comparison.

    Args:
        recipe: By which it was trained; the test rows lie beside its training rows.
    """
    train = Path(str(recipe.corpus.train))
    rows, learned = lines_of(train.with_name(f"{TASK}-test.jsonl")), lines_of(train)
    model = AutoModelForSeq2SeqLM.from_pretrained(recipe.folder / MODEL)
    tokenizer = AutoTokenizer.from_pretrained(recipe.folder / MODEL)
    telegrams = [row["telegram"] for row in rows]
    answers = translate(model, tokenizer, [*telegrams, *TELEGRAMS], max_new_tokens=LONGEST)
    counts = NeighbourCounts.fit(gap for row in learned for gap in gaps(row["sentence"]))
    written = {
        TRAINED: answers[: len(rows)],
        COUNTING: [filled(telegram, counts) for telegram in telegrams],
        COPY: [f"{telegram.capitalize()}." for telegram in telegrams],
    }
    truths = [row["sentence"] for row in rows]
    return Telegrams(
        rows,
        written,
        {
            name: Measured(
                np.array([own == truth for own, truth in zip(texts, truths, strict=True)], dtype=float)
            )
            for name, texts in written.items()
        },
        {name: Measured(rouge_of_each(texts, truths)["rougeL"]) for name, texts in written.items()},
        list(zip(TELEGRAMS, answers[len(rows) :], strict=True)),
        len(learned),
    )


def gaps(sentence: str) -> Iterator[tuple[str, str, str]]:
    """List what stands between the words that a telegram keeps: each gap with both of its words.

    >>> from tercet.demo.telegrams import gaps
    >>> list(gaps("The number of rows."))
    [('', 'The ', 'number'), ('number', ' of ', 'rows'), ('rows', '.', '')]
    """
    left, end = EDGE, 0
    for word in WORD.finditer(sentence):
        if word[0].lower() not in SMALL_WORDS:
            yield left, sentence[end : word.start()], word[0].lower()
            left, end = word[0].lower(), word.end()
    yield left, sentence[end:], EDGE


def filled(telegram: str, counts: NeighbourCounts) -> str:
    """Write a telegram out with what most probably stands in each gap, and a capital."""
    words = telegram.split()
    best = [counts.best(left, right)[0] for left, right in zip([EDGE, *words], [*words, EDGE], strict=True)]
    text = best[0] + "".join(word + gap for word, gap in zip(words, best[1:], strict=True))
    return re.sub(r"[A-Za-z]", lambda first: first[0].upper(), text, count=1)
