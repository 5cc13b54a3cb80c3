"""The text of a recipe: opened, and cut by the recipe's tokenizer.

A recipe names text to learn from (`train`) and text to measure on (`validation`). For translation, each is
two: the documents to read and the documents to write, as many.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from transformers import PreTrainedTokenizerBase

from ..objectives.base_recipe import Corpus
from ..text.cache import cache_folder, made_once, name_of
from ..text.documents import Documents, open_documents
from ..text.tokenization import tokenized_corpus
from ..text.tokenizer import load_tokenizer, train_tokenizer
from .model import build_config
from .recipe import PretrainingRecipe

Split = Literal["train", "validation"]

EDITION = 1
"""To be raised whenever the same text gives another tokenizer."""


class Joined:
    """Several documents' texts, one after another, as often as one likes."""

    def __init__(self, parts: tuple[Documents, ...]):
        self.parts = parts

    def __iter__(self) -> Iterator[str]:
        """Read all texts."""
        return chain.from_iterable(self.parts)


def open_text(recipe: PretrainingRecipe, split: Split) -> tuple[Documents, ...]:
    """Find the documents of a split: one, or for translation the source's and the target's.

    Raises:
        FileNotFoundError: A named file or folder does not exist.
        ValueError: The text cannot be read, or an objective that reads pairs lacks one of its columns.
    """
    corpus, objective = recipe.corpus, recipe.objective
    columns = [corpus.text_column]
    if objective.reads_pairs:
        if not (corpus.source_column and corpus.target_column):
            raise ValueError(
                f"{objective.kind} reads pairs, but corpus.source_column is {corpus.source_column} and "
                f"corpus.target_column is {corpus.target_column}: name the columns of both sides"
            )
        columns = [corpus.source_column, corpus.target_column]
    return tuple(
        open_documents(
            corpus.train if split == "train" else corpus.validation,
            column=column,
            required=columns,
            split=split,
            streaming=corpus.streaming,
            skip_bad_records=corpus.skip_bad_records,
            largest_record=corpus.largest_record,
            cache=corpus.cache,
        )
        for column in columns
    )


def tokenize_text(recipe: PretrainingRecipe, split: Split, tokenizer: PreTrainedTokenizerBase) -> Corpus:
    """Tokenize the documents of a split, or find them in the cache."""
    parts = [
        tokenized_corpus(documents, tokenizer, recipe.corpus.cache) for documents in open_text(recipe, split)
    ]
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def prepare_tokenizer(recipe: PretrainingRecipe, prepared: Path | None) -> PreTrainedTokenizerBase:
    """Load the tokenizer that a recipe names, else the one that was prepared for it, else train one.

    Raises:
        ValueError: A tokenizer cannot be loaded, or the text or the vocabulary's size is impossible.
    """
    if recipe.tokenizer.path is not None:
        return load_tokenizer(recipe.tokenizer.path)
    return load_tokenizer(str(prepared or learned_tokenizer(recipe)))


def learned_tokenizer(recipe: PretrainingRecipe) -> Path:
    """Train a tokenizer on a recipe's training text, or find in the cache what an earlier run learned."""
    parts = open_text(recipe, "train")
    options = {
        "kind": recipe.tokenizer.kind,
        "vocab_size": recipe.tokenizer.vocab_size,
        "lowercase": recipe.tokenizer.lowercase,
        "sentinels": recipe.objective.num_sentinels,
        "template": recipe.objective.template,
        "model_max_length": build_config(recipe).max_position_embeddings,
    }
    name = name_of(EDITION, options, [part.fingerprint() for part in parts])

    def make(folder: Path) -> None:
        train_tokenizer(Joined(parts), **options).save_pretrained(folder)

    return made_once(cache_folder(recipe.corpus.cache) / "tokenizers" / name, make)
