"""What can be learned from raw text, as a recipe says it: one part of a recipe for each kind of objective.

kind                                               member      reads
masked_language_modeling                           encoder     running text
masked_language_modeling_with_next_sentence        encoder     pairs of sentence runs (documents with several)
causal_language_modeling                           decoder     running text
translation                                        seq2seq     pairs of texts
span_corruption                                    seq2seq     running text
denoising                                          seq2seq     running text
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from transformers import PreTrainedTokenizerBase

from ..training.examples import ExampleSource
from ..training.objective import Objective
from .causal_language_modeling import CausalLanguageModeling
from .chunks import FullSequences, ParallelPairs
from .corpus import TokenizedCorpus
from .denoising import Denoising, spoiled_lengths
from .masked_language_modeling import Corruption, DynamicMasking, MaskedLanguageModeling, StaticMasking
from .next_sentence import MaskedLanguageModelingWithNextSentence, NextSentencePairs
from .span_corruption import SpanCorruption, corrupted_lengths, uncorrupted_length
from .special_tokens import required_token_id
from .teacher_forcing import SpoiledTexts
from .tokenizer import frame_ids
from .translation import Translation

Rate = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Smoothing = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class MaskedLanguageModelingRecipe:
    """Predict hidden tokens (BERT, RoBERTa)."""

    kind: Literal["masked_language_modeling"]
    """Which objective this is."""
    rate: Rate = 0.15
    """Share of the tokens that become targets."""
    masked: Share = 0.8
    """Share of the targets that are replaced by [MASK]."""
    randomized: Share = 0.1
    """Share of the targets that are replaced by a random token; the rest stays as it is."""
    unit: Literal["token", "word"] = "token"
    """What is hidden at once: `word` hides all tokens of a word."""
    masking: Literal["dynamic", "static"] = "dynamic"
    """Whether an example is corrupted anew whenever it is seen, or always alike."""


@dataclass(frozen=True)
class NextSentenceRecipe:
    """Predict hidden tokens, and whether the second part of a pair follows the first (BERT)."""

    kind: Literal["masked_language_modeling_with_next_sentence"]
    """Which objective this is."""
    rate: Rate = 0.15
    """Share of the tokens that become targets."""
    masked: Share = 0.8
    """Share of the targets that are replaced by [MASK]."""
    randomized: Share = 0.1
    """Share of the targets that are replaced by a random token; the rest stays as it is."""
    unit: Literal["token", "word"] = "token"
    """What is hidden at once: `word` hides all tokens of a word."""
    short_rate: Share = 0.1
    """Share of the pairs that aim at a shorter length than the sequence's."""


@dataclass(frozen=True)
class CausalLanguageModelingRecipe:
    """Predict the next token (GPT)."""

    kind: Literal["causal_language_modeling"]
    """Which objective this is."""


@dataclass(frozen=True)
class TranslationRecipe:
    """Write the target text of a pair (Transformer)."""

    kind: Literal["translation"]
    """Which objective this is."""
    label_smoothing: Smoothing = 0.1
    """Probability that is spread over the whole vocabulary instead of resting on the right token."""


@dataclass(frozen=True)
class SpanCorruptionRecipe:
    """Write the hidden runs of a text (T5)."""

    kind: Literal["span_corruption"]
    """Which objective this is."""
    rate: Rate = 0.15
    """Share of the tokens that is hidden."""
    mean_span_length: Annotated[float, Field(ge=1)] = 3.0
    """Tokens of a hidden run, on average."""
    label_smoothing: Smoothing = 0.0
    """Probability that is spread over the whole vocabulary instead of resting on the right token."""


@dataclass(frozen=True)
class DenoisingRecipe:
    """Write a text whose sentences were shuffled and runs hidden (BART)."""

    kind: Literal["denoising"]
    """Which objective this is."""
    rate: Rate = 0.3
    """Share of the tokens that is hidden."""
    mean_span_length: Annotated[float, Field(ge=0.1)] = 3.0
    """Tokens of a hidden run, on average."""
    label_smoothing: Smoothing = 0.0
    """Probability that is spread over the whole vocabulary instead of resting on the right token."""


ObjectiveRecipe = Annotated[
    MaskedLanguageModelingRecipe
    | NextSentenceRecipe
    | CausalLanguageModelingRecipe
    | TranslationRecipe
    | SpanCorruptionRecipe
    | DenoisingRecipe,
    Field(discriminator="kind"),
]
"""Any of them; `kind` says which."""

Corpus = TokenizedCorpus | tuple[TokenizedCorpus, TokenizedCorpus]
"""Documents, or for translation the documents to read and the documents to write."""


def build_objective(
    recipe: ObjectiveRecipe,
    tokenizer: PreTrainedTokenizerBase,
    *,
    sequence_length: int,
    seed: int = 0,
    decoder_start_id: int | None = None,
) -> Objective:
    """Build the objective of a recipe.

    Args:
        recipe: Which one.
        tokenizer: Has the special tokens that the objective needs.
        sequence_length: Tokens of a sequence at most, as `build_examples` is told.
        seed: Of masks that never change.
        decoder_start_id: What a sequence-to-sequence model's decoder reads first; others need none.

    Raises:
        ValueError: The tokenizer lacks a token, or a number of the recipe is impossible.
    """
    match recipe:
        case MaskedLanguageModelingRecipe():
            corruption = Corruption(tokenizer, recipe.rate, recipe.masked, recipe.randomized, recipe.unit)
            is_static = recipe.masking == "static"
            return MaskedLanguageModeling(
                StaticMasking(corruption, seed) if is_static else DynamicMasking(corruption)
            )
        case NextSentenceRecipe():
            corruption = Corruption(tokenizer, recipe.rate, recipe.masked, recipe.randomized, recipe.unit)
            return MaskedLanguageModelingWithNextSentence(MaskedLanguageModeling(DynamicMasking(corruption)))
        case CausalLanguageModelingRecipe():
            return CausalLanguageModeling()
    if decoder_start_id is None:
        raise ValueError(f"{recipe.kind} needs a decoder_start_token_id: set it in the model's configuration")
    smoothing = recipe.label_smoothing
    match recipe:
        case TranslationRecipe():
            return Translation(decoder_start_id, smoothing)
        case SpanCorruptionRecipe(rate=rate, mean_span_length=mean):
            longest = uncorrupted_length(sequence_length, rate, mean)
            return SpanCorruption(tokenizer, decoder_start_id, longest, rate, mean, smoothing)
        case DenoisingRecipe(rate=rate, mean_span_length=mean):
            return Denoising(tokenizer, decoder_start_id, rate, mean, smoothing)


def build_examples(
    recipe: ObjectiveRecipe,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    sequence_length: int,
    seed: int = 0,
    isolate_documents: bool = True,
) -> ExampleSource:
    """Build the examples that the objective of a recipe learns from.

    Encoders read [CLS] text [SEP]. Decoders read the beginning-of-sequence token and text, so that the first
    token is predicted as well, and learn where documents end. Sequence-to-sequence models read text and its
    end.

    Args:
        recipe: Which objective.
        corpus: Documents; for translation those to read and those to write.
        tokenizer: Has cut the corpus.
        sequence_length: Tokens that the model reads or writes at once, at most.
        seed: Of the pairs that are drawn anew for every epoch.
        isolate_documents: Whether a sequence ends with its document.

    Raises:
        ValueError: The corpus is too small, or of the wrong kind.
    """
    if isinstance(recipe, TranslationRecipe) != isinstance(corpus, tuple):
        raise ValueError(
            f"{recipe.kind} does not learn from such a corpus: translation, and nothing else, reads pairs; "
            f"set or remove corpus.source_column and corpus.target_column"
        )
    match recipe, corpus:
        case TranslationRecipe(), (source, target):
            closing = [required_token_id(tokenizer, "eos", "translation")]
            return ParallelPairs(source, target, sequence_length, closing)
        case NextSentenceRecipe(), TokenizedCorpus():
            return NextSentencePairs(corpus, tokenizer, sequence_length, seed, recipe.short_rate)
        case MaskedLanguageModelingRecipe(), TokenizedCorpus():
            return FullSequences(corpus, sequence_length, *frame_ids(tokenizer), isolate_documents)
        case CausalLanguageModelingRecipe(), TokenizedCorpus():
            begin, end = frame_ids(tokenizer)
            return FullSequences(corpus, sequence_length, begin, (), isolate_documents, document_end_ids=end)
        case SpanCorruptionRecipe(rate=rate, mean_span_length=mean), TokenizedCorpus():
            longest = uncorrupted_length(sequence_length, rate, mean)
            texts = FullSequences(corpus, longest, isolate_documents=isolate_documents)
            return SpoiledTexts(texts, np.add(*corrupted_lengths(texts.lengths, rate, mean)))
        case DenoisingRecipe(rate=rate, mean_span_length=mean), TokenizedCorpus():
            texts = FullSequences(corpus, sequence_length - 1, isolate_documents=isolate_documents)
            return SpoiledTexts(texts, np.add(*spoiled_lengths(texts.lengths, rate, mean)))
    raise AssertionError(recipe)
