"""The recipe of a pretraining run, with a part for each component of the run.

model      architecture                     tokenizer    an existing tokenizer, or how to train one
corpus     text and sequence lengths        objective    the training objective (`objectives/recipes.py`)
training   optimization (`training/recipe.py`)           output       the folder to write
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ..objectives.mixture import ObjectiveRecipe
from ..text.paths import named_path
from ..training.recipe import TrainingRecipe

Source = str | list[str]
"""A file, a folder, a list of them, a data set's id on the Hub, or `documentation`: the embedded corpus."""


@dataclass(frozen=True)
class ModelRecipe:
    """The architecture to train from random weights, or a model to continue training."""

    preset: str | None = None
    """Name of a model preset; `tercet recipes` lists them."""
    path: str | None = None
    """Folder or Hub id of a Tercet model to continue training, with its tokenizer, instead of a preset. For a
    tokenizer with more tokens (`tokenizer.path`), its vocabulary grows: new tokens begin with the mean of
    the old ones."""
    grow_from: str | None = None
    """Folder or Hub id of a smaller Tercet model: the preset's model begins with its function, tokenizer and
    vocabulary."""
    grow_noise: Annotated[float, Field(ge=0)] = 0.0
    """Noise that parts the copies in a wider model, relative to the standard deviation of weights. It adds
    up to zero, so that the function stays. Without it, and without dropout, copies stay equal."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Fields of the model's configuration that override the preset's. The vocabulary size and the ids of
    special tokens are set by the tokenizer."""


@dataclass(frozen=True)
class TokenizerRecipe:
    """An existing tokenizer, or one that is trained on the training corpus."""

    path: str | None = None
    """Folder or Hub id of an existing tokenizer; the other fields are then ignored. One without a pad token
    pads with its eos token. Beside the model, it puts around a text what the objective does: a decoder's does
    not end it."""
    kind: Literal["wordpiece", "byte_bpe", "unigram", "characters", "words"] = "wordpiece"
    """The tokenization algorithm."""
    vocab_size: Annotated[int, Field(ge=8, le=2**22)] = 8192
    """Maximum size of the vocabulary, including special tokens."""
    lowercase: bool = False
    """Whether text is lower-cased."""


@dataclass(frozen=True)
class CorpusRecipe:
    """The training and validation text."""

    train: Source
    """Training text."""
    validation: Source
    """Held-out text, used for evaluation only."""
    text_column: str = "text"
    """Column of the text, if rows have columns."""
    source_column: str | None = None
    """Column of a pair's source, for translation."""
    target_column: str | None = None
    """Column of a pair's target, for translation."""
    skip_bad_records: bool = False
    """Whether to skip, count and report invalid records (broken lines, wrong encodings, missing columns).
    Otherwise the first one is an error that names its position."""
    largest_record: Annotated[int, Field(ge=1)] = 2**28
    """Maximum number of characters in a record (a document, a row, a line); longer records are invalid. This
    limits the memory for a single record of a compressed file."""
    streaming: bool = False
    """Whether the training text is streamed, from files or from a data set of the Hub, and tokenized on the
    fly, instead of being downloaded, tokenized and cached as a whole."""
    sequence_length: Annotated[int, Field(ge=8)] = 128
    """Maximum length of a training sequence in tokens, including special tokens."""
    isolate_documents: bool = True
    """Whether a sequence contains one document only; otherwise documents are concatenated until it is
    full."""
    control_tokens: Literal["own"] | tuple[str, ...] = "own"
    """The tokenizer's special tokens that are recognized in the text: its `own` ones, those that have no role
    (such as `<|title|>`; never `[MASK]`), or a list of names. Others are read as the text that they are."""
    cache: str | None = None
    """Folder of the tokenized corpora; by default, `TERCET_CACHE` or `~/.cache/tercet`."""


@dataclass(frozen=True)
class PretrainingRecipe:
    """All settings of a pretraining run."""

    model: ModelRecipe
    """The architecture."""
    corpus: CorpusRecipe
    """The text."""
    objective: ObjectiveRecipe
    """The training objective."""
    training: TrainingRecipe
    """Optimization, evaluation and checkpoints."""
    output: str
    """Folder of the run: tokenizer, checkpoints, log and the trained model."""
    tokenizer: TokenizerRecipe = field(default_factory=TokenizerRecipe)
    """The tokenizer."""

    def __post_init__(self):
        source = self.model.grow_from if self.model.path is None else self.model.path
        if source is not None and self.tokenizer.path is None:
            object.__setattr__(self, "tokenizer", replace(self.tokenizer, path=source))

    @property
    def folder(self) -> Path:
        """The output folder as a path."""
        return named_path(self.output, "output")
