"""Span corruption: replace spans of tokens by sentinels, and predict the spans (T5).

    text      Thank you for inviting me to your party last week </s>
    source    Thank you <extra_id_0> me to your party <extra_id_1> week </s>
    target    <extra_id_0> for inviting <extra_id_1> last <extra_id_2> </s>

(Raffel et al., 2020, section 3.1.4.) How many tokens are noise depends on the length alone: m = round(0.15 L)
tokens in round(m / 3) spans. Their positions are drawn as by `random_spans_noise_mask` of the paper's code:
noise and kept tokens are each cut into as many spans at random, and alternate, a kept one first. So a text
always ends with a noise span (unlike the paper's figure 2, above). The final sentinel is the paper's; its
code leaves it out.

Legend: L tokens of a text, N packed tokens of a batch, S sequences, K noise spans, m noise tokens.
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
from ...data.steps.packing import Ragged, boundaries, restarting_positions, stretches
from ...data.tokenizers.special_tokens import SENTINEL, required_token_id, sentinel_ids
from ...modeling import TercetSeq2SeqForConditionalGeneration
from .randomness import SequenceDraws, segment_each
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


def required_sentinels(tokenizer: PreTrainedTokenizerBase, longest: int, spans: int) -> np.ndarray:
    """Return the sentinels of a tokenizer (K,), one more than the `spans` of the `longest` text, or raise."""
    sentinels = sentinel_ids(tokenizer)
    if len(sentinels) <= spans:
        raise ValueError(
            f"span corruption of {longest} tokens needs {spans + 1} sentinels, but the tokenizer has "
            f"{len(sentinels)}: add {SENTINEL.format(0)} ... {SENTINEL.format(spans)} to it, "
            f"shorten the sequences, or raise mean_span_length"
        )
    return sentinels


def count_noise(
    lengths: np.ndarray, noise_density: float | np.ndarray, mean_span_length: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Count the noise tokens and spans (S,) of texts of some lengths (S,); at least one token is kept.

    Density and mean may differ from text to text (S,).
    """
    noise = np.minimum(np.maximum(np.rint(lengths * noise_density).astype(np.int64), 1), lengths - 1)
    spans = np.maximum(np.rint(noise / mean_span_length).astype(np.int64), 1)
    return noise, np.minimum(spans, np.minimum(noise, lengths - noise))


def corrupted_lengths(
    lengths: np.ndarray, noise_density: float, mean_span_length: float
) -> tuple[np.ndarray, np.ndarray]:
    """Count the tokens of source and target (S,), with sentinels and end: L - m + K + 1 and m + K + 2."""
    noise, spans = count_noise(lengths, noise_density, mean_span_length)
    return lengths - noise + spans + 1, noise + spans + 2


def uncorrupted_length(sequence_length: int, noise_density: float, mean_span_length: float) -> int:
    """Find the longest text whose source and target, both shorter than it, fit into `sequence_length`.

    With the paper's 512, 0.15 and 3 it is 568, as `random_spans_helper` of its code finds.
    """
    lengths = np.arange(1, 2 * sequence_length + 2)  # both sides together are longer than the text
    longest = np.maximum(*corrupted_lengths(lengths, noise_density, mean_span_length))
    if sequence_length < longest[0]:
        raise ValueError(
            f"sequence_length is {sequence_length}, too short for one token and its end: raise it"
        )
    return int(lengths[longest <= sequence_length][-1])


def noise_mask(
    lengths: np.ndarray, noise_density: float, mean_span_length: float, draws: SequenceDraws
) -> np.ndarray:
    """Draw which packed tokens are noise (N,): spans of kept and noise tokens alternate in each text."""
    noise, spans = count_noise(lengths, noise_density, mean_span_length)
    spans = np.maximum(spans, 1)  # a text of one token has a noise span of length 0
    runs = [segment_each(lengths - noise, spans, draws), segment_each(noise, spans, draws)]
    runs = np.stack(runs, axis=1).ravel()
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


class SpanCorruption(TeacherForcing):
    """Predict the noise spans of a text; the term is `span_corruption`.

    Args:
        tokenizer: Has an end-of-sequence token and sentinels `<extra_id_0>`, `<extra_id_1>`, ...
        decoder_start_id: What the decoder reads first (T5: the padding token).
        longest: Tokens of the longest text that examples will have: it decides how many sentinels are needed.
        noise_density: Share of the tokens that is noise.
        mean_span_length: Tokens of a noise span, on average.
        label_smoothing: See `TeacherForcing`.
        z_loss: See `TokenObjective`.
    """

    noise = "dynamic"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        decoder_start_id: int,
        longest: int,
        noise_density: float = 0.15,
        mean_span_length: float = 3.0,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ):
        super().__init__("span_corruption", decoder_start_id, label_smoothing, z_loss)
        self.noise_density = noise_density
        self.mean_span_length = mean_span_length
        self.eos_id = required_token_id(tokenizer, "eos", "span corruption")
        spans = count_noise(np.array([longest]), noise_density, mean_span_length)[1]
        self.sentinels = required_sentinels(tokenizer, longest, int(spans[0]))

    def pairs(self, examples: Sequence[Example], seed: int) -> Pairs:
        ids = gather(examples, "input_ids")
        draws = SequenceDraws.of(examples, seed)
        is_noise = noise_mask(ids.lengths, self.noise_density, self.mean_span_length, draws)
        return split_spans(ids.values, ids.lengths, is_noise, self.sentinels, self.eos_id)


def split_spans(
    ids: np.ndarray, lengths: np.ndarray, is_noise: np.ndarray, sentinels: np.ndarray, eos_id: int
) -> tuple[Ragged, Ragged]:
    """Part packed `ids` (N,) into sources and targets by `is_noise` (N,); no text is empty.

    A source is kept spans, each followed by one token: a sentinel, or the end after the last.
    A target is noise spans, each preceded by a sentinel, and at last a sentinel and the end.
    """
    text_ends = lengths.cumsum()
    is_kept_before, is_kept_behind = ~np.append(False, is_noise[:-1]), ~np.append(is_noise[1:], False)
    is_kept_before[text_ends - lengths] = is_kept_behind[text_ends - 1] = True  # no span leaves its text
    begins = np.flatnonzero(is_noise & is_kept_before)  # of noise spans (K,)
    stops = np.flatnonzero(is_noise & is_kept_behind) + 1
    runs_before = boundaries(np.diff(begins.searchsorted(text_ends), prepend=0))  # (S + 1,)
    spans = np.diff(runs_before)
    of_spans = sentinels[restarting_positions(spans)]
    last = runs_before[1:]  # where a text's last piece goes among all spans
    last_piece = last + np.arange(len(spans))

    starts = np.insert(stops, runs_before[:-1], text_ends - lengths)
    sizes = np.insert(begins, last, text_ends) - starts + 1
    edges = sizes.cumsum()
    source = ids.take(stretches(starts, sizes), mode="clip").astype(np.int64)
    source[edges - 1] = np.insert(of_spans, last, eos_id)
    sources = Ragged(source, np.diff(edges[last_piece], prepend=0))

    starts = np.insert(begins - 1, last, text_ends)
    sizes = np.insert(stops - begins + 1, last, 2)
    edges = sizes.cumsum()
    target = ids.take(stretches(starts, sizes), mode="clip").astype(np.int64)
    target[edges - sizes] = np.insert(of_spans, last, sentinels[spans])
    target[edges[last_piece] - 1] = eos_id
    return sources, Ragged(target, np.diff(edges[last_piece], prepend=0))


@dataclass(frozen=True)
class SpanCorruptionRecipe(BaseObjectiveRecipe):
    """Predict spans that sentinels replace (T5)."""

    TERMS = {"span_corruption": ("tokens of hidden spans", "text2text-generation")}
    model_class = TercetSeq2SeqForConditionalGeneration
    template = "end"
    num_sentinels = 100
    """As many as T5's tokenizer has."""

    kind: Literal["span_corruption"]
    """Which objective this is."""
    noise_density: Rate = 0.15
    """Share of the tokens that is replaced."""
    mean_span_length: Annotated[float, Field(ge=1)] = 3.0
    """Tokens of a span, on average."""
    label_smoothing: Smoothing = 0.0
    """Label smoothing: probability that is distributed over the whole vocabulary."""
    z_loss: ZLoss = 0.0
    """Weight of the z-loss, the square of the logarithm of the softmax's normalizer: 1e-4 in PaLM."""

    def build(self, context: ObjectiveContext) -> SpanCorruption:
        start_id = context.required_start_id(self.kind)
        longest = uncorrupted_length(context.sequence_length, self.noise_density, self.mean_span_length)
        lengths = (self.noise_density, self.mean_span_length)
        return SpanCorruption(
            context.tokenizer, start_id, longest, *lengths, self.label_smoothing, self.z_loss
        )

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> CorruptedTexts:
        # one token is kept and one is noise, at least
        longest = uncorrupted_length(context.sequence_length, self.noise_density, self.mean_span_length)
        text = single_text(corpus, self.kind)
        texts = FullSequences(text, longest, isolate_documents=context.isolate_documents, fewest_tokens=2)
        lengths = corrupted_lengths(texts.lengths, self.noise_density, self.mean_span_length)
        return CorruptedTexts(texts, np.add(*lengths))

    def full_sequence(self, sequence_length: int) -> FullSequence:
        text = uncorrupted_length(sequence_length, self.noise_density, self.mean_span_length)
        lengths = corrupted_lengths(np.array([text]), self.noise_density, self.mean_span_length)
        read, written = (int(side[0]) for side in lengths)
        return FullSequence(read, written, written)
