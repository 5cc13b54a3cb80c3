"""UL2's mixture of denoisers (Tay et al., 2022, section 3.1 and table 1): seven ways to corrupt a text.

    denoiser   span length, mean   noise   spans
    [R]        3 and 8             15 %    many: regular denoising, as T5's span corruption
    [X]        3 and 8             50 %    many: extreme denoising
    [X]        64                  15 %    long ones
    [X]        64                  50 %    long ones
    [S]        the rest            25 %    one, at the end: sequential denoising, prefix language modeling

    source    [X] Thank <extra_id_0> to your <extra_id_1> week </s>
    target    <extra_id_0> you for inviting me <extra_id_1> party last <extra_id_2> </s>

Each text draws one of them, and its source begins with the token of the denoiser's mode. So a user may
choose the mode afterwards. Counts are those of `span_corruption.py`. Spans of [R] and [X] stand anywhere in
the text, all places being equally likely: in T5's span corruption the last one always ends the text, and a
single span would make an [S] of it. The length of [S]'s span is uniform, with the mean that table 1 gives.

Legend: L tokens of a text, N packed tokens of a batch, S sequences, K noise spans, D denoisers.
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
from ...data.steps.packing import Ragged, restarting_positions
from ...data.tokenizers.special_tokens import MODES, named_token_ids, required_token_id
from ...modeling import TercetSeq2SeqForConditionalGeneration
from .prefix_language_modeling import draw_suffixes
from .randomness import SequenceDraws, segment_each
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, Rate, Smoothing, single_text
from .span_corruption import corrupted_lengths, count_noise, required_sentinels, split_spans
from .teacher_forcing import CorruptedTexts, Pairs, TeacherForcing


@dataclass(frozen=True)
class Denoiser:
    """One way to corrupt a text."""

    mode: Literal["R", "S", "X"]
    """Name of the token with which its sources begin."""
    noise_density: Rate
    """Share of the tokens that is replaced; on average, where a suffix is."""
    mean_span_length: Annotated[float, Field(ge=1)] | None = None
    """Tokens of a span, on average; by default, one span of random length ends the text."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """How often it is drawn, compared with the others."""

    @property
    def is_sequential(self) -> bool:
        return self.mean_span_length is None


UL2 = (
    Denoiser("R", 0.15, 3.0),
    Denoiser("R", 0.15, 8.0),
    Denoiser("X", 0.5, 3.0),
    Denoiser("X", 0.5, 8.0),
    Denoiser("X", 0.15, 64.0),
    Denoiser("X", 0.5, 64.0),
    Denoiser("S", 0.25),
)
"""Table 1 of the paper, mixed uniformly."""


class MixtureOfDenoisers(TeacherForcing):
    """Predict spans of a text that one of several denoisers draws; the term is `mixture_of_denoisers`.

    Args:
        tokenizer: Has an end-of-sequence token, sentinels, and the tokens of `MODES`.
        decoder_start_id: What the decoder reads first (T5: the padding token).
        longest: Tokens of the longest text that examples will have: it decides how many sentinels are needed.
        denoisers: Those of which each text draws one.
        label_smoothing: See `TeacherForcing`.
    """

    noise = "dynamic"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        decoder_start_id: int,
        longest: int,
        denoisers: Sequence[Denoiser] = UL2,
        label_smoothing: float = 0.0,
    ):
        super().__init__("mixture_of_denoisers", decoder_start_id, label_smoothing)
        self.denoisers = denoisers
        self.densities, self.means, self.shares = (np.array(column) for column in columns_of(denoisers))
        self.eos_id = required_token_id(tokenizer, "eos", "a mixture of denoisers")
        modes = named_token_ids(tokenizer, MODES, "a mixture of denoisers")
        self.mode_ids = modes[[MODES.index(f"[{denoiser.mode}]") for denoiser in denoisers]]  # (D,)
        spans = count_noise(np.full(len(denoisers), longest), self.densities, self.means)[1]
        self.sentinels = required_sentinels(tokenizer, longest, int(spans.max()))

    def pairs(self, examples: Sequence[Example], seed: int) -> Pairs:
        ids = gather(examples, "input_ids")
        draws = SequenceDraws.of(examples, seed)
        drawn = self.shares.cumsum()[:-1].searchsorted(draws.random_each(), side="right")
        is_noise = self.noise_mask(ids.lengths, drawn, draws)
        sources, targets = split_spans(ids.values, ids.lengths, is_noise, self.sentinels, self.eos_id)
        with_modes = np.insert(sources.values, sources.edges[:-1], self.mode_ids[drawn])
        return Ragged(with_modes, sources.lengths + 1), targets

    def noise_mask(self, lengths: np.ndarray, drawn: np.ndarray, draws: SequenceDraws) -> np.ndarray:
        """Draw which packed tokens are noise (N,), in texts of some `lengths`, by the denoisers `drawn` (S,).

        Kept and noise runs alternate. Only the first and the last kept run may be empty.
        """
        noise, spans = count_noise(lengths, self.densities[drawn], self.means[drawn])
        is_suffix = np.isinf(self.means[drawn])
        noise = np.where(is_suffix, draw_suffixes(longest_suffixes(lengths, noise), draws), noise)
        spans = np.maximum(spans, 1)  # a text of one token has a noise span of length 0
        kept_runs = segment_each(lengths - noise + 2, spans + 1, draws)
        lasts = np.cumsum(spans + 1) - 1
        firsts = lasts - spans
        kept_runs[firsts] -= 1
        kept_runs[lasts] -= 1
        kept_runs[firsts[is_suffix]] = (lengths - noise)[is_suffix]
        kept_runs[lasts[is_suffix]] = 0
        is_noise_run = restarting_positions(2 * spans + 1) % 2 == 1
        runs = np.empty(len(is_noise_run), dtype=np.int64)
        runs[is_noise_run], runs[~is_noise_run] = segment_each(noise, spans, draws), kept_runs
        return is_noise_run.repeat(runs)


def columns_of(denoisers: Sequence[Denoiser]) -> tuple[list[float], list[float], list[float]]:
    """List densities, mean span lengths (infinite: one span) and shares of denoisers, each (D,)."""
    total = sum(denoiser.weight for denoiser in denoisers)
    return (
        [denoiser.noise_density for denoiser in denoisers],
        [denoiser.mean_span_length or np.inf for denoiser in denoisers],
        [denoiser.weight / total for denoiser in denoisers],
    )


def longest_suffixes(lengths: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the longest suffix of texts (S,) whose lengths are uniform from 1 on and have a mean (S,)."""
    return np.minimum(2 * mean - 1, lengths - 1)


def side_lengths(lengths: np.ndarray, denoiser: Denoiser) -> tuple[np.ndarray, np.ndarray]:
    """Count the tokens of source and target (S,), with mode, sentinels and ends; on average, of a suffix."""
    mean = denoiser.mean_span_length or np.inf
    read, written = corrupted_lengths(lengths, denoiser.noise_density, mean)
    return read + 1, written


def longest_text(sequence_length: int, denoisers: Sequence[Denoiser]) -> int:
    """Find the longest text whose source and target fit into `sequence_length`, whatever is drawn."""
    lengths = np.arange(2, 2 * sequence_length + 2)
    fits = np.ones(len(lengths), dtype=bool)
    for denoiser in denoisers:
        read, written = side_lengths(lengths, denoiser)
        if denoiser.is_sequential:  # source: a mode, all but one token, a sentinel, an end
            noise, _ = count_noise(lengths, denoiser.noise_density, np.inf)
            read, written = lengths + 2, longest_suffixes(lengths, noise) + 3
        fits &= np.maximum(read, written) <= sequence_length
    if not fits[0]:
        raise ValueError(f"sequence_length is {sequence_length}, too short for two tokens of text: raise it")
    return int(lengths[np.logical_and.accumulate(fits)][-1])


@dataclass(frozen=True)
class MixtureOfDenoisersRecipe(BaseObjectiveRecipe):
    """Predict spans that one of several denoisers replaces (UL2)."""

    TERMS = {"mixture_of_denoisers": ("tokens of hidden spans", "text2text-generation")}
    model_class = TercetSeq2SeqForConditionalGeneration
    template = "end"
    num_sentinels = 100
    special_tokens = MODES

    kind: Literal["mixture_of_denoisers"]
    """Which objective this is."""
    denoisers: Annotated[tuple[Denoiser, ...], Field(min_length=1)] = UL2
    """Denoisers of which each text draws one; UL2's seven by default."""
    label_smoothing: Smoothing = 0.0
    """Label smoothing: probability that is distributed over the whole vocabulary."""

    def build(self, context: ObjectiveContext) -> MixtureOfDenoisers:
        start_id = context.required_start_id(self.kind)
        longest = longest_text(context.sequence_length, self.denoisers)
        return MixtureOfDenoisers(context.tokenizer, start_id, longest, self.denoisers, self.label_smoothing)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> CorruptedTexts:
        # source and target fit, whichever denoiser is drawn
        text = single_text(corpus, self.kind)
        longest = longest_text(context.sequence_length, self.denoisers)
        texts = FullSequences(text, longest, isolate_documents=context.isolate_documents, fewest_tokens=2)
        return CorruptedTexts(texts, np.rint(sum(self._mean_sides(texts.lengths))).astype(np.int64))

    def full_sequence(self, sequence_length: int) -> FullSequence:
        sides = self._mean_sides(np.array([longest_text(sequence_length, self.denoisers)]))
        read, written = (round(float(side[0])) for side in sides)
        return FullSequence(read, written, written)

    def _mean_sides(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shares = columns_of(self.denoisers)[2]
        sides = [side_lengths(lengths, denoiser) for denoiser in self.denoisers]
        read, written = (np.average(side, axis=0, weights=shares) for side in zip(*sides, strict=True))
        return read, written
