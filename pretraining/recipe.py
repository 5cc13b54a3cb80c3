"""The recipe of a pretraining run, with a part for each component of the run.

model      architecture                     tokenizer    an existing tokenizer, or how to train one
corpus     text and sequence lengths        objective    the objective (`pretraining/objectives/recipes.py`)
training   optimization (`training/recipe.py`)           output       the folder to write
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ..configs.named_files import named_path
from ..training.recipe import TrainingRecipe
from .objectives.recipes import ObjectiveRecipe

Source = str | list[str]
"""A file, a folder, a list of them, a data set's id on the Hub, or `documentation`: the embedded corpus."""


@dataclass(frozen=True)
class TextRecipe:
    """A text among several of a corpus."""

    path: Source
    """Where it is."""
    name: str | None = None
    """Its name in logs and scores; by default, that of its file or folder."""

    def __post_init__(self):
        if self.name is None:
            first = self.path if isinstance(self.path, str) else " ".join(self.path)
            object.__setattr__(self, "name", first.rstrip("/").rpartition("/")[2].partition(".")[0] or first)


@dataclass(frozen=True)
class WeightedTextRecipe(TextRecipe):
    """A text with a share of the training tokens."""

    share: Annotated[float, Field(ge=0)] = 1.0
    """Its share of the tokens of every step, relative to those of the other texts."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    """How often the run may read it at most; a run that would read it more often is refused."""


ONE_KIND = Field(
    json_schema_extra={
        "errorMessage": "some texts have keys, such as share, and others none: write {path: NAME} for each "
        "NAME, or list paths alone"
    }
)
"""Says what is wrong with a list of both."""


@dataclass(frozen=True)
class ModelRecipe:
    """The architecture to train from random weights, or a model to continue training."""

    preset: str | None = None
    """Name of a model preset; `tercet recipes` lists them."""
    path: str | None = None
    """Folder or Hub id of a model to continue training, with its tokenizer: a Tercet model, or a stock one
    (BERT, RoBERTa, ModernBERT, GPT-2, Llama, Qwen, BART, T5, ...), which is imported into the cache. It
    replaces a preset and that preset's `overrides`. With another tokenizer (`tokenizer.path`,
    `tokenizer.add`), tokens keep their vectors, and new ones begin with the mean of the pieces that they were
    before."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Fields of the model's configuration that override the preset's. The vocabulary size and the ids of
    special tokens are set by the tokenizer."""

    @property
    def origin(self) -> str | None:
        return self.path or self.preset

    @property
    def applied_overrides(self) -> dict[str, Any]:
        """The overrides of what the run begins with; those of a preset go with it if a model replaces it."""
        is_replaced = self.path is not None and self.preset is not None
        return {} if is_replaced else self.overrides


@dataclass(frozen=True)
class TokenizerRecipe:
    """An existing tokenizer, or one that is trained on the training corpus."""

    path: str | None = None
    """Folder or Hub id of an existing tokenizer; `kind`, `vocab_size` and `lowercase` are then ignored. One
    without a pad token pads with its eos token. Beside the model, it puts around a text what the objective
    does (a decoder's does not end it), and cuts texts to the model's positions."""
    kind: Literal["wordpiece", "byte_bpe", "unigram", "characters", "words"] = "wordpiece"
    """The tokenization algorithm."""
    vocab_size: Annotated[int, Field(ge=8, le=2**22)] = 8192
    """Maximum size of the vocabulary, including special tokens."""
    lowercase: bool = False
    """Whether text is lower-cased."""
    add: Source | None = None
    """Terms that become one token each: a text file with one on each line, or a list."""
    add_learned: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Number of words of the training text that become one token each: those that save the most tokens."""

    @staticmethod
    def resolve(value: Any) -> Any:
        """Return where a value of this part lies: listed terms lie nowhere."""
        return [] if isinstance(value, list) else value

    @property
    def is_extended(self) -> bool:
        return self.add is not None or self.add_learned > 0


@dataclass(frozen=True)
class CorpusRecipe:
    """The training and validation text."""

    train: Annotated[Source | tuple[WeightedTextRecipe, ...], ONE_KIND]
    """Training text: one, or several with their shares of the tokens (`[{path: wiki, share: 3}, {path:
    forum}]`). A list of files without shares is one text. A corpus of `tercet prepare` is named by its folder
    or its manifest, which may lie elsewhere (`s3://bucket/corpus/manifest.json`)."""
    validation: Annotated[Source | tuple[TextRecipe, ...] | None, ONE_KIND] = None
    """Held-out text, used for evaluation only: one, or several (`[{path: wiki}, {path: forum}]`), which are
    scored together and one by one. By default, a twentieth of the documents of each training text, at most
    1,000, which are then not learned from; of the embedded corpus, its held-out part."""
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
    remote_cache: Annotated[int, Field(ge=2**20)] = 2**36
    """Maximum number of bytes that copies of a prepared corpus in an object store take in the cache. A run
    reads examples in random order: let the whole corpus fit if it can."""

    def __post_init__(self):
        for split in ("train", "validation"):
            names = [text.name for text in texts_of(getattr(self, split))]
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(
                    f"{split} has several texts of the name {min(map(str, twice))}: give them others"
                )
        if self.streaming and texts_of(self.train):
            raise ValueError(
                "streaming is true, but texts with shares cannot be streamed: set streaming=false"
            )

    @staticmethod
    def resolve(value: Any) -> Any:
        """Return where a value of this part lies: of several texts, the paths of all."""
        return paths if (paths := [path for text in texts_of(value) for path in listed(text.path)]) else value


def texts_of(source: Any) -> tuple[Any, ...]:
    """List the texts of a corpus that consists of several; none if it is one text."""
    return source if isinstance(source, tuple) else ()


def in_words(source: Any) -> str:
    """Name a text, or several with their shares.

    >>> in_words(["a.txt", "b.txt"]), in_words((WeightedTextRecipe("wiki", share=3), TextRecipe("held.txt")))
    ('a.txt, b.txt', 'wiki (share 3), held')
    """
    if not (texts := texts_of(source)):
        return ", ".join(listed(source))
    shares = ((text.name, getattr(text, "share", None)) for text in texts)
    return ", ".join(f"{name}" if share is None else f"{name} (share {share:g})" for name, share in shares)


def listed(source: Source) -> list[str]:
    return [source] if isinstance(source, str) else source


def require_stages_of(corpus: CorpusRecipe, training: TrainingRecipe) -> None:
    """Raise a `ValueError` if stages want longer sequences than the corpus has, or shares of other texts."""
    names, longest = [text.name for text in texts_of(corpus.train)], corpus.sequence_length
    for stage in training.stages:
        if (length := stage.sequence_length or longest) > longest:
            raise ValueError(
                f"training.stages: sequence_length = {length} exceeds corpus.sequence_length = {longest}: "
                "lower the stage's sequence_length, or raise corpus.sequence_length"
            )
        if unknown := [name for name in stage.shares or () if name not in names]:
            known = f"the texts of corpus.train are {', '.join(map(str, names))}: use their names"
            raise ValueError(
                f"training.stages: shares name {', '.join(unknown)}, but "
                + (known if names else "corpus.train is one text: list several, or leave shares out")
            )


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
        require_stages_of(self.corpus, self.training)
        if self.training.revisions == "babylm" and (self.corpus.streaming or texts_of(self.corpus.train)):
            raise ValueError(
                "training.revisions is babylm, which counts the words of one text that is read as a whole: "
                + ("set corpus.streaming=false" if self.corpus.streaming else "list files without shares")
                + ", or set training.revisions to a number of steps"
            )
        if self.model.path is not None and self.tokenizer.path is None:
            object.__setattr__(self, "tokenizer", replace(self.tokenizer, path=self.model.path))

    @property
    def folder(self) -> Path:
        return named_path(self.output, "output")

    def in_lines(self) -> list[str]:
        """Describe the run by what most runs differ in."""
        model, tokenizer, corpus, training = self.model, self.tokenizer, self.corpus, self.training
        changed = ", ".join(f"{name} {value}" for name, value in model.applied_overrides.items())
        pieces = (
            f"of {tokenizer.path}"
            if tokenizer.path
            else f"{tokenizer.kind}, at most {tokenizer.vocab_size:,} tokens"
        )
        schedule, optimizer = training.schedule, training.optimizer
        held_out = "a part of it" if corpus.validation is None else in_words(corpus.validation)
        return [
            f"model: {model.origin}{f' with {changed}' if changed else ''}",
            f"tokenizer: {pieces}",
            f"text: {in_words(corpus.train)}; held out: {held_out}; at most "
            f"{corpus.sequence_length:,} tokens a sequence",
            f"objective: {self.objective.kind.replace('_', ' ')}",
            f"training: {training.steps:,} steps of {training.tokens_per_step:,} tokens; {optimizer.kind}, "
            f"{schedule.kind} schedule; seed {training.seed}",
        ]
