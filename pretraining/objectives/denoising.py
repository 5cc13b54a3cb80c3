"""Denoising: corrupt a text in two ways and reconstruct it (BART; Lewis et al., 2020, sections 2.2 and 5).

    text                   A B C . D E .
    sentence permutation   D E . A B C .             sentences in random order
    text infilling         D [MASK] . A [MASK] C     spans of tokens, Poisson(3) long, one [MASK] for each;
                                                     a span of length 0 inserts a [MASK]
    target                 A B C . D E . </s>

30 % of the tokens are masked, and all sentences permuted. Lengths count tokens, as the paper says (fairseq's
code of it counts words). Exactly round(0.3 L) tokens are masked, so the last span of a text may be cut short;
all arrangements of spans among the kept tokens are equally likely. A text has no more spans than masked
tokens, lest its source be longer than itself: of more, some of length 0 are left out.

Legend: L tokens of a text, N packed tokens of a batch, S sequences, Q sentences, K spans.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from transformers import PreTrainedTokenizerBase

from ...data.chunks import FullSequences
from ...data.steps.examples import gather
from ...data.steps.objective import Example
from ...data.steps.packing import Ragged, stretches
from ...data.tokenizers.special_tokens import required_token_id
from ...modeling import TercetSeq2SeqForConditionalGeneration
from .randomness import SequenceDraws, choose_each, poisson_until
from .recipes import (
    BaseObjectiveRecipe,
    Corpus,
    FullSequence,
    ObjectiveContext,
    Rate,
    Smoothing,
    ZLoss,
    single_text,
)
from .teacher_forcing import CorruptedTexts, Pairs, TeacherForcing


class Denoising(TeacherForcing):
    """Reconstruct a text from its corrupted form; the term is `denoising`.

    Args:
        tokenizer: Has a mask and an end-of-sequence token.
        decoder_start_id: What the decoder reads first (BART: the end-of-sequence token).
        noise_density: Share of the tokens that is masked.
        mean_span_length: Tokens of a masked span, on average: the parameter of the Poisson distribution.
        label_smoothing: See `TeacherForcing`.
        z_loss: See `TokenObjective`.
    """

    noise = "dynamic"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        decoder_start_id: int,
        noise_density: float = 0.3,
        mean_span_length: float = 3.0,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ):
        super().__init__("denoising", decoder_start_id, label_smoothing, z_loss)
        self.noise_density = noise_density
        self.mean_span_length = mean_span_length
        self.mask_id = required_token_id(tokenizer, "mask", "denoising")
        self.eos_id = required_token_id(tokenizer, "eos", "denoising")

    def pairs(self, examples: Sequence[Example], seed: int) -> Pairs:
        texts, starts = gather(examples, "input_ids"), gather(examples, "sentence_starts").values
        ids, lengths = texts.values.astype(np.int64, copy=False), texts.lengths
        draws = SequenceDraws.of(examples, seed)
        permuted = ids[permutation(starts, lengths, draws)]
        corrupted, corrupted_lengths = infill(
            permuted, lengths, self.noise_density, self.mean_span_length, self.mask_id, draws
        )
        return append_eos(corrupted, corrupted_lengths, self.eos_id), append_eos(ids, lengths, self.eos_id)


def infilled_lengths(
    lengths: np.ndarray, noise_density: float, mean_span_length: float
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the tokens of source and target (S,), with their ends, for texts of some lengths (S,)."""
    masked = np.rint(lengths * noise_density)
    spans = np.minimum(np.ceil(masked / mean_span_length), masked)
    return (lengths - masked + spans + 1).astype(np.int64), lengths + 1


def permutation(starts: np.ndarray, lengths: np.ndarray, draws: SequenceDraws) -> np.ndarray:
    """Order packed tokens (N,) so that each text's sentences, which begin at `starts` (N,), are shuffled."""
    begins = starts.copy()
    begins[np.cumsum(lengths) - lengths] = True
    text = np.repeat(np.arange(len(lengths)), lengths)
    sentence_texts = text[begins]  # (Q,)
    numbers = draws.random(np.bincount(sentence_texts, minlength=len(lengths)))
    order = np.lexsort((numbers, sentence_texts))
    first = np.flatnonzero(begins)
    sizes = np.diff(first, append=len(begins))[order]
    # Sentence after sentence in the new order: the positions from its first token on.
    return np.repeat(first[order] - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(begins))


def infill(
    ids: np.ndarray,
    lengths: np.ndarray,
    noise_density: float,
    mean_span_length: float,
    mask_id: int,
    draws: SequenceDraws,
) -> tuple[np.ndarray, np.ndarray]:
    """Replace spans of packed `ids` (N,) by one [MASK] each; corrupted texts, packed, and their lengths."""
    masked = np.rint(lengths * noise_density).astype(np.int64)
    span_lengths, spans = without_excess(*poisson_until(masked, mean_span_length, draws), masked)
    slots = lengths - masked + spans  # kept tokens and masks of a corrupted text
    is_mask = choose_each(slots, spans, draws)
    covered = np.ones(len(is_mask), dtype=np.int64)  # tokens of the text that each of the row stands for
    covered[is_mask] = span_lengths
    positions = np.cumsum(covered) - covered
    corrupted = np.full(len(is_mask), mask_id, dtype=np.int64)
    corrupted[~is_mask] = ids[positions[~is_mask]]
    return corrupted, slots


def without_excess(
    span_lengths: np.ndarray, spans: np.ndarray, masked: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Leave out spans of length 0 where a text has more spans than `masked` tokens (S,): lengths, numbers."""
    excess = np.maximum(spans - masked, 0)
    is_empty = span_lengths == 0
    empty_before = np.append(0, is_empty.cumsum())  # (K + 1,)
    rank = empty_before[1:] - empty_before[spans.cumsum() - spans].repeat(spans)  # from 1 in each text
    is_kept = ~is_empty | (rank > excess.repeat(spans))
    return span_lengths[is_kept], spans - excess


def append_eos(ids: np.ndarray, lengths: np.ndarray, eos_id: int) -> Ragged:
    """Put the end-of-sequence token after each of some packed texts."""
    ends = lengths.cumsum()
    longer = ids.take(stretches(ends - lengths, lengths + 1), mode="clip")
    longer[ends + np.arange(len(ends))] = eos_id
    return Ragged(longer, lengths + 1)


@dataclass(frozen=True)
class DenoisingRecipe(BaseObjectiveRecipe):
    """Reconstruct a text with permuted sentences and masked spans (BART)."""

    TERMS = {"denoising": ("tokens of the restored text", "text2text-generation")}
    model_class = TercetSeq2SeqForConditionalGeneration
    template = "end"

    kind: Literal["denoising"]
    """Which objective this is."""
    noise_density: Rate = 0.3
    """Share of the tokens that is masked."""
    mean_span_length: Annotated[float, Field(ge=0.1)] = 3.0
    """Tokens of a masked span, on average."""
    label_smoothing: Smoothing = 0.0
    """Label smoothing: probability that is distributed over the whole vocabulary."""
    z_loss: ZLoss = 0.0
    """Weight of the z-loss, the square of the logarithm of the softmax's normalizer: 1e-4 in PaLM."""

    def build(self, context: ObjectiveContext) -> Denoising:
        start_id = context.required_start_id(self.kind)
        lengths = (self.noise_density, self.mean_span_length)
        return Denoising(context.tokenizer, start_id, *lengths, self.label_smoothing, self.z_loss)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> CorruptedTexts:
        text = single_text(corpus, self.kind)
        texts = FullSequences(text, context.sequence_length - 1, isolate_documents=context.isolate_documents)
        lengths = infilled_lengths(texts.lengths, self.noise_density, self.mean_span_length)
        return CorruptedTexts(texts, np.add(*lengths))

    def full_sequence(self, sequence_length: int) -> FullSequence:
        lengths = infilled_lengths(np.array([sequence_length - 1]), self.noise_density, self.mean_span_length)
        read, written = (int(side[0]) for side in lengths)
        return FullSequence(read, written, written)
