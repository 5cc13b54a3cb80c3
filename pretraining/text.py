"""The text of a recipe: opened, and cut by the recipe's tokenizer.

A recipe names text to learn from (`train`) and text to measure on (`validation`). For translation, each is
two: the documents to read and the documents to write, as many.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from transformers import PreTrainedTokenizerBase

from ..modeling import TercetConfig
from ..objectives.base_recipe import Corpus
from ..text.cache import cache_folder, made_once, name_of
from ..text.documents import Documents, open_documents
from ..text.tokenization import tokenized_corpus
from ..text.tokenizer import train_tokenizer
from .recipe import PretrainingRecipe

Split = Literal["train", "validation"]

Texts = Mapping[Split, tuple[Documents, ...]]
"""The documents of each split: one, or for translation the source's and the target's."""

EDITION = 1
"""To be raised whenever the same text gives another tokenizer."""


class Joined:
    """Several documents' texts, one after another, as often as one likes."""

    def __init__(self, parts: Sequence[Documents]):
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


def open_texts(recipe: PretrainingRecipe) -> Texts:
    """Find the documents of both splits.

    Raises:
        FileNotFoundError: A named file or folder does not exist.
        ValueError: As in `open_text`.
    """
    return {split: open_text(recipe, split) for split in get_args(Split)}


def identify(texts: Texts, cache: str | None) -> dict[str, list[dict[str, Any]]]:
    """Name the texts of both splits with sizes and hashes; the hashes are kept in the cache."""
    return {split: documents[0].identify(cache) for split, documents in texts.items()}


def tokenize(documents: Sequence[Documents], tokenizer: PreTrainedTokenizerBase, cache: str | None) -> Corpus:
    """Tokenize the documents of a split, or find them in the cache."""
    parts = [tokenized_corpus(each, tokenizer, cache) for each in documents]
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def trained_tokenizer(
    recipe: PretrainingRecipe, documents: Sequence[Documents], config: TercetConfig
) -> Path:
    """Train a tokenizer on documents, unless an earlier run has, and give its folder in the cache.

    Args:
        recipe: Says how it is trained.
        documents: The training text.
        config: Of the model that will use it.

    Raises:
        ValueError: The text or the vocabulary's size is impossible.
    """
    options = {
        "kind": recipe.tokenizer.kind,
        "vocab_size": recipe.tokenizer.vocab_size,
        "lowercase": recipe.tokenizer.lowercase,
        "sentinels": recipe.objective.num_sentinels,
        "template": recipe.objective.template,
        "model_max_length": config.max_position_embeddings,
    }
    name = name_of(EDITION, options, [part.fingerprint() for part in documents])

    def make(folder: Path) -> None:
        train_tokenizer(Joined(documents), **options).save_pretrained(folder)

    return made_once(cache_folder(recipe.corpus.cache) / "tokenizers" / name, make)
