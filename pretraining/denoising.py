"""Denoising: spoil a text in two ways and write it as it was (BART; Lewis et al., 2020, sections 2.2 and 5).

    text                   A B C . D E .
    sentence permutation   D E . A B C .             sentences in random order
    text infilling         D [MASK] . A [MASK] C     runs of tokens, Poisson(3) long, each behind one [MASK];
                                                     a run of length 0 puts a [MASK] where nothing is missing
    target                 A B C . D E . </s>

30 % of the tokens are hidden, and all sentences permuted. Lengths count tokens, as the paper says (fairseq's
code of it counts words). Exactly round(0.3 L) tokens are hidden, so the last run of a text may be cut short;
where the runs lie among the kept tokens is drawn with all arrangements alike likely. A text has no more runs
than hidden tokens, lest its source be longer than itself: of more, some of length 0 are left out.

Legend: L tokens of a text, N packed tokens of a batch, S sequences, Q sentences, K runs.
"""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..training.examples import gather
from ..training.objective import Example
from ..training.packing import Ragged, stretches
from .draws import choose_each, poisson_until
from .rates import check_rate
from .special_tokens import required_token_id
from .teacher_forcing import TeacherForcing


class Denoising(TeacherForcing):
    """Write the text that a spoiled one was; the term is `denoising`.

    Args:
        tokenizer: Has a mask and an end-of-sequence token.
        decoder_start_id: What the decoder reads first (BART: the end-of-sequence token).
        rate: Share of the tokens that is hidden.
        mean_span_length: Tokens of a hidden run, on average: the parameter of the Poisson distribution.
        label_smoothing: See `TeacherForcing`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        decoder_start_id: int,
        rate: float = 0.3,
        mean_span_length: float = 3.0,
        label_smoothing: float = 0.0,
    ):
        super().__init__("denoising", decoder_start_id, label_smoothing)
        self.rate = check_rate("rate", rate)
        if mean_span_length < 0.1:
            raise ValueError(f"mean_span_length is {mean_span_length}, but must be 0.1 or more: try 3")
        self.mean_span_length = mean_span_length
        self.mask_id = required_token_id(tokenizer, "mask", "denoising")
        self.eos_id = required_token_id(tokenizer, "eos", "denoising")

    def pairs(
        self, examples: Sequence[Example], rng: np.random.Generator
    ) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Permute the sentences, then hide runs; the target is the text. Examples have `sentence_starts`."""
        texts, starts = gather(examples, "input_ids"), gather(examples, "sentence_starts").values
        ids, lengths = texts.values.astype(np.int64, copy=False), texts.lengths
        permuted = ids[permutation(starts, lengths, rng)]
        spoiled, spoiled_lengths = infill(
            permuted, lengths, self.rate, self.mean_span_length, self.mask_id, rng
        )
        return ended(spoiled, spoiled_lengths, self.eos_id), ended(ids, lengths, self.eos_id)


def spoiled_lengths(
    lengths: np.ndarray, rate: float, mean_span_length: float
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the tokens of source and target (S,), with their ends, for texts of some lengths (S,)."""
    hidden = np.rint(lengths * rate)
    spans = np.minimum(np.ceil(hidden / mean_span_length), hidden)
    return (lengths - hidden + spans + 1).astype(np.int64), lengths + 1


def permutation(starts: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Order packed tokens (N,) so that each text's sentences, which begin at `starts` (N,), are shuffled."""
    begins = starts.copy()
    begins[np.cumsum(lengths) - lengths] = True
    text = np.repeat(np.arange(len(lengths)), lengths)
    sentence_texts = text[begins]  # (Q,)
    order = np.argsort(sentence_texts + rng.random(len(sentence_texts)))
    first = np.flatnonzero(begins)
    sizes = np.diff(first, append=len(begins))[order]
    # Sentence after sentence in the new order: its first token's place, and on from there.
    return np.repeat(first[order] - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(begins))


def infill(
    ids: np.ndarray,
    lengths: np.ndarray,
    rate: float,
    mean_span_length: float,
    mask_id: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Replace runs of packed `ids` (N,) by one [MASK] each; the spoiled texts, packed, and their lengths."""
    hidden = np.rint(lengths * rate).astype(np.int64)
    span_lengths, spans = without_excess(*poisson_until(hidden, mean_span_length, rng), hidden)
    slots = lengths - hidden + spans  # a spoiled text is a row of kept tokens and masks
    is_mask = choose_each(slots, spans, rng)
    covered = np.ones(len(is_mask), dtype=np.int64)  # tokens of the text that each of the row stands for
    covered[is_mask] = span_lengths
    place = np.cumsum(covered) - covered
    spoiled = np.full(len(is_mask), mask_id, dtype=np.int64)
    spoiled[~is_mask] = ids[place[~is_mask]]
    return spoiled, slots


def without_excess(
    span_lengths: np.ndarray, spans: np.ndarray, hidden: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Leave out runs of length 0 where a text has more runs than `hidden` tokens (S,): lengths, numbers."""
    excess = np.maximum(spans - hidden, 0)
    is_empty = span_lengths == 0
    empty_before = np.append(0, is_empty.cumsum())  # (K + 1,)
    rank = empty_before[1:] - empty_before[spans.cumsum() - spans].repeat(spans)  # from 1 in each text
    is_kept = ~is_empty | (rank > excess.repeat(spans))
    return span_lengths[is_kept], spans - excess


def ended(ids: np.ndarray, lengths: np.ndarray, eos_id: int) -> Ragged:
    """Put the end-of-sequence token after each of some packed texts."""
    ends = lengths.cumsum()
    longer = ids.take(stretches(ends - lengths, lengths + 1), mode="clip")
    longer[ends + np.arange(len(ends))] = eos_id
    return Ragged(longer, lengths + 1)
