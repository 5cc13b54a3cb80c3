"""The noise of masked language modeling: what is masked at once, what stands there instead, and when.

    tokens   the re ##sult is a list        every token by its own coin (Devlin et al., 2019)
    words    the re ##sult is a list        all tokens of a word by one coin (BERT's code of May 2019)
                 ----------
    spans    the re ##sult is a list        whole words in a row, of geometric lengths (SpanBERT)
                 -------------

Every unit meets the rate in expectation: a token is a target with exactly the probability that is asked for.

Legend: N packed tokens of the batch, n chosen tokens, V ids of the tokenizer, W words, K spans.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...data.steps.examples import gather, has_field
from ...data.steps.objective import IGNORE, INDEX, Example
from ...data.steps.packing import stretches
from ...data.tokenizers.special_tokens import is_special, required_token_id
from ...training.token_objective import Noise
from .randomness import TokenDraws

CHOICE, REPLACEMENT, RANDOM_TOKEN, SPAN_LENGTH = range(4)
"""What a random number decides: whether a token (word, span) is a target, what replaces it, by which random
token, and how long a span is."""


class Choice(NamedTuple):
    """The chosen tokens; special ones are struck out later."""

    is_target: np.ndarray
    """Which tokens are chosen (N,)."""
    is_first: np.ndarray
    """Which of them have a replacement of their own (N,); the others share that of the target before them."""


class MaskingUnit(ABC):
    """Decides which packed tokens of some examples become targets. Abstract."""

    @abstractmethod
    def choose(
        self, examples: Sequence[Example], special: np.ndarray, probability: float, draws: TokenDraws
    ) -> Choice:
        """Choose each ordinary token with a probability.

        Args:
            examples: What is packed.
            special: Which of the packed tokens are special (N,): they are chosen or not, and never masked.
            probability: Probability of a token.
            draws: Random numbers for the packed tokens.
        """


class Tokens(MaskingUnit):
    """Choose every token by its own coin."""

    def choose(
        self, examples: Sequence[Example], special: np.ndarray, probability: float, draws: TokenDraws
    ) -> Choice:
        is_target = draws.uniform(np.arange(len(special)), CHOICE) < probability
        return Choice(is_target, is_target)


class Words(MaskingUnit):
    """Choose every word, with all of its tokens, by the coin of its first one.

    A token is in one word, so it is a target as often as its word is chosen: the token rate is met in
    expectation, whatever the words' lengths. What replaces a token does not depend on its word's others.
    (Whole-word masking of BERT's code of May 2019.)
    """

    def choose(
        self, examples: Sequence[Example], special: np.ndarray, probability: float, draws: TokenDraws
    ) -> Choice:
        begins = word_begins(examples, special)  # (W,)
        sizes = np.diff(begins, append=len(special))
        is_target = (draws.uniform(begins, CHOICE) < probability).repeat(sizes)
        return Choice(is_target, is_target)


class Spans(MaskingUnit):
    """Choose spans of whole words (SpanBERT; Joshi et al., 2020, section 3.1).

    A span has l words with a probability proportional to (1 - p)^(l - 1), l <= `max_span_length`: with the
    paper's 0.2 and 10, 3.8 words on average. All of its tokens become [MASK], or random tokens, or stay.
    Spans are read from left to right: every word that no span covers begins one by its own coin. They do not
    overlap, and end with the text. A text may begin within a span, as it may end within one.

    Deviations: the paper draws spans, which may meet, until 15 % of a sequence are covered, and cuts the last
    one short. Here the rate holds in expectation, for every token, and only the end of a text cuts a span.
    The span-boundary objective is a term of its own, and is left out.

    Args:
        geometric_p: p, between 0 and 1.
        max_span_length: Words of the longest span.
    """

    def __init__(self, geometric_p: float = 0.2, max_span_length: int = 10):
        numbers = np.arange(1, max_span_length + 1)
        weights = (1 - geometric_p) ** (numbers - 1.0)
        self.shares = weights / weights.sum()
        """How likely each length is, from 1 on."""
        self.mean = float(self.shares @ numbers)
        """Words of a span, on average."""
        self.shares_of_rests = self.shares[::-1].cumsum()[::-1] / self.mean
        """How many words of a span that began before the text are left, from 1 on: P(length >= l) / mean."""

    def choose(
        self, examples: Sequence[Example], special: np.ndarray, probability: float, draws: TokenDraws
    ) -> Choice:
        # draw where spans begin and how long they are, then leave out those that begin within another
        begins = word_begins(examples, special)  # (W,)
        is_text, opens = texts_of(examples, special, begins)
        # Kept words between two spans are 1 / start - 1 on average, so spans cover `probability` of all.
        start = probability / (probability + self.mean * (1 - probability))
        coins = draws.uniform(begins, CHOICE)
        first = np.flatnonzero(is_text & (coins < np.where(opens, probability, start)))  # (K,)
        lengths = self.lengths(draws.uniform(begins[first], SPAN_LENGTH), opens[first])
        borders = np.append(np.flatnonzero(opens | ~is_text), len(begins))
        last = np.minimum(first + lengths, borders[borders.searchsorted(first, side="right")])
        is_kept = without_overlaps(first, last)
        starts, stops = (np.append(begins, len(special))[words[is_kept]] for words in (first, last))
        is_target, is_first = np.zeros((2, len(special)), dtype=bool)
        is_target[stretches(starts, stops - starts)] = True
        is_first[starts] = True
        return Choice(is_target, is_first)

    def lengths(self, draws: np.ndarray, are_rests: np.ndarray) -> np.ndarray:
        """Turn numbers from 0 to 1 into lengths of spans, or of what is left of them (K,), in words."""
        whole, rest = (
            shares.cumsum()[:-1].searchsorted(draws, side="right")
            for shares in (self.shares, self.shares_of_rests)
        )
        return np.where(are_rests, rest, whole) + 1


def word_begins(examples: Sequence[Example], special: np.ndarray) -> np.ndarray:
    """Find the first token of every word (W,).

    Words are read from `word_starts`, and end also where a special token stands or the next sequence begins.
    """
    if not has_field(examples, "word_starts"):
        raise ValueError(
            "whole-word masking needs examples with `word_starts`, and these have none: use a fast "
            "tokenizer, or set whole_word: false and leave span_masking out"
        )
    words = gather(examples, "word_starts")
    starts = words.values | special
    starts[1:] |= special[:-1]
    starts[words.edges[:-1]] = True
    return np.flatnonzero(starts)


def texts_of(
    examples: Sequence[Example], special: np.ndarray, begins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which words (W,) are text, and with which a text begins.

    A text ends with its sequence, and where a special token stands, which is a word of its own.
    """
    is_text = ~special[begins]
    is_border = np.append(True, ~is_text[:-1])
    is_border |= np.isin(begins, gather(examples, "word_starts").edges)
    return is_text, is_text & is_border


def without_overlaps(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Go through spans (K,) by their `starts`, and keep each that begins where the last kept one has ended.

    Spans that nothing before them reaches are kept; from these on, all chains of kept spans are followed at
    once.

    >>> without_overlaps(np.array([0, 2, 3, 9]), np.array([3, 8, 4, 11])).tolist()
    [True, False, True, True]
    """
    is_kept = np.zeros(len(starts), dtype=bool)
    reached = np.append(0, np.maximum.accumulate(stops)[:-1])
    current = np.flatnonzero(starts >= reached[: len(starts)])
    while len(current):
        is_kept[current] = True
        following = starts.searchsorted(stops[current])
        following = following[following < len(starts)]
        current = following[~is_kept[following]]
    return is_kept


TOKENS, WORDS = Tokens(), Words()


class Corruption:
    """The replacement of chosen tokens: a function of tokens and randomness.

    Args:
        tokenizer: Has a mask token.
        mlm_probability: Share of the ordinary tokens that become targets.
        mask_replace_prob: Share of the targets that become [MASK].
        random_replace_prob: Share of the targets that become a random token of the vocabulary, never a
            special one.
        unit: What is chosen at once: `Tokens`, `Words` or `Spans`. The shares are of tokens in all cases.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        unit: MaskingUnit = TOKENS,
    ):
        self.mlm_probability = mlm_probability
        self.mask_replace_prob, self.random_replace_prob = mask_replace_prob, random_replace_prob
        if (replaced := mask_replace_prob + random_replace_prob) > 1 + 1e-9:
            raise ValueError(
                f"mask_replace_prob + random_replace_prob is {replaced:g}, more than all targets: lower one "
                "of them"
            )
        self.unit = unit
        self.mask_id = required_token_id(tokenizer, "mask", "masked language modeling")
        self.special = is_special(tokenizer)  # (V,)
        self.ordinary_ids = np.flatnonzero(~self.special)

    def with_probability(self, mlm_probability: float) -> "Corruption":
        other = copy(self)
        other.mlm_probability = mlm_probability
        return other

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, draws: TokenDraws
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the packed `ids` (N,) of the examples; return them and their labels, both (N,)."""
        special = self.special[ids]
        choice = self.unit.choose(examples, special, self.mlm_probability, draws)
        chosen = np.flatnonzero(choice.is_target & ~special)  # (n,)
        labels = np.full_like(ids, IGNORE)
        labels[chosen] = ids[chosen]

        is_first = choice.is_first[chosen]
        draw = draws.uniform(chosen[is_first], REPLACEMENT)[is_first.cumsum() - 1]
        is_masked = draw < self.mask_replace_prob
        is_random = ~is_masked & (draw < self.mask_replace_prob + self.random_replace_prob)
        corrupted = ids.copy()
        corrupted[chosen[is_masked]] = self.mask_id
        randomized = chosen[is_random]
        random_ids = draws.below(len(self.ordinary_ids), randomized, RANDOM_TOKEN)
        corrupted[randomized] = self.ordinary_ids[random_ids]
        return corrupted, labels


class DynamicMasking:
    """A new corruption each time that an example is seen (Liu et al., 2019, section 4.1).

    Args:
        corruption: What is done to tokens.
        final_mlm_probability: Share of the tokens that become targets at the end of a run, if it changes on
            the way from that of `corruption`.
    """

    noise: Noise = "dynamic"

    def __init__(self, corruption: Corruption, final_mlm_probability: float | None = None):
        self.corruption = corruption
        self.final_mlm_probability = final_mlm_probability

    def at(self, progress: float) -> "DynamicMasking":
        """Return the masking at a point of a run, from 0 to 1: its probability changes linearly."""
        if self.final_mlm_probability is None:
            return self
        first = self.corruption.mlm_probability
        probability = first + progress * (self.final_mlm_probability - first)
        return DynamicMasking(self.corruption.with_probability(probability))

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the whole pack at once, each example by `seed` and its `index`."""
        return self.corruption(examples, ids, draws_of_tokens(examples, seed))


class StaticMasking:
    """The same corruption of an example in every epoch and every batch: a function of `seed` and its `index`.

    BERT's data is masked once in this way (Devlin et al., 2019), and then repeated with several masks, which
    is not done here.
    """

    noise: Noise = "static"

    def __init__(self, corruption: Corruption, seed: int):
        self.corruption = corruption
        self.seed = seed

    def at(self, progress: float) -> "StaticMasking":
        return self

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the whole pack at once, by what each example is, and not by a step's `seed`."""
        return self.corruption(examples, ids, draws_of_tokens(examples, self.seed))


def draws_of_tokens(examples: Sequence[Example], seed: int) -> TokenDraws:
    return TokenDraws(seed, gather(examples, INDEX).values, gather(examples, "input_ids").lengths)
