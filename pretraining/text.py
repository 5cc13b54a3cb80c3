"""The text of a run, from what a recipe names to examples: what is learned from, and what is measured on.

open_texts -> documents -> TextReader -> ReadText: examples to learn from, and held-out ones

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
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ..configs.messages import counted
from ..data.cache import cache_folder
from ..data.corpus import TokenizedCorpus, join_corpora
from ..data.documents import EMBEDDED, Documents, FileDocuments, MixedDocuments, parts_of, require_apart
from ..data.files.compressed_files import ending
from ..data.files.reading import TEXT_LINES
from ..data.held_out_documents import PartOfDocuments, warn_of_shared_documents
from ..data.identities import keep_texts, warn_of_copies
from ..data.prepared import PreparedDocuments, manifest_of, open_source
from ..data.steps.examples import Examples, ExampleSource, LeftOut, left_out_of, tell_of_left_out
from ..data.steps.objective import Objective
from ..data.steps.weighting import WeightedSource
from ..data.steps.windows import WindowedSource, windows_of
from ..data.tokenizers.special_tokens import (
    UNKNOWN,
    control_tokens,
    ends_read_as_text,
    tell_of_control_tokens,
    tell_of_counts,
    tell_of_unknown,
)
from ..data.tokenizers.tokenization import TextCounter, text_backend, tokenized_corpus
from ..data.tokenizers.tokenization import tokenize as tokenize_text
from ..training.checkpoints.checkpoint import CHECKPOINTS, latest
from ..training.evaluation import HeldOut
from ..training.run_folder import TEXTS
from ..training.stages import Stage, epochs_of
from .objectives.recipes import BaseObjectiveRecipe, Corpus, ObjectiveContext
from .recipe import CorpusRecipe, texts_of

Split = Literal["train", "validation"]

Texts = Mapping[Split, tuple[Documents, ...]]
"""The documents of each split: one, or for translation the source's and the target's."""


MOST_PLANNED = 2**24
"""Documents of the largest corpus whose epochs are planned as a whole; a larger one is read by windows."""

BLOCK, BLOCKS_OF_WINDOW = 2**12, 64
"""Neighbouring documents that stay together in an order of blocks, and the blocks of a window, about."""


def open_text(corpus: CorpusRecipe, objective: BaseObjectiveRecipe, split: Split) -> tuple[Documents, ...]:
    """Find the documents of a split: one, or for translation the source's and the target's.

    Where the corpus lists several texts, they are `MixedDocuments`.
    """
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
            require_tokens_enough(documents, corpus, objective, split)
        return documents

    def parts(sources: Sequence[Any], column: str) -> list[Documents]:
        documents = [found(source, column) for source in sources]
        return parts_of_split(corpus, split, sources, documents) if is_parted else documents

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
    corpus: CorpusRecipe, split: Split, sources: Sequence[Any], texts: Sequence[Documents]
) -> list[Documents]:
    """Take the part of each training text that a split has; the embedded one has its own held-out part."""
    whole = {at: text for at, text in enumerate(texts) if sources[at] != EMBEDDED}
    if whole and corpus.streaming:
        raise ValueError(
            "corpus.streaming is true, so that no part can be held out: name held-out text with "
            "corpus.validation=..."
        )
    part = partial(PartOfDocuments.of, cache=cache_folder(corpus.cache), texts=[*whole.values()])
    is_held_out = split == "validation"
    return [part(text, is_held_out=is_held_out) if at in whole else text for at, text in enumerate(texts)]


def require_tokens_enough(
    documents: PreparedDocuments, corpus: CorpusRecipe, objective: BaseObjectiveRecipe, split: Split
) -> None:
    """Refuse a corpus that is tokens where its text is needed."""
    if objective.reads_pairs:
        documents.refuse(f"{objective.kind} reads pairs")
    if corpus.streaming and split == "train":
        documents.refuse("corpus.streaming is true, which a prepared corpus does not need")
    if corpus.validation is None:
        documents.refuse("corpus.validation is not given, so that a part of it would be held out")


def places_of(documents: Documents) -> Sequence[Path | str]:
    """List the files of a text; of another than files, its name."""
    whole = documents.whole if isinstance(documents, PartOfDocuments) else documents
    return whole.files if isinstance(whole, FileDocuments) else [whole.name]


def tokenizer_of_text(corpus: CorpusRecipe) -> str | None:
    """Find the folder of the tokenizer by which the training text was prepared, if it was."""
    for source in [text.path for text in texts_of(corpus.train)] or [corpus.train]:
        if manifest_of(source) is not None:
            found = open_source(source, cache=corpus.cache, remote_cache=corpus.remote_cache)
            assert isinstance(found, PreparedDocuments)
            return str(found.tokenizer_folder())
    return None


def open_texts(corpus: CorpusRecipe, objective: BaseObjectiveRecipe) -> Texts:
    return {split: open_text(corpus, objective, split) for split in get_args(Split)}


def identify(texts: Texts) -> dict[str, list[dict[str, Any]]]:
    return {split: documents[0].identify() for split, documents in texts.items()}


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


@dataclass(frozen=True)
class TextReader:
    """Reads documents: a tokenizer cuts them into tokens, an objective into examples."""

    corpus: CorpusRecipe
    """How text is read, and where its tokens are kept."""
    objective: BaseObjectiveRecipe
    """What is learned from it."""
    tokenizer: PreTrainedTokenizerBase
    """Cuts text into tokens."""
    seed: int
    """Seed of the run."""

    @cached_property
    def context(self) -> ObjectiveContext:
        corpus = self.corpus
        return ObjectiveContext(self.tokenizer, corpus.sequence_length, self.seed, corpus.isolate_documents)

    @cached_property
    def control_tokens(self) -> list[str]:
        """The special tokens that are recognized in the text."""
        return control_tokens(self.tokenizer, self.corpus.control_tokens)

    def build_objective(self, config: PreTrainedConfig) -> Objective:
        """Build the objective of a model; its configuration says what a decoder reads first."""
        start_id = getattr(config, "decoder_start_token_id", None)
        return self.objective.build(replace(self.context, decoder_start_id=start_id))

    def tokenize(self, documents: Sequence[Documents]) -> Corpus:
        """Tokenize a split, or find its tokens in the cache; say which control tokens are in it."""
        first, *others = map(self._tokenize_side, documents)
        return (first, *others) if others else first  # pyright: ignore[reportReturnType]

    def _tokenize_side(self, side: Documents) -> TokenizedCorpus:
        if parts := parts_of(side):
            return join_corpora([self._tokenize_side(part) for part in parts.values()])
        names = self.control_tokens
        corpus = tokenized_corpus(side, self.tokenizer, self.corpus.cache, names)
        if isinstance(side, PreparedDocuments):  # counted while it was prepared
            tell_of_counts(side.manifest.control_tokens, side.name)
        else:
            tell_of_control_tokens(corpus.tokens, self.tokenizer, names, side.name)
        tell_of_whole_files(side, corpus)
        return corpus

    def training_source(self, documents: Sequence[Documents]) -> Callable[..., ExampleSource]:
        """Tokenize the training text once; return what makes examples of it.

        It takes the sequence length, and for several texts the shares of the tokens of each, by name, if they
        are not the corpus's. A stream is tokenized while it is read.
        """
        texts, is_stream = texts_of(self.corpus.train), self.corpus.streaming
        if texts or is_stream:
            require_dynamic_masks(self.objective, "a stream" if is_stream else "texts with shares")
        if texts:
            sides = [parts_of(side) for side in documents]
            corpora = {name: self.tokenize([side[name] for side in sides]) for name in sides[0]}
            return partial(self.weighted_examples, corpora, {str(text.name): text.share for text in texts})
        if is_stream:
            return self._streamed(*documents)
        return partial(self.examples, self.tokenize(documents))

    def _streamed(self, documents: Documents, *others: Documents) -> Callable[[int], ExampleSource]:
        from ..data.streaming import StreamedExamples, TokenizedStream

        if others:
            raise ValueError(
                "corpus.streaming is true, but pairs cannot be streamed: set corpus.streaming=false"
            )
        names, tokenizer = self.control_tokens, self.tokenizer
        counter = TextCounter(text_backend(tokenizer, names), ends_read_as_text(tokenizer, names))
        stream = TokenizedStream(
            documents, partial(tokenize_text, tokenizer=tokenizer, control_tokens=names), count=counter
        )
        is_told = False

        def make_examples(length: int, corpus: TokenizedCorpus, window: int) -> Examples:
            nonlocal is_told
            if not is_told:  # here: data workers are forked later
                tell_of_control_tokens(corpus.tokens, tokenizer, names, f"{documents.name}, a window of it")
                is_told = True
            return self.examples(corpus, length).epoch(window)

        return lambda length: StreamedExamples(stream, partial(make_examples, length))

    def weighted_examples(
        self,
        corpora: Mapping[str, Corpus],
        shares: Mapping[str, float],
        sequence_length: int,
        other_shares: Mapping[str, float] | None = None,
    ) -> WeightedSource:
        """Make the examples of several texts, each with its share of the tokens."""
        sources = {}
        for name, corpus in corpora.items():
            try:
                sources[name] = self.examples(corpus, sequence_length)
            except ValueError as error:
                raise ValueError(f"corpus.train, {name}: {error}") from error
        return WeightedSource(sources, shares if other_shares is None else other_shares, self.seed)

    def examples(self, corpus: Corpus, sequence_length: int) -> ExampleSource:
        """Make examples of a tokenized corpus, of at most so many tokens each.

        Of a corpus of more than `MOST_PLANNED` documents, an epoch is a window.
        """
        objective, context = self.objective, replace(self.context, sequence_length=sequence_length)
        if isinstance(corpus, tuple) or corpus.num_documents <= MOST_PLANNED:
            return objective.examples(corpus, context)
        of_windows = f"a text of {corpus.num_documents:,} documents, which is read by windows"
        require_dynamic_masks(objective, of_windows)
        num_blocks = corpus.num_documents // BLOCK  # the last one has up to twice as many documents

        def make_block(block: int, lap: int) -> Examples:
            first, is_last = block * BLOCK, block == num_blocks - 1
            documents = corpus.part(first, corpus.num_documents if is_last else first + BLOCK)
            return objective.examples(documents, context).epoch(lap)

        return WindowedSource(make_block, num_blocks, BLOCKS_OF_WINDOW, self.seed)

    def held_out(self, documents: Sequence[Documents]) -> HeldOut:
        """Tokenize the validation documents, and say how models are measured on them."""
        sides, objective = [parts_of(side) for side in documents], self.objective
        parts = {name: self.held_out([side[name] for side in sides]) for name in sides[0]}
        corpus = self.tokenize(documents)
        try:
            source = objective.examples(corpus, replace(self.context, is_held_out=True))
        except ValueError as error:
            raise ValueError(f"corpus.validation: {error}") from error
        corpora = [corpus] if isinstance(corpus, TokenizedCorpus) else corpus
        is_whole = not any(each.tally.dropped for each in corpora)
        held_out = HeldOut(
            source,
            objective.count_bytes(corpus, source) if is_whole else {},
            left_out=left_out_of(source.epoch(0)),
            about={UNKNOWN: objective.share_of_unknown(corpora, self.tokenizer)},
            parts=parts,
        )
        measure = objective.measure(source, documents, self.context, self.control_tokens)
        return held_out if measure is None else replace(held_out, measure=measure, tell=measure.tell)


@dataclass(frozen=True)
class ReadText:
    """The text of a run as examples: what is learned from, and what is measured on."""

    texts: Texts
    """The documents of both splits."""
    reader: TextReader
    """Has read them."""
    make_source: Callable[..., ExampleSource]
    """Makes examples to learn from, as `TextReader.training_source` returns it."""
    source: ExampleSource
    """Those of the recipe's sequence length."""
    held_out: HeldOut
    """What models are measured on."""

    @classmethod
    def of(cls, texts: Texts, reader: TextReader) -> Self:
        """Tokenize both splits; warn of documents that they share."""
        corpus = reader.corpus
        if not (corpus.streaming or corpus.validation is None):
            (learned, *_), (measured, *_) = texts["train"], texts["validation"]
            warn_of_shared_documents(learned, measured, cache_folder(corpus.cache))
        make_source = reader.training_source(texts["train"])
        source = make_source(corpus.sequence_length)
        return cls(texts, reader, make_source, source, reader.held_out(texts["validation"]))

    @cached_property
    def left_out(self) -> Sequence[LeftOut]:
        """What of the training text is in no example; of a text of several windows, of the first."""
        return left_out_of(self.source.epoch(0))

    def tell(self, folder: Path) -> None:
        """Report what of the text a model does not get to see, and note in the run's folder what is read."""
        tell_of_unknown(self.held_out.about[UNKNOWN], "the held-out text")
        self.held_out.tell()
        tell_of_left_out(self.left_out, "the training text")
        tell_of_left_out(self.held_out.left_out, "the held-out text")
        goes_on = latest(folder / CHECKPOINTS) is not None
        identities = identify(self.texts)
        warn_of_copies("corpus.train", identities["train"])
        keep_texts(folder / TEXTS, identities, goes_on=goes_on)


def require_dynamic_masks(objective: BaseObjectiveRecipe, text: str) -> None:
    """Raise a `ValueError` if masks are static: they go by an example's place, which changes in this text."""
    parts: Any = getattr(objective, "objectives", [objective])
    if any(getattr(part, "masking", None) == "static" for part in parts):
        raise ValueError(
            f"objective.masking is static, but corpus.train is {text}, whose examples have other places in "
            "each epoch, and would have other masks: set objective.masking=dynamic, or list files alone"
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
    """Make sure that no text is read more often than its recipe allows."""
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
