"""The text of a run, from what a recipe names to examples: what is learned from, and what is measured on.

open_texts -> documents -> tokenize -> corpus -> training_source, build_held_out -> examples

A recipe names text to learn from (`train`) and text to measure on (`validation`). For translation, each is
two: the documents to read and the documents to write, as many.

Perplexities of different tokenizers cannot be compared, bits per byte can: where every token of a text is a
target (causal language modeling, translation), the bytes of that text are counted. Translations are also
written out and compared with what people wrote.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ..configs.messages import counted
from ..data.cache import cache_folder
from ..data.chunks import ParallelPairs
from ..data.corpus import TokenizedCorpus, join_corpora
from ..data.documents import EMBEDDED, Documents, FileDocuments, require_apart
from ..data.files.compressed_files import ending
from ..data.files.reading import TEXT_LINES
from ..data.held_out_documents import PartOfDocuments
from ..data.mixed_documents import MixedDocuments, parts_of
from ..data.prepared import PreparedDocuments, manifest_of, open_source
from ..data.steps.examples import Examples, ExampleSource, LeftOut, left_out_of, tell_of_left_out
from ..data.steps.weighting import WeightedSource
from ..data.steps.windows import WindowedSource, windows_of
from ..data.texts_read import keep_texts, warn_of_copies
from ..data.tokenizers.special_tokens import (
    UNKNOWN,
    control_tokens,
    ends_read_as_text,
    tell_of_control_tokens,
    tell_of_counts,
    tell_of_unknown,
    tell_of_unwritable,
)
from ..data.tokenizers.tokenization import TextCounter, text_backend, tokenized_corpus
from ..data.tokenizers.tokenization import tokenize as tokenize_text
from ..modeling import NeuralConfig
from ..modeling.saved.checkpoint import Checkpoint, Opener
from ..training.checkpoints.checkpoint import CHECKPOINTS, latest
from ..training.checkpoints.revisions import BABYLM
from ..training.evaluation import HeldOut
from ..training.run_folder import TEXTS
from ..training.stages import Stage, epochs_of
from .objectives.base_recipe import Corpus, ObjectiveContext
from .recipe import CorpusRecipe, PretrainingRecipe, texts_of
from .translation_scores import TranslationMeasure

Split = Literal["train", "validation"]

Texts = Mapping[Split, tuple[Documents, ...]]
"""The documents of each split: one, or for translation the source's and the target's."""


MOST_PLANNED = 2**24
"""Documents of the largest corpus whose epochs are planned as a whole; a larger one is read by windows."""

BLOCK, BLOCKS_OF_WINDOW = 2**12, 64
"""Neighbouring documents that stay together in an order of blocks, and the blocks of a window, about."""


def open_text(recipe: PretrainingRecipe, split: Split) -> tuple[Documents, ...]:
    """Find the documents of a split: one, or for translation the source's and the target's.

    Where the recipe lists several texts, they are `MixedDocuments`.

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
    is_parted = corpus.validation is None
    named = corpus.train if split == "train" or is_parted else corpus.validation

    def found(source: Any, column: str) -> Documents:
        documents = open_source(
            source,
            column=column,
            required=columns,
            split=split,
            streaming=corpus.streaming,
            skip_bad_records=corpus.skip_bad_records,
            largest_record=corpus.largest_record,
            cache=corpus.cache,
            remote_cache=corpus.remote_cache,
        )
        if isinstance(documents, PreparedDocuments):
            require_tokens_enough(documents, recipe, split)
        return documents

    def parts(sources: Sequence[Any], column: str) -> list[Documents]:
        documents = [found(source, column) for source in sources]
        return parts_of_split(recipe, split, sources, documents) if is_parted else documents

    texts = texts_of(named)
    if split == "validation":  # whose masks go by places: in whatever order a recipe lists them
        texts = sorted(texts, key=lambda text: str(text.name))
    if texts:
        names, sources = [str(text.name) for text in texts], [text.path for text in texts]
        sides = [dict(zip(names, parts(sources, column), strict=True)) for column in columns]
        if split == "train":
            require_apart("corpus.train", [(name, places_of(each)) for name, each in sides[0].items()])
        return tuple(map(MixedDocuments.of, sides))
    return tuple(parts([named], column)[0] for column in columns)


def parts_of_split(
    recipe: PretrainingRecipe, split: Split, sources: Sequence[Any], texts: Sequence[Documents]
) -> list[Documents]:
    """Take the part of each training text that a split has; the embedded one has a held-out part of its own.

    Raises:
        ValueError: The texts are streamed.
    """
    whole = {at: text for at, text in enumerate(texts) if sources[at] != EMBEDDED}
    if whole and recipe.corpus.streaming:
        raise ValueError(
            "corpus.streaming is true, so that no part can be held out: name held-out text with "
            "corpus.validation=..."
        )
    part = partial(PartOfDocuments.of, cache=cache_folder(recipe.corpus.cache), texts=[*whole.values()])
    is_held_out = split == "validation"
    return [part(text, is_held_out=is_held_out) if at in whole else text for at, text in enumerate(texts)]


def require_tokens_enough(documents: PreparedDocuments, recipe: PretrainingRecipe, split: Split) -> None:
    """Refuse a corpus that is tokens where a recipe needs its text."""
    corpus, objective = recipe.corpus, recipe.objective
    if objective.reads_pairs:
        documents.refuse(f"{objective.kind} reads pairs")
    if recipe.training.revisions == BABYLM and split == "train":
        documents.refuse("training.revisions is babylm, which counts words; a number of steps does not")
    if corpus.streaming and split == "train":
        documents.refuse("corpus.streaming is true, which a prepared corpus does not need")
    if corpus.validation is None:
        documents.refuse("corpus.validation is not given, so that a part of it would be held out")


def places_of(documents: Documents) -> Sequence[Path | str]:
    """List the files of a text; of another than files, its name."""
    whole = documents.whole if isinstance(documents, PartOfDocuments) else documents
    return whole.files if isinstance(whole, FileDocuments) else [whole.name]


def named_tokenizer(recipe: PretrainingRecipe) -> str | None:
    """Name the recipe's tokenizer: by its path, else that of a prepared training text; `None` to train one.

    Raises:
        ValueError: A manifest cannot be read.
        FileNotFoundError: One is not there.
    """
    if recipe.tokenizer.path is not None:
        return recipe.tokenizer.path
    train, corpus = recipe.corpus.train, recipe.corpus
    for source in [text.path for text in texts_of(train)] or [train]:
        if manifest_of(source) is not None:
            found = open_source(source, cache=corpus.cache, remote_cache=corpus.remote_cache)
            assert isinstance(found, PreparedDocuments)
            return str(found.tokenizer_folder())
    return None


def open_texts(recipe: PretrainingRecipe) -> Texts:
    """Find the documents of both splits.

    Raises:
        FileNotFoundError: A named file or folder does not exist.
        ValueError: As in `open_text`.
    """
    return {split: open_text(recipe, split) for split in get_args(Split)}


@dataclass(frozen=True)
class Inputs:
    """What a recipe names, found and checked; no text has been read."""

    config: NeuralConfig
    """Of the model, before the tokenizer has set the size of the vocabulary."""
    texts: Texts
    """The documents of both splits."""
    tokenizer: PreTrainedTokenizerBase | None
    """The existing one, if the recipe names one, or a corpus was prepared by one."""
    open_model: Opener = Checkpoint.open
    """Finds the model that goes on by its name."""


@dataclass(frozen=True)
class ReadText:
    """The text that a run reads."""

    texts: Texts
    """The documents of both splits."""
    held_out: HeldOut
    """What the run is measured on."""
    left_out: Sequence[LeftOut]
    """What of the training text is in no example; of a text of several windows, of the first."""

    def tell(self, folder: Path) -> None:
        """Report what of the text a model does not get to see, and note in the run's folder what is read."""
        tell_of_unknown(self.held_out.about[UNKNOWN], "the held-out text")
        if isinstance(measure := self.held_out.measure, TranslationMeasure):
            tell_of_unwritable(measure.references, measure.tokenizer, "the held-out text")
            measure.tell_of_ceiling()
        tell_of_left_out(self.left_out, "the training text")
        tell_of_left_out(self.held_out.left_out, "the held-out text")
        goes_on = latest(folder / CHECKPOINTS) is not None
        identities = identify(self.texts)
        warn_of_copies("corpus.train", identities["train"])
        keep_texts(folder / TEXTS, identities, goes_on=goes_on)


def identify(texts: Texts) -> dict[str, list[dict[str, Any]]]:
    """Name the texts of both splits with sizes and hashes."""
    return {split: documents[0].identify() for split, documents in texts.items()}


def tokenize(
    recipe: PretrainingRecipe, documents: Sequence[Documents], tokenizer: PreTrainedTokenizerBase
) -> Corpus:
    """Tokenize the documents of a split, or find them in the cache; say which control tokens are in them."""
    names = control_tokens_of(recipe, tokenizer)

    def corpus_of(side: Documents) -> TokenizedCorpus:
        if parts := parts_of(side):
            return join_corpora([corpus_of(part) for part in parts.values()])
        corpus = tokenized_corpus(side, tokenizer, recipe.corpus.cache, names)
        if isinstance(side, PreparedDocuments):  # counted while it was prepared
            tell_of_counts(side.manifest.control_tokens, side.name)
        else:
            tell_of_control_tokens(corpus.tokens, tokenizer, names, side.name)
        tell_of_whole_files(side, corpus)
        return corpus

    first, *others = map(corpus_of, documents)
    return (first, *others) if others else first  # pyright: ignore[reportReturnType]


def tell_of_whole_files(documents: Documents, corpus: TokenizedCorpus) -> None:
    """Say on the screen if files in which blank lines separate documents have none, as few are meant to."""
    files = documents.files if isinstance(documents, FileDocuments) else ()
    if corpus.num_documents <= len(files) and any(ending(file) in TEXT_LINES for file in files):
        print(
            f"{documents.name}: {counted(corpus.num_documents, 'document')}, {len(corpus.tokens):,} tokens "
            "in all (blank lines separate documents)",
            file=sys.stderr,
            flush=True,
        )


def control_tokens_of(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """List the special tokens that are recognized in a recipe's text.

    Raises:
        ValueError: The recipe names one that the tokenizer lacks or that may not stand in a text.
    """
    return control_tokens(tokenizer, recipe.corpus.control_tokens)


def training_source(
    recipe: PretrainingRecipe, documents: Sequence[Documents], tokenizer: PreTrainedTokenizerBase
) -> Callable[..., ExampleSource]:
    """Tokenize the training text once; return what makes examples of it.

    It takes the sequence length, and for several texts the shares of the tokens of each, by name, if they are
    not the recipe's. A stream is tokenized while it is read.

    Raises:
        ValueError: The text cannot be read or is too short, pairs are to be streamed, or masks to be static
            where examples have other places in each epoch.
    """
    texts = texts_of(recipe.corpus.train)
    if texts or recipe.corpus.streaming:
        require_dynamic_masks(recipe, "a stream" if recipe.corpus.streaming else "texts with shares")
    if texts:
        sides = [parts_of(side) for side in documents]
        corpora = {name: tokenize(recipe, [side[name] for side in sides], tokenizer) for name in sides[0]}
        return partial(
            weighted_examples_of, recipe, corpora, tokenizer, {str(text.name): text.share for text in texts}
        )
    if not recipe.corpus.streaming:
        corpus = tokenize(recipe, documents, tokenizer)
        return partial(examples_of, recipe, corpus, tokenizer)
    from ..data.streaming import StreamedExamples, TokenizedStream

    read, *others = documents
    if others:
        raise ValueError("corpus.streaming is true, but pairs cannot be streamed: set corpus.streaming=false")
    names = control_tokens_of(recipe, tokenizer)
    counter = TextCounter(text_backend(tokenizer, names), ends_read_as_text(tokenizer, names))
    stream = TokenizedStream(
        read, partial(tokenize_text, tokenizer=tokenizer, control_tokens=names), count=counter
    )
    is_told = False

    def make_examples(length: int, corpus: TokenizedCorpus, window: int) -> Examples:
        nonlocal is_told
        if not is_told:  # here: data workers are forked later
            tell_of_control_tokens(corpus.tokens, tokenizer, names, f"{read.name}, a window of it")
            is_told = True
        return examples_of(recipe, corpus, tokenizer, length).epoch(window)

    return lambda length: StreamedExamples(stream, partial(make_examples, length))


def build_held_out(
    recipe: PretrainingRecipe, documents: Sequence[Documents], tokenizer: PreTrainedTokenizerBase
) -> HeldOut:
    """Tokenize the validation documents of a recipe, and say how models are measured on them.

    Raises:
        ValueError: The text cannot be read or is too short.
    """
    sides = [parts_of(side) for side in documents]
    parts = {name: build_held_out(recipe, [side[name] for side in sides], tokenizer) for name in sides[0]}
    corpus = tokenize(recipe, documents, tokenizer)
    try:
        context = replace(context_of(recipe, tokenizer), is_held_out=True)
        source = recipe.objective.examples(corpus, context)
    except ValueError as error:
        raise ValueError(f"corpus.validation: {error}") from error
    corpora = [corpus] if isinstance(corpus, TokenizedCorpus) else corpus
    about = {UNKNOWN: recipe.objective.share_of_unknown(corpora, tokenizer)}
    is_whole = not any(each.tally.dropped for each in corpora)
    num_bytes = recipe.objective.count_bytes(corpus, source) if is_whole else {}
    held_out = HeldOut(source, num_bytes, left_out=left_out_of(source.epoch(0)), about=about, parts=parts)
    if isinstance(source, ParallelPairs):
        measure = TranslationMeasure.of(
            source,
            documents,
            tokenizer,
            recipe.corpus.sequence_length,
            control_tokens_of(recipe, tokenizer),
        )
        return replace(held_out, measure=measure)
    return held_out


def examples_of(
    recipe: PretrainingRecipe, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, sequence_length: int
) -> ExampleSource:
    """Make the examples of a recipe's objective from a tokenized corpus, of at most so many tokens each.

    Of a corpus of more than `MOST_PLANNED` documents, an epoch is a window.
    """
    context = replace(context_of(recipe, tokenizer), sequence_length=sequence_length)
    if isinstance(corpus, tuple) or corpus.num_documents <= MOST_PLANNED:
        return recipe.objective.examples(corpus, context)
    require_dynamic_masks(recipe, f"a text of {corpus.num_documents:,} documents, which is read by windows")
    num_blocks = corpus.num_documents // BLOCK  # the last one has up to twice as many documents

    def make_block(block: int, lap: int) -> Examples:
        first, is_last = block * BLOCK, block == num_blocks - 1
        documents = corpus.part(first, corpus.num_documents if is_last else first + BLOCK)
        return recipe.objective.examples(documents, context).epoch(lap)

    return WindowedSource(make_block, num_blocks, BLOCKS_OF_WINDOW, recipe.training.seed)


def require_dynamic_masks(recipe: PretrainingRecipe, text: str) -> None:
    """Raise a `ValueError` if masks are static: they go by an example's place, which changes in this text."""
    parts: Any = getattr(recipe.objective, "objectives", [recipe.objective])
    if any(getattr(part, "masking", None) == "static" for part in parts):
        raise ValueError(
            f"objective.masking is static, but corpus.train is {text}, whose examples have other places in "
            "each epoch, and would have other masks: set objective.masking=dynamic, or list files alone"
        )


def weighted_examples_of(
    recipe: PretrainingRecipe,
    corpora: Mapping[str, Corpus],
    tokenizer: PreTrainedTokenizerBase,
    shares: Mapping[str, float],
    sequence_length: int,
    other_shares: Mapping[str, float] | None = None,
) -> WeightedSource:
    """Make the examples of several texts, each with its share of the tokens."""
    sources = {}
    for name, corpus in corpora.items():
        try:
            sources[name] = examples_of(recipe, corpus, tokenizer, sequence_length)
        except ValueError as error:
            raise ValueError(f"corpus.train, {name}: {error}") from error
    return WeightedSource(sources, shares if other_shares is None else other_shares, recipe.training.seed)


def context_of(
    recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig | None = None
) -> ObjectiveContext:
    """Return what a recipe's objective is built in; a configuration says what a decoder reads first."""
    return ObjectiveContext(
        tokenizer,
        recipe.corpus.sequence_length,
        recipe.training.seed,
        recipe.corpus.isolate_documents,
        getattr(config, "decoder_start_token_id", None),
    )


def passes_of(stages: Sequence[Stage], num_steps: int) -> dict[str, float]:
    """Compute how often a run of so many steps reads each of its texts; nothing if it reads one.

    epochs of a stage  *  passes of an epoch  =  how often the stage reads a text, or a window of a large one
    """
    passes: dict[str, float] = defaultdict(float)
    for stage, epochs in zip(stages, epochs_of(stages, num_steps), strict=True):
        if isinstance(source := stage.steps.source, WeightedSource):
            for name, number in source.passes.items():
                passes[name] += epochs * number / windows_of(source.sources[name])
    return passes


def require_enough_text(corpus: CorpusRecipe, passes: Mapping[str, float]) -> None:
    """Make sure that no text is read more often than its recipe allows.

    Raises:
        ValueError: One is.
    """
    for text in texts_of(corpus.train):
        if text.epochs is not None and (found := passes[text.name]) > text.epochs:
            raise ValueError(
                f"corpus.train: {text.name} would be read {found:.3g} times, and its epochs allow for "
                f"{text.epochs:g}: lower its share or training.steps, raise its epochs, or add text"
            )


def tell_shares(stages: Sequence[Stage], num_steps: int) -> None:
    """Show each text on the screen: its share of the tokens, stage by stage, and how often it is read."""
    for name, number in passes_of(stages, num_steps).items():
        shares = dict.fromkeys(
            f"{source.shares[name]:.3g}"
            for stage in stages
            if isinstance(source := stage.steps.source, WeightedSource)
        )
        told = ", then ".join(shares)
        print(f"text {name}: {told} of the tokens, read {number:.3g} times", file=sys.stderr, flush=True)
