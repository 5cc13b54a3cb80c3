"""Span corruption: hide runs of tokens behind sentinels, and write the runs (T5).

    text      Thank you for inviting me to your party last week </s>
    source    Thank you <extra_id_0> me to your party <extra_id_1> week </s>
    target    <extra_id_0> for inviting <extra_id_1> last <extra_id_2> </s>

(Raffel et al., 2020, section 3.1.4.) How much is hidden depends on the length alone: round(0.15 L) tokens in
round(hidden / 3) runs; where, is drawn as by `random_spans_noise_mask` of the paper's code: hidden and kept
tokens are each cut into as many runs at random, and alternate, a kept one first. So a text always ends in a
hidden run (unlike the paper's figure 2, above). The final sentinel is the paper's; its code leaves it out.

Legend: L tokens of a text, N packed tokens of a batch, S sequences, K runs, m hidden tokens.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..training.examples import gather
from ..training.objective import Example
from ..training.packing import Ragged, boundaries, restarting_positions, stretches
from .draws import segment_each
from .rates import check_rate
from .special_tokens import SENTINEL, required_token_id, sentinel_ids
from .teacher_forcing import TeacherForcing


def hidden_counts(lengths: np.ndarray, rate: float, mean_span_length: float) -> tuple[np.ndarray, np.ndarray]:
    """Count the hidden tokens and the runs (S,) of texts of some lengths (S,); at least one token is kept."""
    hidden = np.minimum(np.maximum(np.rint(lengths * rate).astype(np.int64), 1), lengths - 1)
    spans = np.maximum(np.rint(hidden / mean_span_length).astype(np.int64), 1)
    return hidden, np.minimum(spans, np.minimum(hidden, lengths - hidden))


def corrupted_lengths(
    lengths: np.ndarray, rate: float, mean_span_length: float
) -> tuple[np.ndarray, np.ndarray]:
    """Count the tokens of source and target (S,), with sentinels and end: L - m + K + 1 and m + K + 2."""
    hidden, spans = hidden_counts(lengths, rate, mean_span_length)
    return lengths - hidden + spans + 1, hidden + spans + 2


def uncorrupted_length(sequence_length: int, rate: float, mean_span_length: float) -> int:
    """Find the longest text whose source and target, both shorter than it, fit into `sequence_length`.

    With the paper's 512, 0.15 and 3 it is 568, as `random_spans_helper` of its code finds.
    """
    lengths = np.arange(1, 2 * sequence_length + 2)  # both sides together are longer than the text
    longest = np.maximum(*corrupted_lengths(lengths, rate, mean_span_length))
    if sequence_length < longest[0]:
        raise ValueError(
            f"sequence_length is {sequence_length}, too short for one token and its end: raise it"
        )
    return int(lengths[longest <= sequence_length][-1])


def hidden_mask(
    lengths: np.ndarray, rate: float, mean_span_length: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw which packed tokens are hidden (N,): runs of kept and hidden tokens alternate in each text."""
    hidden, spans = hidden_counts(lengths, rate, mean_span_length)
    spans = np.maximum(spans, 1)  # a text of one token has a hidden run of length 0
    runs = [segment_each(lengths - hidden, spans, rng), segment_each(hidden, spans, rng)]
    runs = np.stack(runs, axis=1).ravel()
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


class SpanCorruption(TeacherForcing):
    """Write the hidden runs of a text; the term is `span_corruption`.

    Args:
        tokenizer: Has an end-of-sequence token and sentinels `<extra_id_0>`, `<extra_id_1>`, ...
        decoder_start_id: What the decoder reads first (T5: the padding token).
        longest: Tokens of the longest text that examples will have: it decides how many sentinels are needed.
        rate: Share of the tokens that is hidden.
        mean_span_length: Tokens of a hidden run, on average.
        label_smoothing: See `TeacherForcing`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        decoder_start_id: int,
        longest: int,
        rate: float = 0.15,
        mean_span_length: float = 3.0,
        label_smoothing: float = 0.0,
    ):
        super().__init__("span_corruption", decoder_start_id, label_smoothing)
        self.rate = check_rate("rate", rate)
        if mean_span_length < 1:
            raise ValueError(f"mean_span_length is {mean_span_length}, but a run has at least 1 token: try 3")
        self.mean_span_length = mean_span_length
        self.eos_id = required_token_id(tokenizer, "eos", "span corruption")
        self.sentinels = sentinel_ids(tokenizer)
        needed = int(hidden_counts(np.array([longest]), rate, mean_span_length)[1][0]) + 1
        if len(self.sentinels) < needed:
            raise ValueError(
                f"span corruption of {longest} tokens needs {needed} sentinels, but the tokenizer has "
                f"{len(self.sentinels)}: add {SENTINEL.format(0)} ... {SENTINEL.format(needed - 1)} to it, "
                f"shorten the sequences, or raise mean_span_length"
            )

    def pairs(
        self, examples: Sequence[Example], rng: np.random.Generator
    ) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        """Hide runs of the examples' tokens; sources and targets, each with its end."""
        ids = gather(examples, "input_ids")
        hidden = hidden_mask(ids.lengths, self.rate, self.mean_span_length, rng)
        return self.split(ids.values, ids.lengths, hidden)

    def split(self, ids: np.ndarray, lengths: np.ndarray, hidden: np.ndarray) -> tuple[Ragged, Ragged]:
        """Part packed `ids` (N,) into sources and targets; a text's first token is never `hidden` (N,).

        A source is kept runs, each longer by one place for a sign behind it: a sentinel, or at last the end.
        A target is hidden runs, each longer by one place for a sentinel before it, and at last two signs.
        """
        begins = np.flatnonzero(hidden & ~np.append(False, hidden[:-1]))  # of hidden runs (K,)
        stops = np.flatnonzero(hidden & ~np.append(hidden[1:], False)) + 1
        text_ends = lengths.cumsum()
        runs_before = boundaries(np.diff(begins.searchsorted(text_ends), prepend=0))  # (S + 1,)
        spans = np.diff(runs_before)
        sentinels = self.sentinels[restarting_positions(spans)]
        last = runs_before[1:]  # where a text's last piece goes among all runs
        last_piece = last + np.arange(len(spans))

        starts = np.insert(stops, runs_before[:-1], text_ends - lengths)
        sizes = np.insert(begins, last, text_ends) - starts + 1
        edges = sizes.cumsum()
        source = ids.take(stretches(starts, sizes), mode="clip").astype(np.int64)
        source[edges - 1] = np.insert(sentinels, last, self.eos_id)
        sources = Ragged(source, np.diff(edges[last_piece], prepend=0))

        starts = np.insert(begins - 1, last, text_ends)
        sizes = np.insert(stops - begins + 1, last, 2)
        edges = sizes.cumsum()
        target = ids.take(stretches(starts, sizes), mode="clip").astype(np.int64)
        target[edges - sizes] = np.insert(sentinels, last, self.sentinels[spans])
        target[edges[last_piece] - 1] = self.eos_id
        return sources, Ragged(target, np.diff(edges[last_piece], prepend=0))


def splice(source: Iterable[int], target: Iterable[int], sentinels: Iterable[int], eos_id: int) -> list[int]:
    """Put the runs of a target (or of a model's answer) into the places of their sentinels in the source."""
    runs: dict[int, list[int]] = {}
    current: list[int] = []
    signs = set(map(int, sentinels))
    for token in map(int, target):
        if token == eos_id:
            break
        if token in signs:
            current = runs.setdefault(token, [])
        else:
            current.append(token)
    spliced = ([token] if token not in signs else runs.get(token, []) for token in map(int, source))
    return [token for run in spliced for token in run if token != eos_id]
