"""Which of four texts continues a paragraph? The decoder says, by few-shot scoring without examples.

A continuation b of a text a is scored by log p(b | a) - log p(b): how much likelier a makes it. Beside the
decoder stand the same difference by the trigram model of pretraining, and the words that a and b share, the
rare ones counting more.
"""

import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..configs.recipe import load_recipe
from ..fewshot.output import ITEMS
from ..fewshot.recipe import FewShotRecipe
from ..fewshot.run import fewshot
from ..pretraining.baselines import TrigramModel
from ..pretraining.comparison import with_ends
from ..pretraining.recipe import PretrainingRecipe
from ..pretraining.text import open_texts, tokenize
from ..text.corpus import TokenizedCorpus
from ..text.tokenizer import frame_ids
from ..training.run_folder import MODEL
from .finetuning import ROWS
from .measured import Measured
from .tasks import CHOICES, Row

CONTINUING = "continuations"
"""Folder of the evaluation."""

TRAINED = "this decoder"
TRIGRAM = "trigram"
OVERLAP = "shared words"
CHANCE = "chance"
UNNORMALIZED = "this decoder, by log p(b | a) alone"

WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Continuations:
    """What was chosen."""

    answers: Mapping[str, Measured]
    """Of the decoder, and of what needs no network."""
    unnormalized: Measured
    """Of the decoder, without subtracting log p(b)."""
    rows: Sequence[Row]
    """What was to be continued, and how it might go on."""
    choices: Sequence[int]
    """The decoder's answers."""
    seconds: float

    @property
    def in_one_line(self) -> str:
        """Compare the scores in one line."""
        return "accuracy: " + ", ".join(f"{name} {own.score:.3f}" for name, own in self.answers.items())


def load_continuing(overrides: Iterable[str] = ()) -> FewShotRecipe:
    """Read the shipped recipe."""
    return load_recipe(FewShotRecipe, "continuations-demo", overrides)


def choose_continuations(recipe: FewShotRecipe, decoder: PretrainingRecipe, folder: Path) -> Continuations:
    """Let the decoder choose, and what needs no network.

    Args:
        recipe: How; model, rows and output are replaced by those of the demonstration.
        decoder: How it was pretrained.
        folder: Of the demonstration.
    """
    began = time.perf_counter()
    model = decoder.folder / MODEL
    recipe = replace(
        recipe,
        data=replace(recipe.data, folder=str(folder / ROWS)),
        models=(str(model),),
        output=str(folder / CONTINUING),
    )
    items = lines_of(fewshot(recipe) / ITEMS)
    rows = lines_of(folder / ROWS / recipe.data.test)[: len(items)]
    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = open_texts(decoder)
    values = {
        TRIGRAM: trigram_values(rows, decoder, tokenizer),
        OVERLAP: overlap_values(rows, texts["train"][0]),
    }
    targets = [row["target"] for row in rows]
    answers = {TRAINED: Measured(np.array([item["is_right"]["pmi"] for item in items], dtype=float))}
    answers |= {name: chosen_rightly(own, targets) for name, own in values.items()}
    answers[CHANCE] = Measured(np.full(len(rows), 1 / CHOICES))
    return Continuations(
        answers,
        Measured(np.array([item["is_right"]["none"] for item in items], dtype=float)),
        rows,
        [item["choices"]["pmi"] for item in items],
        time.perf_counter() - began,
    )


def lines_of(file: Path) -> list[Any]:
    """Read JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def chosen_rightly(values: Sequence[Sequence[float]], targets: Sequence[int]) -> Measured:
    """Score the answer of the greatest value; of equal ones, each counts its share."""
    scores = []
    for own, target in zip(values, targets, strict=True):
        best = [place for place, value in enumerate(own) if math.isclose(value, max(own))]
        scores.append((target in best) / len(best))
    return Measured(np.array(scores))


def overlap_values(rows: Sequence[Row], read: Iterable[str]) -> list[list[float]]:
    """Return the share of each text's words that stand in what it might continue, weighted by their rarity.

    Args:
        rows: With `text` and `choices`.
        read: Documents that rarity is counted in.
    """
    documents = [words_of(text) for text in read]
    seen = Counter(word for words in documents for word in words)

    def weight(words: Iterable[str]) -> float:
        return sum(math.log((1 + len(documents)) / (1 + seen[word])) + 1 for word in words)

    return [
        [
            weight(words_of(row["text"]) & words) / max(weight(words), 1e-9)
            for words in map(words_of, row["choices"])
        ]
        for row in rows
    ]


def words_of(text: str) -> set[str]:
    """Return the words of a text, in lower case."""
    return set(WORD.findall(text.lower()))


def trigram_values(
    rows: Sequence[Row], decoder: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase
) -> list[list[float]]:
    """Return log p(b | a) - log p(b) by interpolated Kneser-Ney on what the decoder was pretrained on."""
    train = cast(TokenizedCorpus, tokenize(decoder, open_texts(decoder)["train"], tokenizer))
    model = TrigramModel.fit(*with_ends(train, frame_ids(tokenizer)[1]), len(tokenizer))

    def log_probability(ids: Sequence[int]) -> np.ndarray:
        return model.log_probability(np.array(ids), np.array([0, len(ids)]))

    def ids_of(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    found = []
    for row in rows:
        before = ids_of(row["text"])
        own = []
        for choice in row["choices"]:
            behind = ids_of(f" {choice}")
            after = log_probability([*before, *behind])[len(before) :].sum()
            own.append(float(after - log_probability(behind).sum()))
        found.append(own)
    return found
