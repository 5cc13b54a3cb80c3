"""The recipe of a pretraining run, with a part for each component of the run.

model      which architecture               tokenizer    what the text is cut into
corpus     which text, in what lengths      objective    what is learned from it (`objective_recipes.py`)
training   how it is optimized (`training/recipe.py`)    output       where everything goes
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ..objectives.recipes import ObjectiveRecipe
from ..text.paths import named_path
from ..training.recipe import TrainingRecipe

Source = str | list[str]
"""A file, a folder, a list of them, a data set's id on the Hub, or `documentation`: the embedded corpus."""


@dataclass(frozen=True)
class ModelRecipe:
    """Which architecture is trained, from random weights, or which model goes on learning."""

    preset: str | None = None
    """Name of a model preset; `tercet recipes` lists them."""
    path: str | None = None
    """Folder or Hub id of a model of ours that goes on learning, with its tokenizer, instead of a preset."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Fields of the model's configuration that replace the preset's. The vocabulary's size and the ids of
    special tokens need none: the tokenizer sets them."""


@dataclass(frozen=True)
class TokenizerRecipe:
    """What text is cut into: an existing tokenizer, or one trained on the training corpus."""

    path: str | None = None
    """Folder or Hub id of an existing tokenizer; the other fields then mean nothing."""
    kind: Literal["wordpiece", "byte_bpe", "unigram", "characters"] = "wordpiece"
    """How the vocabulary is learned."""
    vocab_size: Annotated[int, Field(ge=8, le=2**22)] = 8192
    """Entries of the vocabulary at most, special tokens included."""
    lowercase: bool = False
    """Whether upper and lower case are the same."""


@dataclass(frozen=True)
class CorpusRecipe:
    """Which text is learned from, and which is held out."""

    train: Source
    """Text to learn from."""
    validation: Source
    """Text that is only measured on."""
    text_column: str = "text"
    """Column of the text, where rows have columns."""
    source_column: str | None = None
    """Column of a pair's source, for translation."""
    target_column: str | None = None
    """Column of a pair's target, for translation."""
    skip_bad_records: bool = False
    """Whether records that are no text (broken lines, wrong encodings, missing columns) are left out, counted
    and told of, instead of ending the run with the place of the first."""
    largest_record: Annotated[int, Field(ge=1)] = 2**28
    """Characters of a record (a document, a row, a line) at most; one that is longer is a bad one. It bounds
    the memory that a single record takes, whatever a compressed file unpacks to."""
    streaming: bool = False
    """Whether a data set of the Hub is read over the network instead of being downloaded."""
    sequence_length: Annotated[int, Field(ge=8)] = 128
    """Tokens of a training sequence at most, special tokens included."""
    isolate_documents: bool = True
    """Whether a sequence ends with its document; otherwise documents follow one another until it is full."""
    cache: str | None = None
    """Folder of the tokenized corpora; `TERCET_CACHE` or `~/.cache/tercet` if left out."""


@dataclass(frozen=True)
class PretrainingRecipe:
    """Everything that a pretraining run depends on, but the machine."""

    model: ModelRecipe
    """Which architecture is trained."""
    corpus: CorpusRecipe
    """Which text is learned from."""
    objective: ObjectiveRecipe
    """What is learned."""
    training: TrainingRecipe
    """How it is optimized."""
    output: str
    """Folder of the run: tokenizer, checkpoints, log and the finished model."""
    tokenizer: TokenizerRecipe = field(default_factory=TokenizerRecipe)
    """What the text is cut into."""

    def __post_init__(self):
        if self.model.path is not None and self.tokenizer.path is None:
            object.__setattr__(self, "tokenizer", replace(self.tokenizer, path=self.model.path))

    @property
    def folder(self) -> Path:
        """The output folder as a path."""
        return named_path(self.output, "output")
